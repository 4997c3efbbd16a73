"""Bidirectional training: the first epochs also teach reversed sentence pairs (Ding et al. 2021, arXiv:2109.07780).

Only the language of the source tells the model which direction is wanted; later epochs train the wanted one alone.

    B sentences, N sentences of the corpus, L tokens
"""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from mt.data.batching import Sentences, TrainingCorpus
from mt.data.shuffle import hash_indices
from mt.data.token_store import Ids, Indices, Lengths, sentence_tokens

_OPPOSITE = {"source": "target", "target": "source"}


def reversed_pairs(sentences: Sentences, indices: Indices) -> NDArray[np.bool_]:
    """Return which of some pairs (B,) of an epoch are in the opposite direction."""
    if isinstance(sentences, _PartlyReversed):
        return sentences.are_reversed(indices)
    return np.zeros(len(indices), np.bool_)


@dataclass(frozen=True)
class BidirectionalCorpus:
    """A corpus whose pairs are each reversed with probability 1/2, drawn again in each of the first `epochs`.

    The seed, the epoch and a pair's index decide. A pair whose target has more than `max_length` tokens, specials
    included, is never reversed, nor are the pairs that `one_way` (N,) names.
    """

    corpus: TrainingCorpus
    epochs: int
    seed: int
    max_length: int
    one_way: NDArray[np.bool_] | None = None

    def in_epoch(self, epoch: int) -> Sentences:
        """Return the pairs of an epoch, counted from 0."""
        sentences = self.corpus.in_epoch(epoch)
        if epoch >= self.epochs:
            return sentences
        key = np.random.SeedSequence([self.seed, epoch]).generate_state(1, np.uint64)[0]
        return _PartlyReversed(self, sentences, key)


@dataclass(frozen=True)
class _PartlyReversed:
    """Sentence pairs of which a hash of `key` and the index reverses some."""

    settings: BidirectionalCorpus
    sentences: Sentences
    key: np.uint64
    corpus_indices: Indices | None = None  # of the pairs in the whole corpus; None if they are all of it

    @property
    def source_format(self) -> str:
        return self.sentences.source_format

    @property
    def _more_specials(self) -> int:
        """The number by which a source has more specials than a target."""
        source, target = sentence_tokens(0, 0, self.source_format)
        return int(source - target)

    def __len__(self) -> int:
        return len(self.sentences)

    def lengths(self, indices: Indices) -> tuple[Lengths, Lengths]:
        source, target = self.sentences.lengths(indices)
        is_reversed, more = self.are_reversed(indices), self._more_specials
        return np.where(is_reversed, target + more, source), np.where(is_reversed, source - more, target)

    def select(self, indices: Indices) -> "_PartlyReversed":
        return replace(self, sentences=self.sentences.select(indices), corpus_indices=self._in_corpus(indices))

    def gather(self, side: str, indices: Indices) -> tuple[Ids, Lengths]:
        is_reversed = self.are_reversed(indices)
        straight, opposite = (self.sentences.gather(name, indices) for name in (side, _OPPOSITE[side]))
        ids = np.zeros((len(indices), max(straight[0].shape[1], opposite[0].shape[1])), straight[0].dtype)
        for rows, (tokens, _) in ((~is_reversed, straight), (is_reversed, opposite)):
            ids[rows, : tokens.shape[1]] = tokens[rows]
        return ids, np.where(is_reversed, opposite[1], straight[1])

    def are_reversed(self, indices: Indices) -> NDArray[np.bool_]:
        in_corpus, one_way = self._in_corpus(indices), self.settings.one_way
        bit = (hash_indices(in_corpus, self.key) & np.uint64(1)).astype(np.bool_)
        can_be = self.sentences.lengths(indices)[1] + self._more_specials <= self.settings.max_length
        return bit & can_be if one_way is None else bit & can_be & ~one_way[in_corpus]

    def _in_corpus(self, indices: Indices) -> Indices:
        return indices if self.corpus_indices is None else self.corpus_indices[indices]
