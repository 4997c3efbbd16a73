"""Chunks of pairs, the criteria to check them by, and the results of a worker process."""

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mt.extras.doctor.characters import excerpt
from mt.extras.doctor.examples import Example, Examples, Location
from mt.extras.doctor.word_hashes import Hashes, Words
from mt.text.languages import base_language

# Hashes of a pair and of its sides; then of their letters alone, where 0 means too few letters to compare.
HASHES = np.dtype([(name, np.uint64) for name in ("pair", "source", "target", "letters", "src_letters", "tgt_letters")])


@dataclass(frozen=True)
class Criteria:
    """Criteria for pairs of one direction; of two values, the first is the source's."""

    direction: str
    languages: tuple[str, str]
    scripts: tuple[frozenset[str], frozenset[str]]  # empty if unknown
    max_ratio: float | None
    max_length: tuple[int, int]  # tokens, less the language tag of the source
    typical_ratio: tuple[float, float]  # median of the log ratio, and the deviation from which one is unusual
    tokenizers: tuple[Path, Path] | None  # their files
    detectable: tuple[bool, bool]  # whether the language can be detected
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

    def example(self, index: int, note: str = "", side: int | None = None, position: int = 0) -> Example:
        """Return an example that shows a pair, or an excerpt of one side around a position."""
        sides = (0, 1) if side is None else (side,)
        shown = (Location(self.files[s], self.lines[index], excerpt(self.pairs[index][s], position)) for s in sides)
        return Example(self.split, tuple(shown), note)


@dataclass
class ChunkResult:
    """Findings in a chunk of N pairs."""

    masks: NDArray[np.uint64]  # rule bits (N,)
    hashes: NDArray[np.void]  # of dtype `HASHES` (N,)
    words: tuple[Words, Words]  # of N sentences each
    frames: Hashes  # of the templates that pairs could belong to, or 0 (N,)
    examples: Examples
    repairable: Counter[str] = field(default_factory=Counter)  # pairs by rule that a repair would do away with
