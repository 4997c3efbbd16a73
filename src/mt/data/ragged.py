"""Rows of different lengths as one array, and operations on all of them at once.

N rows, P pairs of a source and a target value in one row
"""

import mmap
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Indices = NDArray[np.int64]
Lengths = NDArray[np.int64]

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


def distinct(values: Array) -> Array:
    """Return the distinct values in ascending order; np.unique hashes, which takes longer here."""
    values = np.sort(values)
    differs: Array = np.append(True, values[1:] != values[:-1])[: len(values)]
    return values[differs]


def indexed(blocks: Iterable[tuple[Array, Array]]) -> tuple[Array, list[tuple[Array, Array]]]:
    """Return the distinct values of blocks in ascending order, and the blocks with each value's index among them.

    The second array of a block stays as it is. Meanwhile each block has a value only once, to save memory.
    """
    coded = []
    for values, other in blocks:
        unique, inverse = np.unique(values, return_inverse=True)
        coded.append((unique, inverse.astype(np.int32), other))
    merged = distinct(np.concatenate([unique for unique, _, _ in coded]))
    return merged, [
        (np.searchsorted(merged, unique).astype(np.int32)[inverse], other) for unique, inverse, other in coded
    ]


def top_of_each(groups: Array, scores: Array, most: int) -> Indices:
    """Return the positions of the `most` highest scores of each group, by group and from high to low."""
    order = np.lexsort((-scores, groups))
    groups = groups[order]
    return order[np.arange(len(order)) - np.searchsorted(groups, groups) < most]


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
