"""BPE-dropout: the training text segmented anew in each epoch (Provilkov et al. 2020, arXiv:1910.13267).

A word is built from its characters by the tokenizer's merges, the most frequent first, but each time a merge is looked
for, every candidate is left out with probability p. The model so sees rare ways to spell a word, too.

Words are drawn, not occurrences: in each epoch a word gets as many segmentations as it occurs, at most `MAX_DRAWS`, and
its occurrences take one of them by chance. All of it is a pure function of (seed, epoch).
"""

import random
import tempfile
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mt.data.token_store import SIDES, EncodedCorpus, Ids, Lengths, sentence_tokens
from mt.data.tokenizer import N_UNMERGED, SPACE, BpeTokenizer, TokenizerPair

MAX_DRAWS = 16
_SENTENCES_AT_ONCE = 100_000


class Merges:
    """A tokenizer's merges, on ids."""

    def __init__(self, tokenizer: BpeTokenizer) -> None:
        pieces = tokenizer.tokens(range(tokenizer.vocab_size))
        ids = {piece: i for i, piece in enumerate(pieces)}
        tags = set(tokenizer.tags.values())
        self._characters = [
            [ids[c] for c in piece] if all(c in ids for c in piece) and i >= N_UNMERGED and i not in tags else [i]
            for i, piece in enumerate(pieces)
        ]
        # The rank of a merge is its place in the list; ids would do, but for merges that make a piece again.
        self._merges = {
            (ids[left], ids[right]): (rank, ids[left + right]) for rank, (left, right) in enumerate(tokenizer.merges())
        }

    def segment(self, word: Sequence[int], p: float, chance: random.Random) -> list[int]:
        """Another segmentation of a word given by its usual pieces; with p = 0 the usual one."""
        symbols = [character for piece in word for character in self._characters[piece]]
        while True:
            best, place, merged = len(self._merges), -1, 0
            for i, pair in enumerate(pairwise(symbols)):
                rank, piece = self._merges.get(pair, (best, 0))
                if rank < best and (p == 0 or chance.random() >= p):
                    best, place, merged = rank, i, piece
            if place < 0:
                return symbols
            symbols[place : place + 2] = [merged]


@dataclass(frozen=True)
class _Words:
    """One side of a corpus as words.

    Attributes:
        kinds: the distinct words, as tuples of their usual pieces.
        counts: how often each occurs (K,).
        words: which word stands where, all sentences one after the other (W,).
        starts: where sentences start in `words` (N + 1,).
    """

    kinds: list[tuple[int, ...]]
    counts: NDArray[np.int64]
    words: NDArray[np.int32]
    starts: Lengths

    @classmethod
    def of(cls, tokens: Ids, starts: Lengths, tokenizer: BpeTokenizer) -> "_Words":
        """Cuts sentences where a piece begins with a space; no merge crosses such a place."""
        pieces = tokenizer.tokens(range(tokenizer.vocab_size))
        begins = np.array([piece.startswith(SPACE) for piece in pieces])
        numbers: dict[tuple[int, ...], int] = {}
        words, word_starts = array("i"), array("q", [0])
        for group in range(0, len(starts) - 1, _SENTENCES_AT_ONCE):
            for start, end in pairwise(starts[group : group + _SENTENCES_AT_ONCE + 1].tolist()):
                ids = np.asarray(tokens[start:end])
                cuts = [0, *(np.flatnonzero(begins[ids][1:]) + 1).tolist(), len(ids)]
                sentence = ids.tolist()
                for first, last in pairwise(cuts if sentence else []):
                    words.append(numbers.setdefault(tuple(sentence[first:last]), len(numbers)))
                word_starts.append(len(words))
        flat = np.frombuffer(words, np.int32) if words else np.zeros(0, np.int32)
        counts = np.bincount(flat, minlength=len(numbers))
        return cls(list(numbers), counts, flat, np.frombuffer(word_starts, np.int64))


