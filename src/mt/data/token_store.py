"""Memory-mapped token ids: training needs no memory for its corpus.

B, N sentences, L tokens, P pairs of a source and a target value in one row
"""

import mmap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mt.data.sentence_format import SOURCE_FORMATS, framed

Array = NDArray[Any]
Ids = Array  # uint16 or uint32
Indices = NDArray[np.int64]
Lengths = NDArray[np.int64]

SIDES = ("source", "target")

_ROWS_AT_ONCE = 2**12  # rows that are copied before their pages are released


class Ragged(NamedTuple):
    """Rows of different lengths: their values, row after row, and where each begins and the last ends (N + 1,)."""

    values: NDArray[Any]
    starts: Lengths

    def select(self, rows: Indices) -> "Ragged":
        """Copy some rows, in the given order.

        Mapped pages count as memory of this process, together with those that the system reads ahead; they are
        released while copying.
        """
        copies, sizes = [np.zeros(0, self.values.dtype)], [np.zeros(1, np.int64)]
        for first in range(0, len(rows), _ROWS_AT_ONCE):
            chunk = rows[first : first + _ROWS_AT_ONCE]
            starts = self.starts[chunk]
            sizes.append(self.starts[chunk + 1] - starts)
            copies.append(self.values[ranges(starts, sizes[-1])])
            for array in self if hasattr(mmap, "MADV_DONTNEED") else ():  # not on Windows
                if (mapping := getattr(array, "_mmap", None)) is not None:
                    mapping.madvise(mmap.MADV_DONTNEED)
        return Ragged(np.concatenate(copies), np.cumsum(np.concatenate(sizes)))

    def followed_by(self, other: "Ragged") -> "Ragged":
        """Append the rows of another to these; the first row of each begins at 0."""
        starts = np.concatenate([self.starts, len(self.values) + other.starts[1:]])
        return Ragged(np.concatenate([self.values, other.values]), starts)


def sentence_tokens(n_source: Any, n_target: Any, source_format: str = SOURCE_FORMATS[0]) -> tuple[Any, Any]:
    """Return lengths as the model sees them: a `framed` source, and `<s> target` in or `target </s>` out."""
    return n_source + len(framed([], source_format)), n_target + 1


def most_ids(max_length: int, source_format: str) -> tuple[int, int]:
    """Return how many ids of a source and of a target fit into `max_length` tokens, specials included."""
    n_source, n_target = sentence_tokens(0, 0, source_format)
    return max_length - n_source, max_length - n_target


@dataclass(frozen=True, eq=False)
class EncodedCorpus:
    """A parallel corpus as token ids.

    Attributes:
        sides: the ids of all sentences, by side.
        source_format: the special tokens around a source.
    """

    sides: dict[str, Ragged]
    source_format: str = SOURCE_FORMATS[0]

    @classmethod
    def open(cls, folder: Path, source_format: str = SOURCE_FORMATS[0]) -> "EncodedCorpus":
        """Map a folder that `encode_corpus` wrote."""
        sides = {}
        for side in SIDES:
            path = next(folder.glob(f"{side}_tokens.uint*"))
            dtype = np.dtype(path.suffix[1:])
            # An empty file cannot be mapped.
            tokens = np.memmap(path, dtype=dtype, mode="r") if path.stat().st_size else np.zeros(1, dtype)
            sides[side] = Ragged(tokens, np.load(folder / f"{side}_starts.npy", mmap_mode="r"))
        return cls(sides, source_format)

    def in_epoch(self, epoch: int) -> "EncodedCorpus":
        """Return the corpus itself: every epoch has the same tokens."""
        return self

    def __len__(self) -> int:
        return len(self.sides["source"].starts) - 1

    def lengths(self, indices: Indices | None = None) -> tuple[Lengths, Lengths]:
        """Return source and target tokens (N,), specials included, of some sentences or of all."""
        n_source, n_target = (
            np.diff(starts) if indices is None else starts[indices + 1] - starts[indices]
            for starts in (self.sides[side].starts for side in SIDES)
        )
        return sentence_tokens(n_source, n_target, self.source_format)

    def begin_with(self, ids: Sequence[int]) -> NDArray[np.bool_]:
        """Return which sources (N,) begin with some ids."""
        tokens, starts = self.sides["source"]
        matches = np.diff(starts) >= len(ids)
        for place, number in enumerate(ids):
            matches[matches] = tokens[starts[:-1][matches] + place] == number
        return matches

    def select(self, indices: Indices) -> "EncodedCorpus":
        """Copy some sentences into memory, in the given order."""
        return EncodedCorpus({side: rows.select(indices) for side, rows in self.sides.items()}, self.source_format)

    def gather(self, side: str, indices: Indices) -> tuple[Ids, Lengths]:
        """Return ids (B, L), arbitrary beyond a sentence's end, and lengths (B,) without specials."""
        tokens, starts = self.sides[side]
        firsts = starts[indices]
        lengths = starts[indices + 1] - firsts
        positions = firsts[:, None] + np.arange(lengths.max(initial=0))
        return tokens[np.minimum(positions, len(tokens) - 1)], lengths


def distinct(values: Array) -> Array:
    """Return the distinct values, none negative, in ascending order; np.unique hashes, which takes longer here."""
    values = np.sort(values)
    return values[np.diff(values, prepend=-1) > 0]


def positions_in(values: Array, among: Array) -> Indices:
    """Return the position of each value in an array in ascending order, or -1."""
    if not len(among):
        return np.full(len(values), -1)
    positions = np.minimum(np.searchsorted(among, values), len(among) - 1)
    return np.where(among[positions] == values, positions, -1)


def row_sums(values: Array, starts: Lengths) -> Array:
    """Return the sum of the values of each row (N,), modulo 2**64 for unsigned ones."""
    totals = np.concatenate([np.zeros(1, values.dtype), np.cumsum(values)])
    return np.diff(totals[starts])


def ranges(starts: NDArray[np.int64], sizes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Concatenate the integer ranges of the given starts and sizes."""
    numbers: NDArray[np.int64] = np.arange(sizes.sum()) + np.repeat(starts - np.cumsum(sizes) + sizes, sizes)
    return numbers


def value_pairs(source: Ragged, target: Ragged) -> tuple[Indices, Indices]:
    """Pair each source value with each target value of the same row; return the positions of both values (P,).

    The order is by row, then by target value. The first row of `target` begins at 0.
    """
    n_source, n_target = np.diff(source.starts), np.diff(target.starts)
    partners = np.repeat(n_source, n_target)  # of each target value
    return ranges(np.repeat(source.starts[:-1], n_target), partners), np.repeat(np.arange(len(partners)), partners)


def blocks(costs: Lengths, most: int) -> list[Indices]:
    """Split rows of the given costs into consecutive blocks that cost about `most` each."""
    return np.split(np.arange(len(costs)), np.flatnonzero(np.diff(np.cumsum(costs) // most)) + 1)
