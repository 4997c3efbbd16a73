"""Near copies of held-out pairs: on both sides nearly the same words.

Two sentences are near copies if the Jaccard index of their sets of words is at least 0.8: one word of nine may differ,
or three of 27. Such sets share one of the few rarest words of either (prefix filtering; Chaudhuri et al. 2006).

N pairs looked up   H pairs held out   V distinct words of these   E words of all held-out sentences, repeated ones once
"""

import numpy as np
from numpy.typing import NDArray

from mt.extras.doctor.word_hashes import Words, contained

Array = NDArray[np.int64]

MIN_WORDS = 6  # different ones of a sentence that is compared
_MOST = 200  # held-out sentences with a word that are compared for its sake
_SKETCH = 2**20  # bits of a filter for words that are in no held-out sentence


class NearCopyIndex:
    """The words of held-out pairs; it takes some 300 bytes a pair."""

    def __init__(self) -> None:
        self._added: list[tuple[Words, Words]] = []
        self._sides: list[_Side] = []

    def add(self, words: tuple[Words, Words]) -> None:
        self._added.append(words)
        self._sides = []

    def find(self, words: tuple[Words, Words], wanted: NDArray[np.bool_]) -> Array:
        """Return the index of a near copy of each wanted pair (N,), or -1."""
        found = np.full(len(wanted), -1)
        if not self._sides:
            self._sides = [_Side(_concatenated([pair[side] for pair in self._added])) for side in (0, 1)]
        for side, each in zip(self._sides, words, strict=True):
            wanted = wanted & side.plausible(each)
        queries = [_Query(side, each.select(wanted)) for side, each in zip(self._sides, words, strict=True)]
        pairs = np.intersect1d(*(query.candidates() for query in queries))
        for query in queries:
            pairs = pairs[query.similar(pairs)]
        n_held = len(self._sides[0].sizes)
        found[np.flatnonzero(wanted)[pairs // max(n_held, 1)]] = pairs % max(n_held, 1)
        return found


def _concatenated(parts: list[Words]) -> Words:
    empty = Words(np.zeros(0, np.uint64), np.zeros(0, np.int64))
    return Words(*(np.concatenate(arrays) for arrays in zip(empty, *parts, strict=True)))


class _Side:
    """One side of the held-out pairs.

    Attributes:
        vocabulary: (V,), hashes in ascending order.
        frequencies: (V,), sentences with each word.
        members: (E,), sentence * V + word, in ascending order.
        sizes: (H,), different words of each sentence.
        postings: (E,), the sentences with the first word, then with the second, ...; `starts` (V,) says where.
    """

    def __init__(self, words: Words) -> None:
        self.vocabulary, inverse = np.unique(words.hashes, return_inverse=True)
        n_words = max(len(self.vocabulary), 1)
        self.members = np.unique(words.sentences * n_words + inverse)
        self.sizes = np.bincount(self.members // n_words, minlength=len(words.counts))
        self.frequencies = np.bincount(self.members % n_words, minlength=n_words)
        self.postings = self.members[np.argsort(self.members % n_words, kind="stable")] // n_words
        self.starts = np.cumsum(self.frequencies) - self.frequencies
        self._sketch = np.zeros(_SKETCH, bool)
        self._sketch[self.vocabulary % np.uint64(_SKETCH)] = True

    def plausible(self, words: Words) -> NDArray[np.bool_]:
        """Report for each sentence (N,) whether enough of its words are held out for a near copy."""
        known = words.sums(self._sketch[words.hashes % np.uint64(_SKETCH)]).astype(np.int64)
        return (known >= 0.8 * words.counts) & (words.counts >= MIN_WORDS)


class _Query:
    """Sentences to look up (N,)."""

    def __init__(self, side: _Side, words: Words) -> None:
        self._side, self._n_words = side, max(len(side.vocabulary), 1)
        known = contained(words.hashes, side.vocabulary)
        codes = words.sentences[known] * self._n_words + np.searchsorted(side.vocabulary, words.hashes[known])
        members = np.unique(codes)  # sentence * V + word
        self._sentences, self._words = members // self._n_words, members % self._n_words
        self._counts = np.bincount(self._sentences, minlength=len(words.counts))
        self._starts = np.cumsum(self._counts) - self._counts
        self._unknown = words.counts - np.bincount(words.sentences[known], minlength=len(words.counts))
        self._sizes = self._counts + self._unknown

    def candidates(self) -> Array:
        """Return sentence * H + held-out sentence of those that share one of the rarest words, in any order."""
        order = np.lexsort((self._side.frequencies[self._words], self._sentences))
        rank = np.arange(len(order)) - self._starts[self._sentences]
        rarest = self._sizes // 5 + 1 - self._unknown  # the others are too few for an index of 0.8
        words, sentences = self._words[order], self._sentences
        chosen = (rank < rarest[sentences]) & (self._side.frequencies[words] <= _MOST)
        words, sentences = words[chosen], sentences[chosen]
        positions, which = _ranges(self._side.starts[words], self._side.frequencies[words])
        return sentences[which] * len(self._side.sizes) + self._side.postings[positions]

    def similar(self, pairs: Array) -> NDArray[np.bool_]:
        """Report which of the candidates are near copies."""
        sentences, held = np.divmod(pairs, max(len(self._side.sizes), 1))
        positions, which = _ranges(self._starts[sentences], self._counts[sentences])
        common = contained(held[which] * self._n_words + self._words[positions], self._side.members)
        n_common = np.bincount(which[common], minlength=len(pairs))
        sizes = np.stack([self._sizes[sentences], self._side.sizes[held]])
        return (9 * n_common >= 4 * sizes.sum(axis=0)) & (sizes.min(axis=0) >= MIN_WORDS)


def _ranges(starts: Array, lengths: Array) -> tuple[Array, Array]:
    """Return the positions in ranges, and the range of each."""
    which = np.repeat(np.arange(len(starts)), lengths)
    return np.arange(len(which)) + (starts - np.cumsum(lengths) + lengths)[which], which
