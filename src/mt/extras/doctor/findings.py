"""Counts and examples of findings, and the chunks of pairs that worker processes look for them in."""

from collections import Counter, defaultdict
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mt.extras.doctor.characters import excerpt
from mt.extras.doctor.rules import BIT
from mt.extras.doctor.word_hashes import Hashes, Words
from mt.text.languages import base_language

SPLITS = ("train", "valid", "test")

# Hashes of a pair and of its sides; then of their letters alone, where 0 means too few letters to compare.
HASHES = np.dtype([(name, np.uint64) for name in ("pair", "source", "target", "letters", "src_letters", "tgt_letters")])

Masks = NDArray[np.uint64]  # the rules that each of N pairs breaks, a bit each (N,)


def bits(*rules: str) -> np.uint64:
    """Return the bits of different rules, to be looked for or set in the masks of pairs."""
    return np.uint64(sum(BIT[rule] for rule in rules))


@dataclass(frozen=True)
class Location:
    """A sentence to show: where it is, and an excerpt."""

    file: str
    line: int
    text: str


@dataclass(frozen=True)
class Example:
    """An example of a finding; one about a whole text has no locations."""

    split: str
    locations: tuple[Location, ...]
    note: str = ""


class Findings:
    """Counts of findings by rule and split, and the first `max_examples` of each."""

    def __init__(self, max_examples: int) -> None:
        self.max_examples = max_examples
        self.examples: defaultdict[tuple[str, str], list[Example]] = defaultdict(list)  # by rule and split
        self.counts: defaultdict[str, Counter[str]] = defaultdict(Counter)
        self.repairable: Counter[str] = Counter()  # training pairs that a repair would fix, by rule
        self.checked: defaultdict[str, Counter[str]] = defaultdict(Counter)  # of rules applied to a sample

    def wants(self, rule: str, split: str) -> bool:
        return len(self.examples[rule, split]) < self.max_examples

    def show(self, rule: str, *examples: Example) -> None:
        """Add examples up to their limit."""
        for example in examples:
            if self.wants(rule, example.split):
                self.examples[rule, example.split].append(example)

    def add(self, rule: str, example: Example, count: int = 1) -> None:
        """Count a finding, and add its example up to the limit."""
        self.counts[rule][example.split] += count
        self.show(rule, example)

    def examples_of(self, rule: str) -> list[Example]:
        """Return the examples of a rule, those of the training text first."""
        return [example for split in SPLITS for example in self.examples[rule, split]]


@dataclass(frozen=True)
class Criteria:
    """Criteria for pairs of one direction; in a pair of values, the first is the source's."""

    direction: str
    languages: tuple[str, str]
    scripts: tuple[frozenset[str], frozenset[str]]  # empty if unknown
    max_ratio: float | None
    max_length: tuple[int, int]  # tokens, less the language tag of the source
    typical_ratio: tuple[float, float]  # median of the log ratio, and the deviation from which one is unusual
    tokenizers: tuple[Path, Path] | None  # their files
    frequent: tuple[Hashes, Hashes]  # words that a template can have

    @property
    def same_language(self) -> bool:
        """Report whether both sides are variants of a language, as en-GB and en-US, in the same script."""
        return self.scripts[0] == self.scripts[1] and len(set(map(base_language, self.languages))) == 1


@dataclass(frozen=True)
class Chunk:
    """Consecutive raw pairs of one bitext."""

    split: str
    files: tuple[str, str]
    offset: int  # pairs of the split before this chunk
    lines: list[int]  # of each pair
    pairs: list[tuple[str, str]]
    encoding_errors: dict[int, str]  # message for the index of each pair that is not UTF-8
    max_examples: int  # of each rule
    criteria: Criteria

    def example(self, index: int, note: str, side: int | None = None, position: int = 0) -> Example:
        """Return an example that shows a pair, or an excerpt of one side around a position."""
        sides = (0, 1) if side is None else (side,)
        shown = (Location(self.files[s], self.lines[index], excerpt(self.pairs[index][s], position)) for s in sides)
        return Example(self.split, tuple(shown), note)


@dataclass
class ChunkResult:
    """Findings in a chunk of N pairs."""

    masks: Masks
    hashes: NDArray[np.void]  # of dtype `HASHES` (N,)
    words: tuple[Words, Words]  # of N sentences each
    frames: Hashes  # from `frame_hashes` (N,)
    findings: Findings  # without counts, which the masks give
