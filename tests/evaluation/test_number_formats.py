"""Number formats measured at the end of training, and where the results are reported."""

import json
from pathlib import Path
from typing import Any

import pytest

from command import mt
from conftest import made_once, make_project


@pytest.fixture(scope="module")
def with_shortlist(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """Return a finished run whose model has a shortlist, and the output of its training."""

    def make(folder: Path) -> None:
        make_project(folder)
        changes = ["--set", "decoding.shortlist=8", "--set", "decoding.compute_type=int8"]
        (folder / "stdout").write_text(mt("train", "--config", "tiny.yaml", *changes, cwd=folder).stdout)

    folder = made_once(tmp_path_factory, "listed", make)
    return folder, (folder / "stdout").read_text()


def facts_of(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "runs" / "tiny" / "model" / "MANIFEST.json").read_text())


def measured(folder: Path) -> list[tuple[str, bool]]:
    facts = facts_of(folder)
    assert all(0 <= row["valid_bleu"] <= 100 and row["sentences_per_second"] > 0 for row in facts["formats"])
    return [(row["compute_type"], row["shortlist"]) for row in facts["formats"]]


def test_the_bleu_is_that_of_the_validation_set(trained: Path, tmp_path: Path) -> None:
    assert measured(trained) == [("float32", False), ("int8", False)]
    files = ["--source", "valid.en", "--reference", "valid.xx", "--json", "--force", "--output", tmp_path]
    for row in facts_of(trained)["formats"]:
        done = mt("eval", *files, "--compute-type", row["compute_type"], cwd=trained)
        [beam] = [result for result in json.loads(done.stdout)["results"] if result["method"] == "beam"]
        assert beam["bleu"] == pytest.approx(row["valid_bleu"], abs=0.01)


def test_shortlists_are_measured_and_all_of_it_is_printed_and_kept(with_shortlist: tuple[Path, str]) -> None:
    folder, stdout = with_shortlist
    assert measured(folder) == [("float32", False), ("float32", True), ("int8", False), ("int8", True)]
    facts = facts_of(folder)
    for text in (stdout, (folder / "runs" / "tiny" / "model" / "README.md").read_text()):
        assert facts["formats_table"] in text
        assert "int8 with shortlist" in text
        assert facts["formats_table"].splitlines()[-1].startswith("bleu: nrefs:1|case:mixed|eff:no|tok:13a|")
    events = [json.loads(line) for line in (folder / "runs" / "tiny" / "metrics.jsonl").read_text().splitlines()]
    signatures = {event["signature"] for event in events if event["event"] == "validation"}
    assert signatures == {facts["formats_table"].splitlines()[-1]}


def test_the_model_translates_as_configured_unless_told_otherwise(with_shortlist: tuple[Path, str]) -> None:
    folder, _ = with_shortlist
    assert "CTranslate2 int8 with shortlist on cpu" in mt("translate", "a b", "-v", cwd=folder).stderr
    told = ["--compute-type", "float32", "--no-shortlist"]
    assert "CTranslate2 float32 on cpu" in mt("translate", "a b", "-v", *told, cwd=folder).stderr


def test_a_folder_of_another_format_is_rebuilt_by_the_same_command(tmp_path: Path) -> None:
    folder = make_project(tmp_path)
    mt("train", "--config", "tiny.yaml", cwd=folder)
    model = folder / "runs" / "tiny" / "model"
    manifest = json.loads((model / "MANIFEST.json").read_text())
    weights = (model / "model.safetensors").read_bytes()
    (model / "MANIFEST.json").write_text(json.dumps(manifest | {"key": "of an older format"}))
    mt("train", "--config", "tiny.yaml", cwd=folder)
    assert json.loads((model / "MANIFEST.json").read_text())["key"] == manifest["key"]
    assert (model / "model.safetensors").read_bytes() == weights
