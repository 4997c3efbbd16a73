"""A corpus examined and cleaned from Python."""

import json
from pathlib import Path

import numpy as np
import pytest
import yaml

import mt
from command import mt as command
from data_helpers import YAML, lines_in, write_pairs

PAIRS = [
    ("one two three", "uno due tre"),
    ("one two three", "uno due tre"),
    ("five &amp; six", "cinque e sei"),
    ("eight\ufffd", "otto"),
    ("ten", "ten"),
    ("eleven", "undici"),
]


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def corpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    write_pairs(tmp_path, "train", PAIRS)
    write_pairs(tmp_path, "valid", [("twelve", "dodici")])
    (tmp_path / "mine.yaml").write_text(YAML)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("as_mapping", [False, True])
def test_a_check_is_that_of_the_command(corpus: Path, as_mapping: bool) -> None:
    config = yaml.safe_load(YAML) if as_mapping else "mine.yaml"
    report = mt.check_corpus(config, examples=1, overrides=["data.max_ratio=4"])
    words = ["mine.yaml", "--json", "--examples", "1", "--set", "data.max_ratio=4"]
    printed = json.loads(command("data", "check", *words, cwd=corpus).stdout)
    if as_mapping:
        for action in printed["actions"]:
            action["command"] = action["command"].replace("mine.yaml", "CONFIG")
    assert json.loads(json.dumps(report)) == printed
    assert printed["actions"]


def test_a_cleaning_is_that_of_the_command(corpus: Path) -> None:
    cleaned = mt.clean_corpus("mine.yaml", "ours", keep=["duplicate"], drop={"identical"}, repair=True)
    words = ["--output", "theirs", "--keep", "duplicate", "--drop", "identical", "--repair"]
    command("data", "clean", "mine.yaml", *words, cwd=corpus)
    assert contents(corpus / "ours") == contents(corpus / "theirs")
    assert cleaned.counts["kept"] == len(lines_in(corpus / "ours" / "train.en"))
    assert cleaned.repaired
    settings = yaml.safe_load(YAML)
    settings["data"]["train"] = cleaned.sources
    assert mt.check_corpus(settings)["pairs"]["train"] == cleaned.counts["kept"]


def test_a_cleaning_replaces_no_text_of_the_users(corpus: Path) -> None:
    (corpus / "own").mkdir()
    write_pairs(corpus / "own", "train", PAIRS)
    for config in ("mine.yaml", yaml.safe_load(YAML)):
        with pytest.raises(mt.InputError, match="own"):
            mt.clean_corpus(config, "own")
    with pytest.raises(mt.InputError, match="contradict each other"):
        mt.clean_corpus("mine.yaml", "ours", keep=["identical"], drop=["identical"])
    for options, message in (
        ({"keep": ["identcal"]}, "--keep: 'identcal' is none of"),
        ({"drop": "identcal"}, "--drop: 'identcal' is none of"),
        ({"drop": ["low-score"]}, "add --scores"),
        ({"keep": "template", "max_per_template": 2}, "--keep template and --max-per-template contradict"),
        ({"keep": "low-score", "scores": "scores"}, "--keep low-score and --scores contradict"),
        ({"scores": "scores", "keep_share": np.float32(2)}, "--keep-share 2.0: a share is more than 0 and at most 1"),
    ):
        with pytest.raises(mt.InputError, match=message):
            mt.clean_corpus("mine.yaml", "ours", **options)
    assert not (corpus / "ours").exists()
    assert mt.clean_corpus("mine.yaml", "ours", drop="same-words").counts["same-words"] == 1
