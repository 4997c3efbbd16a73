"""DuplicateFinder are found exactly, whether their hashes fit into memory or not."""

import random
from contextlib import closing
from pathlib import Path

import pytest

from data_helpers import write_lines
from mt.data import cleaning
from mt.data.cleaning import drop_duplicates
from mt.data.duplicates import DuplicateFinder
from mt.data.mixture import MixturePart


@pytest.mark.parametrize("at_once", [1, 7, 100, 5000])
def test_the_first_of_equal_hashes_stays(tmp_path: Path, at_once: int) -> None:
    rng = random.Random(at_once)
    hashes = [rng.choice([rng.randrange(2**64), rng.randrange(50) << 56, rng.randrange(50)]) for _ in range(1000)]
    with closing(DuplicateFinder(tmp_path, at_once)) as duplicates:
        for value in hashes:
            duplicates.add(value)
        later = duplicates.repeated()
    expected = {place for place, value in enumerate(hashes) if value in hashes[:place]}
    assert {place for place in range(1000) if place in later} == expected
    assert later.count == len(expected) > 100
    assert list(tmp_path.iterdir()) == []


def test_nothing_has_no_duplicates(tmp_path: Path) -> None:
    with closing(DuplicateFinder(tmp_path)) as duplicates:
        assert duplicates.repeated().count == 0


@pytest.mark.parametrize("at_once", [3, 1000])
def test_equal_pairs_leave_the_text_and_equal_sides_do_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at_once: int
) -> None:
    monkeypatch.setattr(cleaning, "DuplicateFinder", lambda folder: DuplicateFinder(folder, at_once))
    pairs = [("a", "b"), ("a", "c"), ("ab", ""), ("a", "b"), ("", "ab"), ("d", "b"), ("a", "c"), ("a", "b"), ("b", "a")]
    text = tuple(write_lines(tmp_path / name, side) for name, side in zip("xy", zip(*pairs, strict=True), strict=True))
    parts = [MixturePart(4, "de"), MixturePart(0, "de"), MixturePart(5, "de")]
    assert drop_duplicates(text, parts, tmp_path) == [MixturePart(3, "de"), MixturePart(0, "de"), MixturePart(3, "de")]
    left = list(zip(*(path.read_text().split("\n")[:-1] for path in text), strict=True))
    assert left == [("a", "b"), ("a", "c"), ("ab", ""), ("", "ab"), ("d", "b"), ("b", "a")]
    assert {path.name for path in tmp_path.iterdir()} == {"x", "y"}


def test_equal_pairs_in_two_languages_both_stay(tmp_path: Path) -> None:
    text = (write_lines(tmp_path / "x", ["a"] * 4), write_lines(tmp_path / "y", ["b"] * 4))
    parts = [MixturePart(1, "de"), MixturePart(1, "nl"), MixturePart(2, "de")]
    assert drop_duplicates(text, parts, tmp_path) == [MixturePart(1, "de"), MixturePart(1, "nl"), MixturePart(0, "de")]
    assert text[0].read_text() == "a\na\n"
