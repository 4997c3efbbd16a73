"""Pairs on their way through the doctor: what goes to a process that judges them, and what comes back."""

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mt.extras.doctor.characters import excerpt

# Of each pair: equal pairs, source or target sentences have equal hashes; then the same of their letters alone, where 0
# stands for too few letters to tell anything.
HASHES = np.dtype([(name, np.uint64) for name in ("pair", "source", "target", "letters", "src_letters", "tgt_letters")])


@dataclass(frozen=True)
class Place:
    """A sentence as an example shows it: where it stands, and how it looks."""

    file: str
    line: int
    text: str


@dataclass(frozen=True)
class Example:
    """Where something was found; a whole text has no places."""

    split: str
    places: tuple[Place, ...]
    note: str = ""


@dataclass
class Examples:
    """The first few examples of each kind of finding in each split."""

    wanted: int
    by_kind: dict[str, dict[str, list[Example]]] = field(default_factory=dict)

    def wants(self, kind: str, split: str) -> bool:
        return len(self.by_kind.get(kind, {}).get(split, ())) < self.wanted

    def add(self, kind: str, *examples: Example) -> None:
        """Takes as many as are still wanted."""
        for example in examples:
            if self.wants(kind, example.split):
                self.by_kind.setdefault(kind, {}).setdefault(example.split, []).append(example)

    def of(self, kind: str) -> list[Example]:
        """Those of the training text first."""
        by_split = self.by_kind.get(kind, {})
        return [example for split in ("train", "valid", "test") for example in by_split.get(split, ())]


@dataclass(frozen=True)
class Yardstick:
    """What the pairs of one target language are measured with.

    Attributes:
        languages: of the source and the target.
        scripts: what these are written in; none where that is unknown.
        max_ratio: of the configuration.
        max_length: of the configuration, without a tag that the source begins with.
        ratio: the usual logarithm of the length ratio, and how far from it is unusual.
        tokenizers: files of the two sides; None where there are none.
        detectable: whether the languages can be told from others.
    """

    languages: tuple[str, str]
    scripts: tuple[frozenset[str], frozenset[str]]
    max_ratio: float | None
    max_length: tuple[int, int]
    ratio: tuple[float, float]
    tokenizers: tuple[Path, Path] | None
    detectable: tuple[bool, bool]


@dataclass(frozen=True)
class Chunk:
    """Neighbouring pairs of one source.

    Attributes:
        split: train, valid or test.
        files: the names of the two sides.
        first: how many pairs of the split come before.
        lines: where they stand.
        pairs: as they are written.
        unreadable: those that are not UTF-8, counted from 0, and why.
        every: of so many pairs one is looked at by what takes long.
        examples: how many are wanted of each kind.
        yardstick: what to measure them with.
    """

    split: str
    files: tuple[str, str]
    first: int
    lines: list[int]
    pairs: list[tuple[str, str]]
    unreadable: dict[int, str]
    every: int
    examples: int
    yardstick: Yardstick

    def example(self, number: int, note: str = "", side: int | None = None, place: int = 0) -> Example:
        """One of the pairs to show, or a side of it around a place."""
        sides = (0, 1) if side is None else (side,)
        places = (Place(self.files[s], self.lines[number], excerpt(self.pairs[number][s], place)) for s in sides)
        return Example(self.split, tuple(places), note)


@dataclass
class Judged:
    """What was found in a chunk of N pairs.

    Attributes:
        masks: bits of kinds (N,).
        hashes: of type `HASHES` (N,).
        examples: a few of each kind.
        sampled: pairs that were looked at by what takes long.
    """

    masks: NDArray[np.uint64]
    hashes: NDArray[np.void]
    examples: Examples
    sampled: int = 0
