"""What is said of the training text before a run, and the preprocessing that is learned from it at its end."""

import random
from pathlib import Path

import pytest

from data_helpers import make_config, write_lines, write_pairs
from mt.config import parse_config
from mt.data.phrasebook import sentence_pairs
from mt.data.prepare import input_digests
from mt.pipeline.data import clean_text
from mt.pipeline.finish import learn_preprocessing
from mt.pipeline.run import prepare
from mt.storage.run_dir import RunDir
from mt.text.preprocessing import Preprocessing

CONFIG = """\
name: mine
data:
  source_lang: en
  target_lang: fr
  train: {source: train.en, target: train.fr}
  valid: {source: train.en, target: train.fr}
  test: null
"""
ENGLISH = [f"the home is old, {number}" for number in range(20)]
FRENCH = [f"un homme est grand, {number}" for number in range(20)]


def learned(folder: Path, source: list[str], target: list[str], *changes: str) -> Preprocessing:
    write_lines(folder / "train.en", source)
    write_lines(folder / "train.fr", target)
    config, run = parse_config(CONFIG, "x.yaml", [f"data.root={folder}", *changes]), RunDir(folder / "run")
    clean_text(config, run, input_digests(config.data))
    return learn_preprocessing(config, run)


def test_text_of_the_opposite_direction_is_not_corrected(tmp_path: Path) -> None:
    bidirectional = learned(tmp_path, ENGLISH, FRENCH, "training.bidirectional_epochs=2")
    assert bidirectional.apply("un homme, the hmoe", "fr").line == "un homme, the home"
    assert learned(tmp_path, ENGLISH, FRENCH).apply("un homme", "en").line == "un home"


def test_one_source_language_does_not_correct_another(tmp_path: Path) -> None:
    source = "{source: %s, target: train.de, source_lang: %s, target_lang: de}"
    sources = f"[{source % ('train.en', 'en')}, {source % ('train.fr', 'fr')}]"
    languages = ["data.source_lang=[en, fr]", "data.target_lang=de", f"data.valid={sources}"]
    write_lines(tmp_path / "train.de", [f"ein altes Haus, {number}" for number in range(20)])
    preprocessing = learned(tmp_path, ENGLISH, [*FRENCH[:1], *ENGLISH[1:]], *languages, f"data.train={sources}")
    assert preprocessing.casing is not None
    line = "un home, un hmme, un homme, un hommes"
    assert preprocessing.apply(line, "fr").line == line


def test_a_sentence_starts_behind_the_tag_of_a_back_translation(tmp_path: Path) -> None:
    source = [f"<BT> This dog saw a cat {number}." for number in range(20)]
    preprocessing = learned(tmp_path, source, FRENCH)
    assert preprocessing.apply("A CAT SAW THIS DOG.", "en").line == "A cat saw this dog."


def test_training_warns_of_texts_whose_lengths_do_not_correlate(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    pairs = list(sentence_pairs("train"))[:800]
    sources, targets = zip(*pairs, strict=True)
    shuffled = zip(sources, random.Random(1).sample(targets, len(targets)), strict=True)
    texts = [write_pairs(tmp_path, "right", pairs), write_pairs(tmp_path, "wrong", list(shuffled))]
    config = make_config(tmp_path, texts, valid={"from_train": 20}, test=None, tokenizer={"vocab_size": 300})
    prepare(config, RunDir(tmp_path / "runs" / "run"), tmp_path / "runs")
    [warning] = [record.getMessage() for record in caplog.records if "do not correlate" in record.getMessage()]
    assert warning.startswith("data.train: wrong.en and wrong.it: the lengths of sources")
