"""Bidirectional training: the first epochs also teach reversed sentence pairs (Ding et al. 2021, arXiv:2109.07780).

The model sees the direction only in the source's language; later epochs train the wanted direction alone.

    B sentences, N sentences of the corpus
"""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from mt.data.batching import Sentences, TrainingCorpus
from mt.data.ragged import Indices
from mt.data.sentence_format import sentence_tokens
from mt.data.shuffle import draw_bits
from mt.data.token_store import SIDES, EncodedCorpus


def reversed_pairs(sentences: Sentences, indices: Indices) -> NDArray[np.bool_]:
    """Return which of some pairs (B,) of an epoch are in the opposite direction."""
    if isinstance(sentences, _PartlyReversed):
        return sentences.are_reversed(indices)
    return np.zeros(len(indices), np.bool_)


@dataclass(frozen=True)
class BidirectionalCorpus:
    """A corpus whose pairs are each reversed with probability 1/2, drawn again in each of the first `epochs`.

    The seed, the epoch and a pair's index decide. A pair whose target has more than `max_length` tokens, specials
    included, is never reversed, nor is one that `one_way` (N,) marks.
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
        assert isinstance(sentences, EncodedCorpus)
        return _PartlyReversed(self, sentences, epoch)


@dataclass(frozen=True)
class _PartlyReversed:
    """The sentence pairs of an epoch, some of them reversed."""

    settings: BidirectionalCorpus
    sentences: EncodedCorpus
    epoch: int

    def __len__(self) -> int:
        return len(self.sentences)

    def select(self, indices: Indices) -> EncodedCorpus:
        """Copy some pairs into memory, reversed or not."""
        plain, is_reversed = self.sentences.select(indices), self.are_reversed(indices)
        both = plain.sides["source"].followed_by(plain.sides["target"])
        rows = np.arange(len(plain)) + len(plain) * np.stack([is_reversed, ~is_reversed])
        return replace(plain, sides=dict(zip(SIDES, map(both.select, rows), strict=True)))

    def are_reversed(self, indices: Indices) -> NDArray[np.bool_]:
        """Return which pairs (B,) are reversed."""
        is_drawn = (draw_bits(indices, self.settings.seed, self.epoch) & np.uint64(1)).astype(np.bool_)
        source, target = sentence_tokens(0, 0, self.sentences.source_format)
        can_be = self.sentences.lengths(indices)[1] + int(source - target) <= self.settings.max_length
        one_way = self.settings.one_way
        return is_drawn & can_be if one_way is None else is_drawn & can_be & ~one_way[indices]