@dataclass(frozen=True)
class _Variants:
    """Segmentations of all words: of word k the usual one at `first[k]`, then `draws[k]` drawn ones.

    Attributes:
        tokens: flat ids of all variants.
        starts: where each begins in them (and the last ends).
        sizes: how many tokens each has.
        first: (K,), each word's usual variant.
        draws: (K,), how many drawn ones follow it.
    """

    tokens: NDArray[np.int64]
    starts: Lengths
    sizes: Lengths
    first: Lengths
    draws: Lengths

    @classmethod
    def draw(cls, words: _Words, merges: Merges, p: float, chance: random.Random) -> "_Variants":
        draws = np.minimum(words.counts, MAX_DRAWS)
        tokens: list[int] = []
        starts = [0]
        for kind, number in zip(words.kinds, draws.tolist(), strict=True):
            for drawn in (list(kind), *(merges.segment(kind, p, chance) for _ in range(number))):
                tokens += drawn
                starts.append(len(tokens))
        first = np.cumsum(draws + 1) - draws - 1
        bounds = np.array(starts, dtype=np.int64)
        return cls(np.array(tokens, dtype=np.int64), bounds, np.diff(bounds), first, draws)


class VaryingCorpus:
    """A corpus with another segmentation in each epoch.

    Args:
        corpus: the usual segmentation.
        tokenizers: what made it.
        p: the probability of leaving a merge out.
        seed: with the epoch, all that a segmentation depends on.
        max_length: sentences that would have more tokens (specials counted) keep their usual segmentation.
        folder: where an epoch's tokens are put, in a file without a name.
    """

    def __init__(
        self, corpus: EncodedCorpus, tokenizers: TokenizerPair, p: float, seed: int, max_length: int, folder: Path
    ) -> None:
        self._p, self._seed, self._max_length, self._folder = p, seed, max_length, folder
        by_side = dict(zip(SIDES, (tokenizers.source, tokenizers.target), strict=True))
        self._merges = {side: Merges(tokenizer) for side, tokenizer in by_side.items()}
        self._words = {side: _Words.of(*corpus.side(side), tokenizer) for side, tokenizer in by_side.items()}
        self._types = {side: corpus.side(side)[0].dtype for side in SIDES}

    def in_epoch(self, epoch: int) -> EncodedCorpus:
        """The sentences of an epoch."""
        sides = {
            side: self._segmented(side, np.random.SeedSequence([self._seed, epoch, n])) for n, side in enumerate(SIDES)
        }
        return EncodedCorpus({side: s[0] for side, s in sides.items()}, {side: s[1] for side, s in sides.items()})

    def _segmented(self, side: str, seed: np.random.SeedSequence) -> tuple[Ids, Lengths]:
        words, dtype = self._words[side], self._types[side]
        chance = np.random.Generator(np.random.PCG64(seed))
        drawing = random.Random(int(chance.integers(2**63)))
        variants = _Variants.draw(words, self._merges[side], self._p, drawing)
        starts = np.zeros(len(words.starts), dtype=np.int64)
        with tempfile.TemporaryFile(dir=self._folder) as file:
            for first in range(0, len(starts) - 1, _SENTENCES_AT_ONCE):
                bounds = words.starts[first : first + _SENTENCES_AT_ONCE + 1]
                tokens, lengths = self._chosen(side, variants, bounds, chance)
                starts[first + 1 : first + len(bounds)] = lengths
                file.write(tokens.astype(dtype).tobytes())
            file.flush()
            np.cumsum(starts, out=starts)
            # An empty file cannot be mapped.
            return (np.memmap(file, dtype=dtype, mode="r") if starts[-1] else np.zeros(1, dtype)), starts

    def _chosen(
        self, side: str, variants: _Variants, bounds: Lengths, chance: np.random.Generator
    ) -> tuple[NDArray[np.int64], Lengths]:
        """The tokens of the sentences between some bounds in `words`, and how many each has."""
        kinds = self._words[side].words[bounds[0] : bounds[-1]]
        usual = variants.first[kinds]
        chosen = usual + chance.integers(1, variants.draws[kinds], endpoint=True)
        bounds = bounds - bounds[0]
        tokens = _sums(variants.sizes[chosen], bounds)
        too_long = sentence_tokens(tokens, tokens)[SIDES.index(side)] > self._max_length
        chosen = np.where(np.repeat(too_long, np.diff(bounds)), usual, chosen)
        # Token i lies in the variant chosen for its word, as far in as the word's tokens have come.
        sizes = variants.sizes[chosen]
        shift = np.repeat(variants.starts[chosen] - (np.cumsum(sizes) - sizes), sizes)
        return variants.tokens[shift + np.arange(len(shift))], _sums(sizes, bounds)


def _sums(values: NDArray[Any], bounds: Lengths) -> Lengths:
    """Sums of values between neighbouring bounds; there may be nothing between them."""
    running = np.concatenate([[0], np.cumsum(values)])
    return np.diff(running[bounds])
