"""Shuffled windows of a large corpus: memory and the time to the first batch do not grow with the corpus.

A window consists of randomly chosen blocks of consecutive sentences, so that the disk is read in runs. A corpus that
fits into one window keeps its order; `batching` shuffles within a window.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from mt.data.mixture import Share
from mt.data.ragged import Indices

WINDOW = 2**20  # sentences that are sorted by length and shuffled together
BLOCK = 2**8
# Keys of random streams that no window's number equals.
_PERMUTATION = 2**32 - 1
_SELECTION = 2**32 - 2
_ROUNDING = 2**32 - 3


@dataclass(frozen=True)
class ShuffledWindows:
    """The windows of one epoch, which together have every sentence as often as its share repeats it.

    Args:
        shares: the corpus, in its order.
        seed, epoch: seed the choice of blocks.
    """

    shares: tuple[Share, ...]
    seed: int
    epoch: int
    window: int = WINDOW
    block: int = BLOCK

    def __len__(self) -> int:
        return self._number

    @cached_property
    def _number(self) -> int:  # cached, since each training step asks for the length
        if self._is_single:
            return 1
        counts = (self._units(number, self.block) for number in range(len(self.shares)))
        blocks = sum(units * full + extra for units, full, extra in counts)
        return -(-blocks // (self.window // self.block))

    def indices(self, window: int) -> Indices:
        """Return the sentences of a window (N,), in ascending order."""
        if self._is_single:
            return np.sort(self._starts(1))
        # The whole permutation is drawn again for each window: for 400 million sentences in less than 0.1 s.
        starts = self._starts(self.block)
        size = self.window // self.block
        chosen = self._random(_PERMUTATION).permutation(len(starts))[window * size : (window + 1) * size]
        starts = np.sort(starts[chosen])
        indices = (starts[:, None] + np.arange(self.block)).ravel()
        # The last block of a share is cut off where the next share begins.
        ends = np.cumsum([share.sentences for share in self.shares])
        end = np.repeat(ends[np.searchsorted(ends, starts, side="right")], self.block)
        return indices[indices < end]

    @cached_property
    def _is_single(self) -> bool:
        return sum(share.sentences * share.repeats for share in self.shares) <= self.window

    def _starts(self, size: int) -> Indices:
        """Return the first sentence of each of the epoch's blocks, share by share."""
        starts, first = [], 0
        for number, share in enumerate(self.shares):
            units, full, extra = self._units(number, size)
            drawn = self._random(_SELECTION, number).permutation(units)[:extra] if extra else np.arange(0)
            starts += [first + size * np.tile(np.arange(units), full), first + size * drawn]
            first += share.sentences
        return np.concatenate(starts)

    def _units(self, number: int, size: int) -> tuple[int, int, int]:
        """Return a share's number of blocks, how often all of them are repeated, and how many are once more."""
        share = self.shares[number]
        units, full = -(-share.sentences // size), int(share.repeats)
        exact = units * (share.repeats - full)
        if self._is_single:
            extra = round(exact)
            return units, full, extra if full or extra else min(units, 1)
        # Rounded at random: over many epochs even a share of a block or two is repeated as often as it should be.
        return units, full, int(exact) + int(self._random(_ROUNDING, number).random() < exact % 1)

    def _random(self, *purpose: int) -> np.random.Generator:
        return np.random.Generator(np.random.PCG64([self.seed, self.epoch, *purpose]))


def hash_indices(indices: Indices, key: np.uint64) -> NDArray[np.uint64]:
    """Hash the indices of sentences (N,) with SplitMix64 (Steele et al. 2014), so that no list of draws is stored."""
    return mixed(indices.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15) + key)


def mixed(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Spread every bit over all others (the finalizer of SplitMix64)."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))
