"""What several test files share: a tiny corpus, its configuration, and a run trained on it."""

import logging
import os
import random
from collections.abc import Iterator
from pathlib import Path

# One thread a process: several test processes of many threads each slow one another down by far.
os.environ["OMP_NUM_THREADS"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"

import hypothesis
import pytest

from command import mt
from mt.console import log

# A busy machine is no bug; and a change that is checked in must not fail by the luck of the draw.
hypothesis.settings.register_profile("project", deadline=None, derandomize="CI" in os.environ)
hypothesis.settings.load_profile("project")

CONFIG = """\
name: tiny
data:
  source_lang: en
  target_lang: xx
  train: {source: train.en, target: train.xx}
  valid: {source: valid.en, target: valid.xx}
  test: {source: test.en, target: test.xx}
  max_length: 40
tokenizer: {vocab_size: 320}
model: {d_model: 16, n_heads: 2, d_ff: 32, encoder_layers: 1, decoder_layers: 1, norm: pre}
training:
  max_tokens: 200
  max_steps: 24
  learning_rate: 1.0e-3
  warmup_steps: 4
  validate_every: 8
  save_every: 4
  log_every: 4
  tensorboard: false
  sample_translations: 1
decoding: {beam_size: 2, max_length: 12}
evaluation: {bootstrap_samples: 20}
"""


def write_corpus(folder: Path, seed: int = 7) -> None:
    """Letters and their mirror images further on in the alphabet: small, and different in every line."""
    rng = random.Random(seed)
    for split, size in {"train": 300, "valid": 12, "test": 12}.items():
        sources = [" ".join(rng.choice("abcdefghij") for _ in range(rng.randint(2, 6))) for _ in range(size)]
        targets = [" ".join(chr(ord(letter) + 15) for letter in reversed(s.split())) for s in sources]
        (folder / f"{split}.en").write_text("".join(f"{s}\n" for s in sources))
        (folder / f"{split}.xx").write_text("".join(f"{t}\n" for t in targets))


def make_project(folder: Path) -> Path:
    write_corpus(folder)
    (folder / "tiny.yaml").write_text(CONFIG)
    return folder


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    """A folder with a tiny corpus and `tiny.yaml`."""
    return make_project(tmp_path)


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same, trained to the end once for all tests, which must not write into it."""
    folder = make_project(tmp_path_factory.mktemp("trained"))
    mt("train", "--config", "tiny.yaml", cwd=folder)
    return folder


class _Collector(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


@pytest.fixture
def notices() -> Iterator[list[str]]:
    """What the user is told in the log while the test runs."""
    collector, level = _Collector(), log.level
    log.addHandler(collector)
    log.setLevel(logging.INFO)
    yield collector.lines
    log.setLevel(level)
    log.removeHandler(collector)
