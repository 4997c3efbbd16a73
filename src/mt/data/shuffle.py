"""Shuffled windows of a large corpus: memory and the time to the first batch do not grow with the corpus.

A window consists of randomly chosen blocks of consecutive sentences, so that the disk is read in runs; blocks of one
sentence where one window is enough. A window keeps the corpus's order: `batching` shuffles it.
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

    The shares are the corpus, in its order; seed and epoch decide which blocks a window has.
    """

    shares: tuple[Share, ...]
    seed: int
    epoch: int
    window: int = WINDOW
    block: int = BLOCK

    @cached_property
    def _is_single(self) -> bool:
        return sum(share.sentences * share.repeats for share in self.shares) <= self.window

    @cached_property
    def _block_size(self) -> int:
        return 1 if self._is_single else self.block

    def __len__(self) -> int:
        return self._number

    @cached_property
    def _number(self) -> int:  # cached, since each training step asks for the length
        counts = map(self._counts, range(len(self.shares)))
        return -(-sum(blocks * full + extra for blocks, full, extra in counts) // (self.window // self._block_size))

    def indices(self, window: int) -> Indices:
        """Return the sentences of a window (N,), in ascending order."""
        starts, size = self._starts(), self.window // self._block_size
        # The whole permutation is drawn again for each window: for 400 million sentences in less than 0.1 s.
        chosen = self._random(_PERMUTATION).permutation(len(starts))[window * size : (window + 1) * size]
        starts = np.sort(starts[chosen])
        indices = (starts[:, None] + np.arange(self._block_size)).ravel()
        # The last block of a share is cut off where the next share begins.
        ends = np.cumsum([share.sentences for share in self.shares])
        end = np.repeat(ends[np.searchsorted(ends, starts, side="right")], self._block_size)
        return indices[indices < end]

    def _starts(self) -> Indices:
        """Return the first sentence of each of the epoch's blocks, share by share."""
        starts, first = [], 0
        for number, share in enumerate(self.shares):
            blocks, full, extra = self._counts(number)
            drawn = self._random(_SELECTION, number).permutation(blocks)[:extra]
            starts.append(first + self._block_size * np.append(np.tile(np.arange(blocks), full), drawn))
            first += share.sentences
        return np.concatenate(starts)

    def _counts(self, number: int) -> tuple[int, int, int]:
        """Return a share's number of blocks, how often all of them are repeated, and how many are once more."""
        share = self.shares[number]
        blocks, full = -(-share.sentences // self._block_size), int(share.repeats)
        exact = blocks * (share.repeats - full)
        if self._is_single:
            extra = round(exact)
            return blocks, full, extra if full or extra else min(blocks, 1)
        # Rounded at random: over many epochs even a share of a block or two is repeated as often as it should be.
        return blocks, full, int(exact) + int(self._random(_ROUNDING, number).random() < exact % 1)

    def _random(self, *purpose: int) -> np.random.Generator:
        return np.random.Generator(np.random.PCG64([self.seed, self.epoch, *purpose]))


def draw_bits(indices: Indices, *seeds: int, number: int = 0) -> NDArray[np.uint64]:
    """Draw 64 random bits for each sentence (N,): a hash of its index, the seeds, and the number of the draw.

    With SplitMix64 (Steele et al. 2014), the bits of some sentences do not depend on which others are drawn.
    """
    key = np.random.SeedSequence(seeds).generate_state(number + 1, np.uint64)[number]
    return mixed(indices.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15) + key)


def mixed(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Spread every bit over all others (the finalizer of SplitMix64)."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))
