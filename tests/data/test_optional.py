"""Training sources that may be missing."""

from pathlib import Path

import pytest

from command import mt
from conftest import CONFIG, TWO_LANGUAGES, write_corpus
from mt.config import load_config, parse_config
from mt.data.prepare import drop_missing_sources
from mt.errors import InputError

MORE = CONFIG.replace(
    "train: {source: train.en, target: train.xx}",
    "train: [{source: train.en, target: train.xx}, {source: train.en, target: more.xx, optional: true}]",
)


def test_a_source_that_is_not_there_is_left_out_and_said(tmp_path: Path) -> None:
    write_corpus(tmp_path)
    (tmp_path / "tiny.yaml").write_text(MORE)
    told = mt("train", "--config", "tiny.yaml", "--dry-run", cwd=tmp_path).stderr
    assert "data.train.1 is optional and left out: more.xx does not exist" in told
    mt("train", "--config", "tiny.yaml", "--set", "training.max_steps=4", cwd=tmp_path)
    alone = load_config(tmp_path / "runs" / "tiny" / "config.yaml").data.train
    assert [(source.target, source.optional) for source in alone] == [("train.xx", False)]  # type: ignore[union-attr]
    assert "data.train.1 is optional and left out" in mt("data", "check", "tiny.yaml", cwd=tmp_path).stderr

    # Once it is there, it counts as any other, and the run is another one.
    (tmp_path / "more.xx").write_text((tmp_path / "train.xx").read_text().replace("K", "k"))
    changed = mt("train", "--config", "tiny.yaml", "--set", "training.max_steps=4", cwd=tmp_path, code=2).stderr
    assert "left out" not in changed
    assert "data.train" in changed
    mt("train", "--config", "tiny.yaml", "--set", "training.max_steps=4", "--set", "name=both", cwd=tmp_path)
    assert len(load_config(tmp_path / "runs" / "both" / "config.yaml").data.train) == 2


def test_one_source_is_needed(tmp_path: Path) -> None:
    optional = CONFIG.replace("target: train.xx}", f"target: train.xx, optional: true}}\n  root: {tmp_path}")
    with pytest.raises(InputError, match=r"data\.train: no source in xx exists"):
        drop_missing_sources(parse_config(optional, "x.yaml"))


def test_each_language_needs_one(tmp_path: Path) -> None:
    changes = [f"data.root={tmp_path}", "data.train.1.optional=true"]
    config = parse_config(TWO_LANGUAGES, "x.yaml", changes)
    with pytest.raises(InputError, match="no source in yy exists"):
        drop_missing_sources(config)


def test_held_out_text_needs_a_source_that_people_wrote(tmp_path: Path) -> None:
    text = CONFIG.replace(
        "train: {source: train.en, target: train.xx}",
        f"""root: {tmp_path}
  train: [{{source: a.en, target: a.xx, optional: true}}, {{source: b.en, target: b.xx, synthetic: true}}]""",
    )
    config = parse_config(text, "x.yaml", ["data.valid={from_train: 5}"])
    with pytest.raises(InputError, match=r"data\.valid: cannot be split off .* only its synthetic sources exist"):
        drop_missing_sources(config)


def test_only_training_text_is_optional() -> None:
    with pytest.raises(InputError, match=r"data\.valid: is optional, which is for training text only"):
        parse_config(CONFIG.replace("valid.xx}", "valid.xx, optional: true}"), "x.yaml")
