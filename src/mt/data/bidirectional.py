"""Bidirectional training: the first epochs also teach reversed sentence pairs (Ding et al. 2021, arXiv:2109.07780).

Only the language of the source tells the model which direction is wanted; later epochs train the wanted one alone.

    B sentences, N sentences of the corpus, L tokens
"""

import numpy as np
from numpy.typing import NDArray

from mt.data.batching import Sentences, TrainingCorpus
from mt.data.shuffle import Indices
from mt.data.token_store import Ids, Lengths

_OPPOSITE = {"source": "target", "target": "source"}


class BidirectionalCorpus:
    """A corpus whose pairs are each reversed with probability 1/2, drawn again in each of the first epochs.

    Args:
        corpus: the pairs in the wanted direction.
        epochs: number of bidirectional epochs.
        seed: with the epoch and the pair's index, decides which pairs are reversed.
        max_length: limit on a source's tokens, specials included; a pair whose target exceeds it is never reversed.
    """

    def __init__(self, corpus: TrainingCorpus, epochs: int, seed: int, max_length: int) -> None:
        self._corpus, self._epochs, self._seed, self._max_length = corpus, epochs, seed, max_length

    def in_epoch(self, epoch: int) -> Sentences:
        """Return the pairs of an epoch, counted from 0."""
        sentences = self._corpus.in_epoch(epoch)
        if epoch >= self._epochs:
            return sentences
        key = np.random.SeedSequence([self._seed, epoch]).generate_state(1, np.uint64)[0]
        return _PartlyReversed(sentences, key, self._max_length)


class _PartlyReversed:
    """Sentence pairs of which a hash of `key` and the index reverses some.

    `corpus_indices` are the pairs' indices in the whole corpus; None if the pairs are the whole corpus.
    """

    def __init__(
        self, sentences: Sentences, key: np.uint64, max_length: int, corpus_indices: Indices | None = None
    ) -> None:
        self._sentences, self._key, self._max_length = sentences, key, max_length
        self._corpus_indices = corpus_indices

    def __len__(self) -> int:
        return len(self._sentences)

    def lengths(self, indices: Indices) -> tuple[Lengths, Lengths]:
        source, target = self._sentences.lengths(indices)
        is_reversed = self._is_reversed(indices)
        # A source has two specials, a target one.
        return np.where(is_reversed, target + 1, source), np.where(is_reversed, source - 1, target)

    def select(self, indices: Indices) -> "_PartlyReversed":
        return _PartlyReversed(self._sentences.select(indices), self._key, self._max_length, self._in_corpus(indices))

    def gather(self, side: str, indices: Indices) -> tuple[Ids, Lengths]:
        is_reversed = self._is_reversed(indices)
        straight, opposite = (self._sentences.gather(name, indices) for name in (side, _OPPOSITE[side]))
        ids = np.zeros((len(indices), max(straight[0].shape[1], opposite[0].shape[1])), straight[0].dtype)
        for rows, (tokens, _) in ((~is_reversed, straight), (is_reversed, opposite)):
            ids[rows, : tokens.shape[1]] = tokens[rows]
        return ids, np.where(is_reversed, opposite[1], straight[1])

    def _is_reversed(self, indices: Indices) -> NDArray[np.bool_]:
        """Hash each pair's index to one bit with SplitMix64 (Steele et al. 2014), so that no list is stored."""
        z = self._in_corpus(indices).astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15) + self._key
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        bit = ((z ^ (z >> np.uint64(31))) & np.uint64(1)).astype(np.bool_)
        return bit & (self._sentences.lengths(indices)[1] < self._max_length)

    def _in_corpus(self, indices: Indices) -> Indices:
        return indices if self._corpus_indices is None else self._corpus_indices[indices]
