"""Near copies of held-out pairs: nearly the same words.

Two pairs are near copies if the Jaccard index of their sets of words, of both sides together, is at least 0.8: about
one word of ten may differ. Such sets share three of the few rarest words of either (prefix filtering; Chaudhuri et al.
2006), so that few pairs are compared.

N pairs looked up   H pairs held out   V distinct words of these
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from mt.data.token_store import Array, distinct, positions_in, ranges
from mt.extras.doctor.word_hashes import Hashes, Words

_MIN_WORDS = 14  # of a pair that is compared
_SHARED = 3  # of the rarest words
_MAX_FREQUENCY = 200  # held-out pairs with a word that makes pairs candidates
_FILTER = 2**20  # bits of a filter for words that are in no held-out pair


class NearCopyIndex:
    """The words of held-out pairs, numbered from the rarest on; it takes some 500 bytes a pair."""

    def __init__(self, chunks: Sequence[tuple[Words, Words]]) -> None:
        self._size, parts = 0, [(np.zeros(0, np.int64), np.zeros(0, np.uint64))]
        for chunk in chunks:
            pairs, hashes = _joined(chunk)
            parts.append((pairs + self._size, hashes))
            self._size += len(chunk[0].counts)
        pairs, hashes = map(np.concatenate, zip(*parts, strict=True))
        self._vocabulary, inverse, counts = np.unique(hashes, return_inverse=True, return_counts=True)
        self._ranks = np.argsort(np.argsort(counts))  # the number of each word
        self._members = distinct(pairs * len(counts) + self._ranks[inverse])  # pair * V + word
        pairs, words = np.divmod(self._members, max(len(counts), 1))
        self._sizes = np.bincount(pairs, minlength=self._size)
        self._frequencies = np.bincount(words, minlength=len(counts))
        self._starts = np.cumsum(self._frequencies) - self._frequencies
        self._pairs_of = pairs[np.argsort(words, kind="stable")]  # those with the first word, with the second, ...
        self._filter = np.zeros(_FILTER, bool)
        self._filter[self._vocabulary % np.uint64(_FILTER)] = True

    def find(self, words: tuple[Words, Words], wanted: NDArray[np.bool_]) -> Array:
        """Return the index of a near copy of each wanted pair (N,), or -1."""
        n_pairs, n_words, n_held = len(wanted), len(self._vocabulary), self._size
        pairs, hashes = _joined(words)
        counts = np.bincount(pairs, minlength=n_pairs)
        known = np.bincount(pairs[self._filter[hashes % np.uint64(_FILTER)]], minlength=n_pairs)
        chosen = (wanted & (5 * known >= 4 * counts) & (counts >= _MIN_WORDS))[pairs]
        pairs, positions = pairs[chosen], positions_in(hashes[chosen], self._vocabulary)
        unknown = np.bincount(pairs[positions < 0], minlength=n_pairs)
        members = distinct(pairs[positions >= 0] * n_words + self._ranks[positions[positions >= 0]])
        pairs, numbers = np.divmod(members, max(n_words, 1))
        counts = np.bincount(pairs, minlength=n_pairs)
        starts, sizes = np.cumsum(counts) - counts, counts + unknown

        # Words that are in no held-out pair are the rarest.
        rare = np.arange(len(pairs)) - starts[pairs] < (sizes // 5 + _SHARED - unknown)[pairs]
        rare &= self._frequencies[numbers] <= _MAX_FREQUENCY
        lengths = self._frequencies[numbers[rare]]
        positions = ranges(self._starts[numbers[rare]], lengths)
        codes = np.sort(np.repeat(pairs[rare], lengths) * n_held + self._pairs_of[positions])  # pair * H + held-out
        often = codes[_SHARED - 1 :][codes[_SHARED - 1 :] == codes[: 1 - _SHARED]]
        candidates, held = np.divmod(distinct(often), max(n_held, 1))
        positions = ranges(starts[candidates], counts[candidates])
        rows = np.repeat(np.arange(len(candidates)), counts[candidates])  # the candidate of each of their words
        common = positions_in(held[rows] * n_words + numbers[positions], self._members) >= 0
        n_common = np.bincount(rows[common], minlength=len(held))
        near = 9 * n_common >= 4 * (sizes[candidates] + self._sizes[held])  # a Jaccard index of 0.8
        found = np.full(n_pairs, -1)
        found[candidates[near]] = held[near]
        return found


def _joined(words: tuple[Words, Words]) -> tuple[Array, Hashes]:
    """Return the pair and the hash of each word of both sides."""
    source, target = words
    return np.concatenate([source.sentences, target.sentences]), np.concatenate([source.hashes, target.hashes])
