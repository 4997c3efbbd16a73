"""Helpers for tests of the data layer."""

import json
import random
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mt.config import Config, DataConfig, parse_config
from mt.data.batching import TrainingCorpus
from mt.data.corpus import Pair, read_pairs
from mt.data.encode import encode_corpus
from mt.data.ragged import Lengths
from mt.data.sentence_format import Tags
from mt.data.token_store import EncodedCorpus
from mt.data.tokenizer_kinds import TokenizerPair
from mt.errors import InputError

# Of the commands that examine a corpus of three texts beside it.
YAML = """\
name: mine
data:
  source_lang: en
  target_lang: it
  train: {source: train.en, target: train.it}
  valid: {source: valid.en, target: valid.it}
  test: null
tokenizer: {vocab_size: 300}
"""


def make_config(
    root: Path, train: Any, *, seed: int = 1, tokenizer: dict[str, Any] | None = None, **data: Any
) -> Config:
    """Return a configuration from English to Italian; JSON is YAML too."""
    section = {"source_lang": "en", "target_lang": "it", "root": str(root), "train": train, **data}
    tree = {"name": "run", "seed": seed, "data": section, "tokenizer": tokenizer or {}}
    return parse_config(json.dumps(tree), "x.yaml")


def make_data_config(root: Path, train: Any, **data: Any) -> DataConfig:
    return make_config(root, train, **data).data


def pairs_of(root: Path, train: Any, **data: Any) -> list[Pair]:
    """Read `data.train` as the first stage does."""
    section = make_data_config(root, train, **data)
    return [pair for source in section.train for pair in read_pairs(source, section)]


def refusal(path: Path, key: str = "file", **keys: Any) -> str:
    """Return the error of a source with this file or folder, after its path."""
    with pytest.raises(InputError) as caught:
        pairs_of(path.parent, {key: path.name, **keys})
    assert "\n" not in caught.value.message
    return caught.value.message.removeprefix(str(path))


def write_lines(path: Path, lines: Iterable[str]) -> Path:
    path.write_bytes("".join(line + "\n" for line in lines).encode())
    return path


def write_pairs(folder: Path, name: str, pairs: Sequence[Pair]) -> dict[str, str]:
    """Write two aligned files and return a source that names them."""
    write_lines(folder / f"{name}.en", (source for source, _ in pairs))
    write_lines(folder / f"{name}.it", (target for _, target in pairs))
    return {"source": f"{name}.en", "target": f"{name}.it"}


def write_project(folder: Path, pairs: Sequence[Pair], train: str = "{source: a.en, target: a.it}") -> None:
    """Write a.en and a.it, and a.yaml, a configuration that holds out some of the pairs in `train`."""
    write_pairs(folder, "a", pairs)
    (folder / "a.yaml").write_text(
        f"name: a\ndata:\n  source_lang: en\n  target_lang: it\n  train: {train}\n"
        "  valid: {from_train: 50}\n  test: {from_train: 50}\n"
    )


def lines_in(path: Path) -> list[str]:
    """Return the lines of a file without the code under test."""
    *lines, rest = path.read_bytes().split(b"\n")
    assert rest == b"", "the last line has no LF"
    return [line.decode() for line in lines]


def pairs_in(folder: Path) -> list[Pair]:
    """Return the pairs of a cleaned text."""
    return list(zip(lines_in(folder / "train.en"), lines_in(folder / "train.it"), strict=True))


def encode_text(
    folder: Path,
    source: Sequence[str],
    target: Sequence[str],
    tokenizers: TokenizerPair,
    max_length: int | None = None,
    parts: Sequence[tuple[int, Tags]] | None = None,
) -> EncodedCorpus:
    """Encode two aligned texts into `folder / "encoded"`."""
    text = (write_lines(folder / "text.source", source), write_lines(folder / "text.target", target))
    encode_corpus(text, tokenizers, folder / "encoded", "key", max_length, parts)
    return EncodedCorpus.open(folder / "encoded")


def whole_epoch(corpus: TrainingCorpus, epoch: int = 0) -> EncodedCorpus:
    """Return all sentences of an epoch in memory."""
    sentences = corpus.in_epoch(epoch)
    return sentences.select(np.arange(len(sentences)))


def sentence_ids(corpus: Any, side: str, indices: np.ndarray[Any, Any] | None = None) -> list[list[int]]:
    """Return the token ids of some sentences or of all."""
    indices = np.arange(len(corpus)) if indices is None else indices
    return [ids[:n].tolist() for ids, n in zip(*corpus.gather(side, indices), strict=True)]


def plain_text(lines: int = 400) -> list[str]:
    rng = random.Random(1)
    syllables = "ca ra mè no ti lù sto gna per più che".split()
    words = ["".join(rng.choices(syllables, k=rng.randint(1, 4))) for _ in range(300)]
    return [" ".join(rng.choices(words, k=8)).capitalize() + rng.choice([".", "?", " 12!"]) for _ in range(lines)]


def random_lengths(size: int, seed: int = 0) -> tuple[Lengths, Lengths]:
    random = np.random.default_rng(seed)
    source = random.integers(3, 50, size)
    return source, np.maximum(1, source + random.integers(-8, 9, size))


def as_lists(plan: list[Any]) -> list[list[int]]:
    return [batch.tolist() for batch in plan]
