"""The order of a large corpus, a window at a time: memory and the wait for the first batch do not grow with the corpus.

A window is made of blocks of neighbouring sentences, taken from the whole corpus by chance, so that reading them is not
a search all over the disk. A corpus that fits into one window is one, in its own order; what is batched then, and in
which order, is decided in `batching`.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Indices = NDArray[np.int64]

WINDOW = 2**20  # sentences that are sorted by length and shuffled together
BLOCK = 2**8


@dataclass(frozen=True)
class Windows:
    """The windows of one epoch: together every sentence once. A pure function of what is given.

    Args:
        sentences: how many the corpus has.
        seed, epoch: decide which blocks come together.
    """

    sentences: int
    seed: int
    epoch: int
    window: int = WINDOW
    block: int = BLOCK

    def __len__(self) -> int:
        return max(1, -(-self.sentences // self.window))

    def indices(self, window: int) -> Indices:
        """The sentences of a window, in ascending order (N,)."""
        if len(self) == 1:
            return np.arange(self.sentences)
        # The whole permutation is drawn again for each window: of 400 million sentences in less than 0.1 s.
        random = np.random.Generator(np.random.PCG64([self.seed, self.epoch, _PERMUTATION]))
        blocks = random.permutation(-(-self.sentences // self.block))
        a_window = self.window // self.block
        starts = np.sort(blocks[window * a_window : (window + 1) * a_window]) * self.block
        indices = (starts[:, None] + np.arange(self.block)).ravel()
        return indices[indices < self.sentences]


_PERMUTATION = 2**32 - 1  # keeps these random numbers apart from those of a window's batches
