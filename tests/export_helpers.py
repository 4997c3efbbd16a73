"""Models to export, and comparisons of exports with them."""

import contextlib
import io
from collections.abc import Sequence
from pathlib import Path
from shutil import copyfile
from typing import Any

import torch
from torch import Tensor

from command import mt
from engine_helpers import ENGLISH, GERMAN, PUSHABLE, configured, ending_model, push_all, random_model, tokenizers
from mt.bundle.load_translator import open_model
from mt.bundle.model_folder import new_model
from mt.data.tokenizer import EOS_ID, N_UNMERGED, PAD_ID, SOS_ID
from mt.decoding.engine import EngineChoice, SearchOptions
from mt.decoding.torch_engine import TorchEngine
from mt.extras.export.common import ExportJob
from mt.storage.run_dir import ModelDir, RunDir

SHORT = "decoding.max_length=12"
VALID = [*ENGLISH, *GERMAN, "the dog", "men", "on the hill a house is", "grass grass", "old dog talking."]


def random_job(*changes: str) -> ExportJob:
    """Make a random model whose translations vary and end by themselves, without a folder."""
    config = configured(SHORT, *changes)
    pair = tokenizers(config.tokenizer.shared)
    options = SearchOptions(beam_size=5, max_length=12)
    model = ending_model(config, pair.source.encode_batch(ENGLISH), options)
    return ExportJob(ModelDir(Path("nowhere")), config, model, pair, [])


def translating_job(*changes: str) -> ExportJob:
    """Make one whose translations of VALID have no byte tokens, so that BLEU can be computed."""
    config = configured(SHORT, *PUSHABLE, *changes)
    pair, options = tokenizers(config.tokenizer.shared), SearchOptions(beam_size=5, max_length=12)
    ids = pair.source.encode_batch(VALID)
    for seed in range(200):
        model = random_model(config, seed)
        push_all(model, dict.fromkeys((i for i in range(N_UNMERGED) if i != EOS_ID), -20.0))
        lengths = {len(found[0].ids) for found in TorchEngine(model, 4096).translate(ids, options)}
        if max(lengths) < 12 and min(lengths) > 0 and len(lengths) > 2:
            return ExportJob(ModelDir(Path("nowhere")), config, model, pair, [])
    raise AssertionError("no such model")


def padded(rows: Sequence[Sequence[int]]) -> Tensor:
    """Add SOS and EOS to sentences, and pad them."""
    longest = max(map(len, rows)) + 2
    return torch.tensor([[SOS_ID, *row, EOS_ID] + [PAD_ID] * (longest - len(row) - 2) for row in rows])


def search(job: ExportJob, options: SearchOptions, lines: Sequence[str] = ENGLISH) -> list[str]:
    """Translate with torch."""
    pair = job.tokenizers
    found = TorchEngine(job.model, 4096).translate(pair.source.encode_batch(list(lines)), options)
    return pair.target.decode_batch([hypotheses[0].ids for hypotheses in found])


def run_folder(folder: Path, *changes: str, **extras: Any) -> RunDir:
    """Write a finished run of a random model; all references of its validation set but one are its translations.

    `extras` are the shortlist and the preprocessing of its model folder, by the names that `new_model` has for them.
    """
    run, job = RunDir(folder), translating_job(*changes)
    weights = {name: parameter.detach() for name, parameter in job.model.named_parameters()}
    with new_model(run.model, job.config, job.tokenizers, weights, {}, **extras):
        pass
    copyfile(run.model.config, run.config)
    run.text.mkdir(parents=True)
    opened = open_model(run.model, EngineChoice(compute_type="float32"))
    translations = opened.translator.best(VALID, opened.settings.search)
    write(run.text_file("valid", "source"), VALID)
    write(run.text_file("valid", "target"), [*translations[:-1], "Something else."])
    return run


def write(path: Path, lines: Sequence[str]) -> None:
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def lines_of(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").split("\n")[:-1]


def refusal(*arguments: str | Path, cwd: Path) -> str:
    """Return the message of a failing `mt export`, which leaves nothing behind."""
    before = sorted(cwd.rglob("*"))
    done = mt("export", *arguments, cwd=cwd, code=2)
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) <= 2, done.stderr
    assert sorted(cwd.rglob("*")) == before
    return done.stderr


def run_readme(folder: Path, program: str | None = None) -> tuple[str, dict[str, Any]]:
    """Run the Python program in an export's README in the current directory; return its output and its names."""
    output, names = io.StringIO(), {}
    with contextlib.redirect_stdout(output):
        exec(program or readme_program(folder), names)
    return output.getvalue(), names


def readme_program(folder: Path) -> str:
    """Return the Python program in an export's README."""
    return (folder / "README.md").read_text(encoding="utf-8").split("```python\n")[1].split("```")[0]
