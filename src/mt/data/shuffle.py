"""The order of a large corpus, a window at a time: memory and the wait for the first batch do not grow with the corpus.

A window is made of blocks of neighbouring sentences, taken from the whole corpus by chance, so that reading them is not
a search all over the disk. A corpus that fits into one window is one, in its own order; what is batched then, and in
which order, is decided in `batching`.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mt.data.mixture import Share

Indices = NDArray[np.int64]

WINDOW = 2**20  # sentences that are sorted by length and shuffled together
BLOCK = 2**8


@dataclass(frozen=True)
class Windows:
    """The windows of one epoch: together every sentence as often as its share says. A pure function of what is given.

    Args:
        shares: what the corpus is made of, in its order.
        seed, epoch: decide which blocks come together, and which are left out of a share.
    """

    shares: tuple[Share, ...]
    seed: int
    epoch: int
    window: int = WINDOW
    block: int = BLOCK

    def __len__(self) -> int:
        if self._in_one():
            return 1
        blocks = sum(whole * units + some for units, whole, some in map(self._units, self.shares))
        return -(-blocks // self._blocks_in_window())

    def indices(self, window: int) -> Indices:
        """The sentences of a window (N,), in ascending order where each comes once."""
        if self._in_one():
            return np.sort(self._starts(1))
        # The whole permutation is drawn again for each window: of 400 million sentences in less than 0.1 s.
        starts = self._starts(self.block)
        size = self._blocks_in_window()
        chosen = self._random(_PERMUTATION).permutation(len(starts))[window * size : (window + 1) * size]
        starts = np.sort(starts[chosen])
        indices = (starts[:, None] + np.arange(self.block)).ravel()
        # The last block of a share is shorter than the others, where the next share begins.
        ends = np.cumsum([share.sentences for share in self.shares])
        last = np.repeat(ends[np.searchsorted(ends, starts, side="right")], self.block)
        return indices[indices < last]

    def _in_one(self) -> bool:
        return sum(share.sentences * share.times for share in self.shares) <= self.window

    def _blocks_in_window(self) -> int:
        return self.window // self.block

    def _units(self, share: Share, size: int | None = None) -> tuple[int, int, int]:
        """Blocks in a share, how often all of them come, and how many come once more."""
        units = -(-share.sentences // (size or self.block))
        whole = int(share.times)
        some = round(units * (share.times - whole))
        return units, whole, some if whole or some else min(units, 1)

    def _starts(self, size: int) -> Indices:
        """Where the blocks of the epoch begin, share by share."""
        starts, first = [], 0
        for number, share in enumerate(self.shares):
            units, whole, some = self._units(share, size)
            drawn = self._random(_SELECTION, number).permutation(units)[:some] if some else np.arange(0)
            starts += [first + size * np.tile(np.arange(units), whole), first + size * drawn]
            first += share.sentences
        return np.concatenate(starts)

    def _random(self, *purpose: int) -> np.random.Generator:
        return np.random.Generator(np.random.PCG64([self.seed, self.epoch, *purpose]))


# These keep the random numbers apart from those of a window's batches.
_PERMUTATION = 2**32 - 1
_SELECTION = 2**32 - 2
