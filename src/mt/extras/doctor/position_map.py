"""Density of the evidence and length ratio of a training text by position, in memory of a fixed size.

N pairs   C columns, each a part of the text   B bins of a value
"""

from dataclasses import dataclass, field
from math import log

import numpy as np
from numpy.typing import NDArray

from mt.data.lexicon import Array
from mt.extras.doctor.misalignment import Block

MAX_COLUMNS, BINS = 480, 40
# The range of each value that the bins cover (evidence in nats); what is beyond counts for the first or last bin.
_RANGES = {"evidence": (-12.0, 12.0), "length ratio": (-log(4), log(4))}


@dataclass
class PositionMap:
    """Counts of a training text's pairs by position and value, (B, C) for each, and its blocks out of step."""

    pairs: int
    blocks: list[Block] = field(default_factory=list)
    counts: dict[str, NDArray[np.int64]] = field(default_factory=dict)

    @property
    def n_columns(self) -> int:
        return min(MAX_COLUMNS, self.pairs)

    def add(self, start: int, evidence: Array, log_ratio: Array) -> None:
        """Count the pairs from `start` on by their values, both (N,)."""
        for (name, limits), values in zip(_RANGES.items(), (evidence, log_ratio), strict=True):
            self.counts[name] = self.counts.get(name, 0) + self.density(start, values, *limits)

    def merge(self, other: "PositionMap") -> None:
        """Add the counts of other pairs of the same text."""
        for name, counts in other.counts.items():
            self.counts[name] = self.counts.get(name, 0) + counts

    def density(self, start: int, values: Array, low: float, high: float) -> NDArray[np.int64]:
        """Count values (N,) of the pairs from `start` on by bin and column (B, C); NaN is left out."""
        columns = np.arange(start, start + len(values)) * self.n_columns // self.pairs
        known = ~np.isnan(values)
        bins = ((values[known] - low) / (high - low) * BINS).clip(0, BINS - 1).astype(np.int64)
        counts = np.bincount(bins * self.n_columns + columns[known], minlength=BINS * self.n_columns)
        return counts.reshape(BINS, self.n_columns)
