"""Chunks of pairs, the criteria to check them by, and the results of a worker process."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mt.extras.doctor.characters import excerpt
from mt.extras.doctor.examples import Example, Examples, Location

# Hashes of a pair and of its sides; then of their letters alone, where 0 means too few letters to compare.
HASHES = np.dtype([(name, np.uint64) for name in ("pair", "source", "target", "letters", "src_letters", "tgt_letters")])


@dataclass(frozen=True)
class Criteria:
    """Criteria for pairs of one target language.

    Attributes:
        languages: of the source and the target.
        scripts: of each side; empty if unknown.
        max_ratio: data.max_ratio.
        max_length: data.max_length, less the language tag of the source.
        typical_ratio: median of the log length ratio, and the deviation from which a ratio is unusual.
        tokenizers: files of the two sides, if any.
        detectable: whether the language of each side can be detected.
    """

    languages: tuple[str, str]
    scripts: tuple[frozenset[str], frozenset[str]]
    max_ratio: float | None
    max_length: tuple[int, int]
    typical_ratio: tuple[float, float]
    tokenizers: tuple[Path, Path] | None
    detectable: tuple[bool, bool]


@dataclass(frozen=True)
class Chunk:
    """Consecutive raw pairs of one bitext.

    Attributes:
        split: train, valid or test.
        files: names of the two sides.
        offset: pairs of the split before this chunk.
        lines: line number of each pair.
        encoding_errors: index and message of each pair that is not UTF-8.
        stride: the language of every n-th pair is detected.
        max_examples: to keep of each rule.
    """

    split: str
    files: tuple[str, str]
    offset: int
    lines: list[int]
    pairs: list[tuple[str, str]]
    encoding_errors: dict[int, str]
    stride: int
    max_examples: int
    criteria: Criteria

    def example(self, index: int, note: str = "", side: int | None = None, position: int = 0) -> Example:
        """Return an example that shows a pair, or an excerpt of one side around a position."""
        sides = (0, 1) if side is None else (side,)
        shown = (Location(self.files[s], self.lines[index], excerpt(self.pairs[index][s], position)) for s in sides)
        return Example(self.split, tuple(shown), note)


@dataclass
class ChunkResult:
    """Findings in a chunk of N pairs.

    Attributes:
        masks: rule bits (N,).
        hashes: of dtype `HASHES` (N,).
        sampled: number of pairs whose language was to be detected.
    """

    masks: NDArray[np.uint64]
    hashes: NDArray[np.void]
    examples: Examples
    sampled: int = 0
