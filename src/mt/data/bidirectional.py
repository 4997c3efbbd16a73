"""Bidirectional training: at first, sentence pairs are also learned the other way round (Ding et al. 2021).

"Improving Neural Machine Translation by Bidirectional Training", arXiv:2109.07780. Nothing tells the model which way a
pair goes but the language of its source; later it learns the one direction that is wanted.

    B sentences, L tokens
"""

import numpy as np
from numpy.typing import NDArray

from mt.data.batching import Sentences, TrainingCorpus
from mt.data.token_store import Ids, Lengths

_OTHER = {"source": "target", "target": "source"}


class BidirectionalCorpus:
    """A corpus of which, in the first epochs, each pair is turned round by an even chance, anew in each epoch.

    Args:
        corpus: the pairs as they are.
        epochs: how many such epochs there are.
        seed: with the epoch and the pair's number, all that chance depends on.
        max_length: the most tokens of a source, specials counted; a pair whose target would have more stays as it is.
    """

    def __init__(self, corpus: TrainingCorpus, epochs: int, seed: int, max_length: int) -> None:
        self._corpus, self._epochs, self._seed, self._max_length = corpus, epochs, seed, max_length

    def in_epoch(self, epoch: int) -> Sentences:
        """What an epoch, counted from 0, trains on."""
        sentences = self._corpus.in_epoch(epoch)
        if epoch >= self._epochs:
            return sentences
        key = np.random.SeedSequence([self._seed, epoch]).generate_state(1, np.uint64)[0]
        return _HalfTurned(sentences, key, self._max_length)


class _HalfTurned:
    """Pairs of which some are turned round.

    Args:
        sentences: the pairs as they are.
        key: decides which are turned.
        max_length: of a source, specials counted.
        numbers: of the pairs, in the corpus that they were copied from; None where they are all in their order.
    """

    def __init__(
        self, sentences: Sentences, key: np.uint64, max_length: int, numbers: NDArray[np.int64] | None = None
    ) -> None:
        self._sentences, self._key, self._max_length, self._numbers = sentences, key, max_length, numbers

    def __len__(self) -> int:
        return len(self._sentences)

    def lengths(self, indices: NDArray[np.int64]) -> tuple[Lengths, Lengths]:
        """Source and target tokens of some sentences (N,), specials counted as the model sees them."""
        source, target = self._sentences.lengths(indices)
        turned = self._are_turned(indices)
        # A source has two specials, a target one.
        return np.where(turned, target + 1, source), np.where(turned, source - 1, target)

    def copied(self, indices: NDArray[np.int64]) -> "_HalfTurned":
        """Some sentences, copied into memory in the order given."""
        return _HalfTurned(self._sentences.copied(indices), self._key, self._max_length, self._own(indices))

    def gather(self, side: str, indices: NDArray[np.int64]) -> tuple[Ids, Lengths]:
        """The ids of some sentences (B, L), and their lengths (B,): as EncodedCorpus does it."""
        turned = self._are_turned(indices)
        straight, other = self._sentences.gather(side, indices), self._sentences.gather(_OTHER[side], indices)
        ids = np.zeros((len(indices), max(straight[0].shape[1], other[0].shape[1])), straight[0].dtype)
        for rows, (some, _) in ((~turned, straight), (turned, other)):
            ids[rows, : some.shape[1]] = some[rows]
        return ids, np.where(turned, other[1], straight[1])

    def _are_turned(self, indices: NDArray[np.int64]) -> NDArray[np.bool_]:
        """A bit hashed from each pair's number, so that no list is kept: SplitMix64 (Steele et al. 2014)."""
        z = self._own(indices).astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15) + self._key
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        even = ((z ^ (z >> np.uint64(31))) & np.uint64(1)).astype(np.bool_)
        return even & (self._sentences.lengths(indices)[1] < self._max_length)

    def _own(self, indices: NDArray[np.int64]) -> NDArray[np.int64]:
        """The pairs' numbers in the whole corpus."""
        return indices if self._numbers is None else self._numbers[indices]
