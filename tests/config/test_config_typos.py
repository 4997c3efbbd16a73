"""Mistyped keys of the configuration get the right suggestion."""

import re
from collections.abc import Iterator
from itertools import cycle
from typing import Any

import pytest

from config_helpers import SECTIONS, configured, messages, smallest
from mt.config import Config


def one_edit_typos(word: str) -> Iterator[str]:
    """Yield a letter too many, a wrong one, one too few and two swapped at each place."""
    for i, (more, other) in enumerate(zip(cycle("aeistx_2"), cycle("2_xtsiea"), strict=False)):
        if i > len(word):
            return
        yield word[:i] + more + word[i:]
        yield word[:i] + other + word[i + 1 :]
        yield word[:i] + word[i + 1 :]
        yield word[:i] + word[i + 1 : i + 2] + word[i : i + 1] + word[i + 2 :]


def suggested(tree: dict[str, Any]) -> list[str]:
    (message,) = messages(tree)
    found = re.search(r"unknown key; did you mean (.*)\?$", message)
    assert found, message
    return found.group(1).split(" or ")


@pytest.mark.parametrize("name", Config.model_fields)
def test_every_typo_in_a_top_level_key(name: str) -> None:
    for typo in {*one_edit_typos(name), name.upper()} - {*Config.model_fields, ""}:
        tree = {"model": {}, "seed": 1, **smallest()}
        tree[typo] = tree.pop(name, {})
        assert name in suggested(tree)


@pytest.mark.parametrize(
    ("section", "key"), [(name, key) for name, section in SECTIONS.items() for key in section.model_fields]
)
def test_every_typo_in_a_key_of_a_section(section: str, key: str) -> None:
    known = SECTIONS[section].model_fields
    edited = one_edit_typos(key) if len(key) > 4 else ()  # one edit of a shorter key leaves too little
    for typo in {*edited, key.replace("_", "-"), key.title()} - set(known):
        tree = configured(section)
        tree[section][typo] = tree[section].pop(key, 1)
        assert key in suggested(tree)


SOURCES: list[tuple[str, dict[str, Any]]] = [
    ("train", {"source": "a", "target": "b"}),
    ("train", {"file": "a.tsv", "source_column": "s", "target_column": "t"}),
    ("test", {"hub": "a", "config": "c", "split": "s", "revision": "r", "source_column": "s", "target_column": "t"}),
    ("test", {"builtin": "phrasebook", "split": "test"}),
    ("valid", {"from_train": 5}),
]


@pytest.mark.parametrize(("part", "source", "key"), [(part, source, key) for part, source in SOURCES for key in source])
def test_every_typo_in_a_key_of_a_source(part: str, source: dict[str, Any], key: str) -> None:
    for typo in {*one_edit_typos(key), key.upper()} - {*source}:
        mistyped = {typo if name == key else name: value for name, value in source.items()}
        assert suggested(configured("data", **{part: mistyped})) == [key]
        if "from_train" not in source:
            assert suggested(configured("data", **{part: [source, mistyped]})) == [key]


@pytest.mark.parametrize(
    ("section", "key", "meant"),
    [
        ("model", "max_tokens", "training.max_tokens"),
        ("data", "min_length", "decoding.min_length"),
        ("training", "dropout", "model.dropout"),
        ("training", "vocab_sise", "tokenizer.vocab_size"),
        ("training", "epochs", "max_epochs"),
        ("training", "steps", "max_steps"),
        ("data", "target", "target_lang"),
        ("model", "epochs", "training.max_epochs"),
        ("model", "layers", "encoder_layers or decoder_layers"),
        ("training", "learningrates", "learning_rate"),
        ("training", "lr", "learning_rate"),
        ("decoding", "lp", "length_penalty"),
    ],
)
def test_keys_are_suggested_across_sections(section: str, key: str, meant: str) -> None:
    assert messages(configured(section, **{key: 1})) == [f"{section}.{key}: unknown key; did you mean {meant}?"]


def test_typos_in_layers_to_start_from() -> None:
    assert suggested(configured("training", init_layers={"encoders": [0]})) == ["encoder"]


def test_unknown_keys_unlike_any_in_their_section() -> None:
    assert suggested({**smallest(), "beam_size": 4}) == ["decoding.beam_size"]
    assert messages(configured("tokenizer", zzz=1)) == [
        "tokenizer.zzz: unknown key; known here: type, file, source_file, target_file, vocab_size, shared, "
        "train_pairs, bpe_dropout, sampling_alpha"
    ]


def test_a_key_that_looks_like_an_internal_tag() -> None:
    assert messages(configured("training", **{"<file>": 1}))[0].startswith("training.<file>: unknown key")
    (message,) = messages(configured("data", train={"source": "a", "target": "b", "<source>": 1}))
    assert message.startswith("data.train.<source>: unknown key")
