"""Density of a training text's evidence and length ratio by position, in memory of a fixed size.

N pairs   C columns (positions in the text)   B bins of a value
"""

from dataclasses import dataclass, field
from math import log

import numpy as np
from numpy.typing import NDArray

from mt.extras.doctor.lexicon import Array
from mt.extras.doctor.misalignment import Block

MAX_COLUMNS, BINS = 720, 40
# Name of a value, and the range that the bins cover (evidence: nats); what is beyond counts for the first or the last bin.
RANGES = {"evidence": (-12.0, 12.0), "length ratio": (-log(4), log(4))}


def density(values: Array, columns: Array, n_columns: int, low: float, high: float) -> NDArray[np.int64]:
    """Count values (N,), each in its column (N,), by bin and column (B, C); NaN is left out."""
    known = ~np.isnan(values)
    bins = ((values[known] - low) / (high - low) * BINS).clip(0, BINS - 1).astype(np.int64)
    return np.bincount(bins * n_columns + columns[known], minlength=BINS * n_columns).reshape(BINS, n_columns)


@dataclass
class PositionMap:
    """Counts of a training text's pairs by position and value.

    Attributes:
        pairs: in the text.
        blocks: of pairs that are out of step.
        counts: (B, C) for each name of `RANGES`.
    """

    pairs: int
    blocks: list[Block] = field(default_factory=list)
    counts: dict[str, NDArray[np.int64]] = field(default_factory=dict)

    @property
    def n_columns(self) -> int:
        return min(MAX_COLUMNS, self.pairs)

    def columns(self, start: int, end: int) -> NDArray[np.int64]:
        """Return the column of each pair from `start` to `end`."""
        return np.arange(start, end) * self.n_columns // max(self.pairs, 1)

    def add(self, start: int, *values: Array) -> None:
        """Count the pairs from `start` on by their values, (N,) each, in the order of `RANGES`."""
        columns = self.columns(start, start + len(values[0]))
        for (name, limits), numbers in zip(RANGES.items(), values, strict=True):
            counts = density(numbers, columns, self.n_columns, *limits)
            self.counts[name] = self.counts[name] + counts if name in self.counts else counts
