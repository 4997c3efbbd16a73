"""Random text for benchmarks.

Words are drawn from a Zipf distribution, so that their frequencies, and with them the work of a tokenizer, are like
those of a language.
"""

from collections.abc import Iterator

import numpy as np

LATIN = "abcdefghijklmnopqrstuvwxyz"
BLOCK = 100_000  # sentences drawn at a time


class RandomText:
    """Sentences of made-up words.

    Args:
        letters: what the words are made of.
        words: the mean number of words in a sentence.
        seed: the same one gives the same sentences.
    """

    def __init__(self, letters: str = LATIN, words: float = 12, seed: int = 1):
        self._rng = np.random.default_rng(seed)
        self._words = words
        lengths = self._rng.integers(2, 10, size=50_000)
        self._vocabulary = np.array(["".join(self._rng.choice(list(letters), size=n)) for n in lengths])

    def sentences(self, number: int) -> Iterator[str]:
        """Yield the next sentences, of at least one word each and without line ends."""
        for start in range(0, number, BLOCK):
            lengths = 1 + self._rng.poisson(self._words - 1, size=min(BLOCK, number - start))
            ranks = np.minimum(self._rng.zipf(1.3, size=lengths.sum()), len(self._vocabulary))
            drawn = self._vocabulary[ranks - 1]
            ends = np.cumsum(lengths)
            yield from (" ".join(drawn[end - n : end]) for n, end in zip(lengths, ends, strict=True))
