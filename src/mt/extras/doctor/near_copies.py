"""Near copies of held-out pairs: on both sides nearly the same words.

Two sentences are near copies if the Jaccard index of their sets of words is at least 0.8: one word of nine may differ,
or three of 27. Such sets share one of the few rarest words of either (prefix filtering; Chaudhuri et al. 2006).

N pairs looked up   H pairs held out   V distinct words of these   E words of all held-out sentences, repeated ones once
"""

import numpy as np
from numpy.typing import NDArray

from mt.extras.doctor.word_hashes import Words, positions_in

Array = NDArray[np.int64]

MIN_WORDS = 6  # different ones of a sentence that is compared
_MOST = 200  # held-out sentences with a word that are compared for its sake
_SKETCH = 2**20  # bits of a filter for words that are in no held-out sentence


class NearCopyIndex:
    """The words of held-out pairs; it takes some 500 bytes a pair."""

    def __init__(self) -> None:
        self._added: list[tuple[Words, Words]] = []
        self._sides: list[_Side] = []

    def add(self, words: tuple[Words, Words]) -> None:
        self._added.append(words)
        self._sides = []

    def find(self, words: tuple[Words, Words], wanted: NDArray[np.bool_]) -> Array:
        """Return the index of a near copy of each wanted pair (N,), or -1."""
        found = np.full(len(wanted), -1)
        if not self._added:
            return found
        if not self._sides:
            parts = ([pair[side] for pair in self._added] for side in (0, 1))
            self._sides = [_Side(Words(*map(np.concatenate, zip(*part, strict=True)))) for part in parts]
        for side, each in zip(self._sides, words, strict=True):
            wanted = wanted & side.plausible(each)
        queries = [_Query(side, each.select(wanted)) for side, each in zip(self._sides, words, strict=True)]
        pairs = np.intersect1d(queries[0].candidates(), queries[1].candidates(), assume_unique=True)
        for query in queries:
            pairs = pairs[query.similar(pairs)]
        sentences, held = np.divmod(pairs, len(self._sides[0].sizes))
        found[np.flatnonzero(wanted)[sentences]] = held
        return found


class _Side:
    """One side of the held-out pairs; words are numbered by frequency, the rarest first.

    Attributes:
        vocabulary: (V,), hashes in ascending order; `ranks` (V,) has their numbers.
        frequencies: (V,), sentences with each word.
        members: (E,), sentence * V + word, in ascending order.
        sizes: (H,), different words of each sentence.
        postings: (E,), the sentences with the first word, then with the second, ...; `starts` (V,) says where.
    """

    def __init__(self, words: Words) -> None:
        self.vocabulary, inverse, counts = np.unique(words.hashes, return_inverse=True, return_counts=True)
        n_words = self.n_words = max(len(self.vocabulary), 1)
        self.ranks = np.argsort(np.argsort(counts))
        self.members = _distinct(words.sentences * n_words + self.ranks[inverse])
        self.sizes = np.bincount(self.members // n_words, minlength=len(words.counts))
        self.frequencies = np.bincount(self.members % n_words, minlength=n_words)
        self.postings = self.members[np.argsort(self.members % n_words, kind="stable")] // n_words
        self.starts = np.cumsum(self.frequencies) - self.frequencies
        self._sketch = np.zeros(_SKETCH, bool)
        self._sketch[self.vocabulary % np.uint64(_SKETCH)] = True

    def plausible(self, words: Words) -> NDArray[np.bool_]:
        """Report for each sentence (N,) whether enough of its words are held out for a near copy."""
        known = words.sums(self._sketch[words.hashes % np.uint64(_SKETCH)]).astype(np.int64)
        return (5 * known >= 4 * words.counts) & (words.counts >= MIN_WORDS)


class _Query:
    """Sentences to look up (N,)."""

    def __init__(self, side: _Side, words: Words) -> None:
        self._side = side
        positions = positions_in(words.hashes, side.vocabulary)
        known = positions >= 0
        members = _distinct(words.sentences[known] * side.n_words + side.ranks[positions[known]])
        self._sentences, self._words = np.divmod(members, side.n_words)
        self._counts = np.bincount(self._sentences, minlength=len(words.counts))
        self._starts = np.cumsum(self._counts) - self._counts
        self._unknown = words.counts - words.sums(known).astype(np.int64)
        self._sizes = self._counts + self._unknown

    def candidates(self) -> Array:
        """Return sentence * H + held-out sentence of those that share one of the rarest words."""
        rank = np.arange(len(self._words)) - self._starts[self._sentences]
        rarest = self._sizes // 5 + 1 - self._unknown  # the words after them are too few for an index of 0.8
        chosen = (rank < rarest[self._sentences]) & (self._side.frequencies[self._words] <= _MOST)
        words = self._words[chosen]
        positions, which = _ranges(self._side.starts[words], self._side.frequencies[words])
        sentences = self._sentences[chosen][which]
        return _distinct(sentences * len(self._side.sizes) + self._side.postings[positions])

    def similar(self, pairs: Array) -> NDArray[np.bool_]:
        """Report which of the candidates are near copies."""
        sentences, held = np.divmod(pairs, len(self._side.sizes))
        positions, which = _ranges(self._starts[sentences], self._counts[sentences])
        common = positions_in(held[which] * self._side.n_words + self._words[positions], self._side.members) >= 0
        n_common = np.bincount(which[common], minlength=len(pairs))
        sizes = np.stack([self._sizes[sentences], self._side.sizes[held]])
        similar: NDArray[np.bool_] = (9 * n_common >= 4 * sizes.sum(axis=0)) & (sizes.min(axis=0) >= MIN_WORDS)
        return similar


def _distinct(values: Array) -> Array:
    """Return the distinct values in ascending order; np.unique is slower by far."""
    values = np.sort(values)
    return values[np.diff(values, prepend=-1) > 0]


def _ranges(starts: Array, lengths: Array) -> tuple[Array, Array]:
    """Return the positions in ranges, and the range of each."""
    which = np.repeat(np.arange(len(starts)), lengths)
    return np.arange(len(which)) + (starts - np.cumsum(lengths) + lengths)[which], which
