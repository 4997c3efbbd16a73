"""Duplicates are found exactly, whether their hashes fit into memory or not."""

import random
from pathlib import Path

import pytest

from data_helpers import write_lines
from mt.data import duplicates
from mt.data.cleaning import drop_duplicates
from mt.data.duplicates import find_repeated
from mt.data.mixture import MixturePart


@pytest.mark.parametrize("at_once", [1, 7, 100, 5000])
def test_all_but_the_first_of_equal_hashes_are_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at_once: int
) -> None:
    monkeypatch.setattr(duplicates, "_AT_ONCE", at_once)
    rng = random.Random(at_once)
    hashes = [rng.choice([rng.randrange(2**64), rng.randrange(50) << 56, rng.randrange(50)]) for _ in range(1000)]
    repeated = find_repeated(iter(hashes), tmp_path)
    expected = {i for i, value in enumerate(hashes) if value in hashes[:i]}
    assert set(repeated.nonzero()[0].tolist()) == expected
    assert len(expected) > 100
    assert list(tmp_path.iterdir()) == []


def test_no_hashes_have_no_duplicates(tmp_path: Path) -> None:
    assert find_repeated(iter([]), tmp_path).size == 0


@pytest.mark.parametrize("at_once", [3, 1000])
def test_equal_pairs_are_dropped_and_equal_sides_are_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at_once: int
) -> None:
    monkeypatch.setattr(duplicates, "_AT_ONCE", at_once)
    pairs = [("a", "b"), ("a", "c"), ("ab", ""), ("a", "b"), ("", "ab"), ("d", "b"), ("a", "c"), ("a", "b"), ("b", "a")]
    text = tuple(write_lines(tmp_path / name, side) for name, side in zip("xy", zip(*pairs, strict=True), strict=True))
    parts = [MixturePart(4, "de"), MixturePart(0, "de"), MixturePart(5, "de")]
    assert drop_duplicates(text, parts, tmp_path) == [MixturePart(3, "de"), MixturePart(0, "de"), MixturePart(3, "de")]
    remaining = list(zip(*(path.read_text().split("\n")[:-1] for path in text), strict=True))
    assert remaining == [("a", "b"), ("a", "c"), ("ab", ""), ("", "ab"), ("d", "b"), ("b", "a")]
    assert {path.name for path in tmp_path.iterdir()} == {"x", "y"}


def test_equal_pairs_in_two_languages_are_kept(tmp_path: Path) -> None:
    text = (write_lines(tmp_path / "x", ["a"] * 4), write_lines(tmp_path / "y", ["b"] * 4))
    parts = [MixturePart(1, "de"), MixturePart(1, "nl"), MixturePart(2, "de")]
    assert drop_duplicates(text, parts, tmp_path) == [MixturePart(1, "de"), MixturePart(1, "nl"), MixturePart(0, "de")]
    assert text[0].read_text() == "a\na\n"
