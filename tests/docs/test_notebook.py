"""The Colab notebook: its cells run in their order, at toy size on the CPU."""

import io
import json
import re
import shlex
import zipfile
from contextlib import redirect_stdout
from pathlib import Path

import pytest
import yaml

from command import mt
from conftest import CONFIG, write_corpus
from mt.config import parse_config

NOTEBOOK = Path(__file__).parents[2] / "docs" / "colab.ipynb"
SPLITS = {"train": "train", "validation": "valid", "test": "test"}  # the hub's names, and our files'


def code_cells() -> list[str]:
    book = json.loads(NOTEBOOK.read_text())
    assert (book["nbformat"], book["metadata"]["accelerator"]) == (4, "GPU")
    assert len({cell["id"] for cell in book["cells"]}) == len(book["cells"])
    assert all(cell["outputs"] == [] for cell in book["cells"] if cell["cell_type"] == "code")
    return ["".join(cell["source"]) for cell in book["cells"] if cell["cell_type"] == "code"]


def write_data_set(folder: Path) -> None:
    """Write a folder that `datasets` reads in place of the hub's data set, whose name is its path."""
    folder.mkdir(parents=True)
    write_corpus(folder)
    for split, ours in SPLITS.items():
        texts = [(folder / f"{ours}.{language}").read_text().splitlines() for language in ("en", "xx")]
        rows = "".join(json.dumps({"en": source, "de": target}) + "\n" for source, target in zip(*texts, strict=True))
        (folder / f"{split}.jsonl").write_text(rows)
    for path in (*folder.glob("*.en"), *folder.glob("*.xx")):
        path.unlink()


def shrunk(configuration: str) -> str:
    """Return the configuration with the tiny project's model and training on the notebook's data."""
    tiny = yaml.safe_load(CONFIG)
    small = yaml.safe_load(configuration)
    small["data"]["max_length"] = tiny["data"]["max_length"]
    for split in ("train", "valid", "test"):
        small["data"][split]["streaming"] = True  # or a copy would stay in the user's cache
    small["model"] |= tiny["model"]
    small["training"] |= {key: tiny["training"][key] for key in ("max_tokens", "max_steps", "warmup_steps")}
    small["training"]["validate_every"] = 8
    return yaml.safe_dump(small | {"tokenizer": tiny["tokenizer"], "decoding": tiny["decoding"]})


def run_cell(cell: str, names: dict[str, object]) -> str:
    """Run a cell as Jupyter would, in the working directory; return its output."""
    if match := re.match(r"%%writefile (\S+)\n", cell):
        configuration = cell[match.end() :]
        parse_config(configuration, "the notebook")  # as it is
        Path(match[1]).write_text(shrunk(configuration))
        return ""
    if cell.startswith("!pip install"):
        return ""
    if cell.startswith("!"):
        program, *arguments = shlex.split(cell[1:])
        assert program == "mt"
        return mt(*arguments, cwd=Path.cwd()).stdout
    output = io.StringIO()
    with redirect_stdout(output):
        exec(cell, names)
    return output.getvalue()


def test_all_cells_of_the_notebook_run_at_toy_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_data_set(Path("bentrevett", "multi30k"))
    names: dict[str, object] = {}
    outputs = {cell.split(" --")[0]: run_cell(cell, names) for cell in code_cells()}
    assert "trained 24 steps" in outputs["!mt train"]
    assert re.search(r"^beam +[\d.]+ ", outputs["!mt eval"], re.MULTILINE)
    assert len(outputs["!mt translate"].splitlines()) == 2
    assert "MANIFEST.json" in zipfile.ZipFile("model.zip").namelist()
