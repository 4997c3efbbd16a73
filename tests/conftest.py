"""What several test files share: a tiny corpus, its configuration, and a run trained on it."""

import logging
import os
import random
import shutil
import signal
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path

# One thread a process: several test processes of many threads each slow one another down by far.
os.environ["OMP_NUM_THREADS"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"

import hypothesis
import pytest
from filelock import FileLock

from command import mt, share_server
from mt.console import log

# Where tests are started in the background, signals may be ignored, and so they would be by every program they start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)

# A busy machine is no bug; and a change that is checked in must not fail by the luck of the draw.
hypothesis.settings.register_profile("project", deadline=None, derandomize="CI" in os.environ)
hypothesis.settings.load_profile("project")


def pytest_configure(config: pytest.Config) -> None:
    if getattr(config.option, "numprocesses", None):  # None in the processes of pytest-xdist themselves
        share_server()


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
  precision: fp32
  learning_rate: 1.0e-3
  warmup_steps: 4
  validate_every: 8
  save_every: 4
  log_every: 4
  tensorboard: false
  report: false
  sample_translations: 1
decoding: {beam_size: 2, max_length: 12, retry_loops: false}
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


def made_once(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], object]) -> Path:
    """Make a folder for all workers of this run of the tests; the others wait. No test may write into it."""
    base = factory.getbasetemp()
    base = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    folder, done = base / f"shared-{name}", base / f"shared-{name}.done"
    with FileLock(f"{folder}.lock"):
        if not done.exists():
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            make(folder)
            done.touch()
    return folder


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same, trained to the end once for all tests, which must not write into it."""

    def make(folder: Path) -> None:
        make_project(folder)
        mt("train", "--config", "tiny.yaml", cwd=folder)

    return made_once(tmp_path_factory, "trained", make)


TWO_LANGUAGES = """\
name: two
data:
  source_lang: en
  target_lang: [xx, yy]
  train:
    - {source: train.en, target: train.xx, target_lang: xx}
    - {source: train.en, target: train.yy, target_lang: yy, weight: 2}
  valid:
    - {source: valid.en, target: valid.xx, target_lang: xx}
    - {source: valid.en, target: valid.yy, target_lang: yy}
  test:
    - {source: valid.en, target: valid.xx, target_lang: xx}
    - {source: valid.en, target: valid.yy, target_lang: yy}
  max_length: 40
tokenizer: {vocab_size: 340}
model: {d_model: 32, n_heads: 2, d_ff: 64, encoder_layers: 1, decoder_layers: 1, norm: pre, dropout: 0.0}
training:
  max_tokens: 800
  max_steps: 300
  precision: fp32
  learning_rate: 5.0e-3
  warmup_steps: 30
  validate_every: 100
  tensorboard: false
  report: false
decoding: {beam_size: 2, max_length: 12, retry_loops: false}
evaluation: {bootstrap_samples: 20}
"""
LETTERS = "abcdefghij"


def into(language: str, sentence: str) -> str:
    """Two languages: letters further on in the alphabet, by 10 or by 16."""
    shift = {"xx": 10, "yy": 16}[language]
    return " ".join(chr(ord(letter) + shift) for letter in sentence.split())


def _train_two_languages(folder: Path) -> None:
    rng = random.Random(1)
    for split, size in {"train": 400, "valid": 20}.items():
        sources = [" ".join(rng.choice(LETTERS) for _ in range(rng.randint(1, 6))) for _ in range(size)]
        (folder / f"{split}.en").write_text("".join(f"{s}\n" for s in sources))
        for language in ("xx", "yy"):
            (folder / f"{split}.{language}").write_text("".join(f"{into(language, s)}\n" for s in sources))
    (folder / "two.yaml").write_text(TWO_LANGUAGES)
    mt("train", "--config", "two.yaml", cwd=folder)


@pytest.fixture(scope="session")
def two_languages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose model knows two languages, well enough to tell them apart; no test may write into it."""
    return made_once(tmp_path_factory, "languages", _train_two_languages)


MANY_LANGUAGES = """\
name: many
data:
  source_lang: [en, de, fr]
  target_lang: [en, de, fr]
  train:
    - {source: train.en, target: train.de, source_lang: en, target_lang: de, both_ways: true}
    - {source: train.en, target: train.fr, source_lang: en, target_lang: fr, both_ways: true}
  valid:
    - {source: valid.en, target: valid.de, source_lang: en, target_lang: de, both_ways: true}
    - {source: valid.en, target: valid.fr, source_lang: en, target_lang: fr, both_ways: true}
  test:
    - {source: valid.en, target: valid.de, source_lang: en, target_lang: de, both_ways: true}
    - {source: valid.en, target: valid.fr, source_lang: en, target_lang: fr, both_ways: true}
    - {source: valid.de, target: valid.fr, source_lang: de, target_lang: fr}
  max_length: 40
tokenizer: {vocab_size: 400}
model: {d_model: 32, n_heads: 2, d_ff: 64, encoder_layers: 1, decoder_layers: 1, norm: pre, dropout: 0.0}
training:
  max_tokens: 1000
  max_steps: 200
  precision: fp32
  learning_rate: 8.0e-3
  warmup_steps: 30
  validate_every: 100
  tensorboard: false
  report: false
decoding: {beam_size: 2, max_length: 20, retry_loops: false}
evaluation: {bootstrap_samples: 20}
"""
WORDS = {
    "en": ["a dog", "a man", "a woman", "a child", "sees", "holds", "likes", "the house", "the ball", "the horse"],
    "de": [
        "ein Hund",
        "ein Mann",
        "eine Frau",
        "ein Kind",
        "sieht",
        "hält",
        "mag",
        "das Haus",
        "den Ball",
        "das Pferd",
    ],
    "fr": [
        "un chien",
        "un homme",
        "une femme",
        "un enfant",
        "voit",
        "tient",
        "aime",
        "la maison",
        "le ballon",
        "le cheval",
    ],
}


def write_many_languages(folder: Path) -> None:
    """Write the same short sentences in English, German and French, and the configuration."""
    rng = random.Random(1)
    every = list(product(range(4), range(4, 7), range(7, 10), range(7, 10)))
    rng.shuffle(every)
    for split, chosen in (("train", every[12:]), ("valid", every[:12])):
        for language, words in WORDS.items():
            joined = {"en": "and", "de": "und", "fr": "et"}[language]
            lines = (f"{words[s]} {words[v]} {words[o]} {joined} {words[p]}\n" for s, v, o, p in chosen)
            (folder / f"{split}.{language}").write_text("".join(lines))
    (folder / "many.yaml").write_text(MANY_LANGUAGES)


@pytest.fixture(scope="session")
def many_languages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose model translates English to German and French, and both back; no test may write into it."""

    def make(folder: Path) -> None:
        write_many_languages(folder)
        mt("train", "--config", "many.yaml", cwd=folder)

    return made_once(tmp_path_factory, "many", make)


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
