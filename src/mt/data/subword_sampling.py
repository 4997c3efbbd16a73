"""Subword regularisation: a different segmentation of the training text in each epoch, so that rare spellings are seen.

* BPE-dropout (Provilkov et al. 2020, arXiv:1910.13267): the tokenizer's merges build a word from its characters, the
  most frequent merge first, but at each step every candidate is skipped with probability p.
* Sampling from a unigram model (Kudo 2018, arXiv:1804.10959): a segmentation's probability is the product of its
  pieces' to the power alpha.

Segmentations are drawn per word type: in each epoch as many as the type has occurrences, at most `MAX_DRAWS`, and each
occurrence takes one of them at random. Everything is a pure function of (seed, epoch).

    K word types, W word occurrences, N sentences
"""

import math
import random
import tempfile
from array import array
from bisect import bisect
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain, groupby, pairwise
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from mt.config import TokenizerConfig
from mt.data.ragged import Lengths, Ragged, row_sums
from mt.data.sentence_format import most_ids
from mt.data.sentencepiece_tokenizer import SentencePieceTokenizer
from mt.data.token_store import SIDES, EncodedCorpus, Ids
from mt.data.tokenizer import SPACE
from mt.data.tokenizer_kinds import TextTokenizer, TokenizerPair
from mt.errors import InputError

MAX_DRAWS = 16
_SENTENCES_AT_ONCE = 100_000
# Without spaces, a sentence is one word. Beyond _MAX_TYPES types, new words of more than _MAX_PIECES pieces are split
# into these, to bound the memory.
_MAX_TYPES, _MAX_PIECES = 1_000_000, 8

# For each position of a text, the pieces that end there: cumulative weights, and (start, id).
_Ends = list[tuple[list[float], list[tuple[int, int]]]]


class BpeDropout:
    """Segmentation by the merges of a BPE tokenizer or SentencePiece BPE model, each skipped with probability p."""

    def __init__(self, tokenizer: TextTokenizer, p: float) -> None:
        self._p = p
        pieces, merges = tokenizer.pieces, tokenizer.merges()
        ids, built = {piece: i for i, piece in enumerate(pieces)}, {left + right for _, left, right in merges}
        # Bytes, tags and symbols stay as they are.
        self._characters = [[ids[c] for c in piece] if piece in built else [i] for i, piece in enumerate(pieces)]
        # A merged id is no rank: two merges may build the same piece.
        self._merges = {(ids[left], ids[right]): (rank, ids[left + right]) for rank, left, right in merges}
        self._last = 1 + max((rank for rank, _, _ in merges), default=0)

    def draw(self, word: Sequence[int], number: int, rng: random.Random) -> Iterator[list[int]]:
        return (self.segment(word, rng) for _ in range(number))

    def segment(self, word: Sequence[int], rng: random.Random) -> list[int]:
        """Draw a segmentation of a word given as token ids."""
        symbols = [character for piece in word for character in self._characters[piece]]
        while True:
            best_rank, position, merged = self._last, -1, 0
            for i, pair in enumerate(pairwise(symbols)):
                rank, piece = self._merges.get(pair, (best_rank, 0))
                if rank < best_rank and rng.random() >= self._p:
                    best_rank, position, merged = rank, i, piece
            if position < 0:
                return symbols
            symbols[position : position + 2] = [merged]


class UnigramLattice:
    """All segmentations of a word by a unigram model, drawn by forward filtering and backward sampling.

    The library's sampler has one generator for all sentences. No piece crosses a word boundary, so words are
    independent.
    """

    def __init__(self, tokenizer: SentencePieceTokenizer, alpha: float) -> None:
        log_probs, self._pieces = tokenizer.log_probs, tokenizer.pieces
        self._weights = {p: (i, alpha * log_probs[p]) for i, p in enumerate(self._pieces) if p in log_probs}
        self._longest = max(map(len, self._weights))

    def draw(self, word: Sequence[int], number: int, rng: random.Random) -> Iterator[list[int]]:
        """Yield `number` segmentations; bytes and symbols stay as they are."""
        runs = [(is_text, list(ids)) for is_text, ids in groupby(word, lambda i: self._pieces[i] in self._weights)]
        parts = [(ids, self._ends("".join(self._pieces[i] for i in ids)) if is_text else []) for is_text, ids in runs]
        for _ in range(number):
            yield list(chain.from_iterable(_walk_back(ends, rng) if ends else ids for ids, ends in parts))

    def _ends(self, text: str) -> _Ends:
        total, ends = [0.0], []  # log of the summed weights of all ways to a position
        for end in range(1, len(text) + 1):
            pieces, weights = [], []  # log weights
            for start in range(max(0, end - self._longest), end):
                piece, weight = self._weights.get(text[start:end], (-1, 0.0))
                if piece >= 0 and total[start] > -math.inf:
                    pieces.append((start, piece))
                    weights.append(total[start] + weight)
            largest = max(weights, default=-math.inf)
            cumulative = list(accumulate(math.exp(weight - largest) for weight in weights))
            total.append(largest + math.log(cumulative[-1]) if weights else largest)
            ends.append((cumulative, pieces))
        return ends


def _walk_back(ends: _Ends, rng: random.Random) -> list[int]:
    """Draw a segmentation from its last piece to its first."""
    ids: list[int] = []
    position = len(ends)
    while position > 0:
        cumulative, pieces = ends[position - 1]
        position, piece = pieces[min(bisect(cumulative, rng.random() * cumulative[-1]), len(pieces) - 1)]
        ids.append(piece)
    return ids[::-1]


Segmenter = BpeDropout | UnigramLattice


def make_segmenter(tokenizer: TextTokenizer, settings: TokenizerConfig) -> Segmenter:
    """Return the sampler that the configuration asks for; raise InputError if the tokenizer is of another kind."""
    if settings.sampling_alpha is None:
        if tokenizer.merges():
            return BpeDropout(tokenizer, settings.bpe_dropout)
        raise InputError("tokenizer.bpe_dropout: the tokenizer is a unigram model", "set tokenizer.sampling_alpha")
    if isinstance(tokenizer, SentencePieceTokenizer) and tokenizer.log_probs:
        return UnigramLattice(tokenizer, settings.sampling_alpha)
    raise InputError("tokenizer.sampling_alpha: the tokenizer is not a unigram model", "leave it out")


@dataclass(frozen=True)
class _Words:
    """One side of a corpus as words."""

    types: list[tuple[int, ...]]  # distinct words, as token ids of the tokenizer's own segmentation
    counts: NDArray[np.int64]  # (K,), occurrences of each type
    words: NDArray[np.int32]  # (W,), the type of each occurrence, sentence after sentence
    starts: Lengths  # (N + 1,), position of each sentence in `words`, and the end of the last

    @classmethod
    def split(cls, tokens: Ids, starts: Lengths, tokenizer: TextTokenizer, folder: Path) -> "_Words":
        """Split sentences before each piece that begins with a space, a boundary that no other piece crosses."""
        begins_word = np.array([piece.startswith(SPACE) for piece in tokenizer.pieces])
        numbers: dict[tuple[int, ...], int] = {}
        counts, word_starts = np.zeros(0, np.int64), array("q", [0])
        with tempfile.TemporaryFile(dir=folder) as file:
            for group in range(0, len(starts) - 1, _SENTENCES_AT_ONCE):
                words, n_before = array("i"), word_starts[-1]
                for start, end in pairwise(starts[group : group + _SENTENCES_AT_ONCE + 1].tolist()):
                    ids = np.asarray(tokens[start:end])
                    cuts = [0, *(np.flatnonzero(begins_word[ids][1:]) + 1).tolist(), len(ids)]
                    sentence = ids.tolist()
                    for first, last in pairwise(cuts if sentence else []):
                        word = tuple(sentence[first:last])
                        is_whole = last - first <= _MAX_PIECES or len(numbers) < _MAX_TYPES or word in numbers
                        for part in [word] if is_whole else zip(word):
                            words.append(numbers.setdefault(part, len(numbers)))
                    word_starts.append(n_before + len(words))
                new_counts = np.bincount(np.asarray(words, np.int32), minlength=len(numbers))
                new_counts[: len(counts)] += counts
                counts = new_counts
                file.write(words.tobytes())
            return cls(list(numbers), counts, _mapped(file, np.int32), np.asarray(word_starts, np.int64))


@dataclass(frozen=True)
class _Segmentations:
    """Segmentations of all word types: for type k the tokenizer's own at `first[k]`, then `draws[k]` drawn ones."""

    ids: Ragged  # of each segmentation
    first: Lengths  # (K,)
    draws: Lengths  # (K,)

    @classmethod
    def draw(cls, words: _Words, segmenter: Segmenter, rng: random.Random) -> "_Segmentations":
        draws = np.minimum(words.counts, MAX_DRAWS)
        tokens: list[int] = []
        starts = [0]
        for word, number in zip(words.types, draws.tolist(), strict=True):
            for segmentation in (list(word), *segmenter.draw(word, number, rng)):
                tokens += segmentation
                starts.append(len(tokens))
        first = np.cumsum(draws + 1) - draws - 1
        return cls(Ragged(np.array(tokens, np.int64), np.array(starts, np.int64)), first, draws)

    def choose(self, types: NDArray[np.int32], bounds: Lengths, most: int, rng: np.random.Generator) -> Any:
        """Return the concatenated ids and the lengths of sentences, given as word types and sentence bounds.

        A sentence that would have more than `most` ids keeps the tokenizer's own segmentation.
        """
        unsampled, sizes = self.first[types], np.diff(self.ids.starts)
        chosen = unsampled + rng.integers(1, self.draws[types], endpoint=True)
        tokens = row_sums(sizes[chosen], bounds)
        chosen = np.where(np.repeat(tokens > most, np.diff(bounds)), unsampled, chosen)
        return self.ids.select(chosen).values, row_sums(sizes[chosen], bounds)


class SampledCorpus:
    """A corpus with a different segmentation in each epoch, which the seed and the epoch decide.

    Sentences that would have more than `max_length` tokens, specials included, keep the tokenizers' own segmentation.
    The words and an epoch's tokens are in unnamed temporary files in `folder`. There is a segmenter for each side.
    """

    def __init__(
        self,
        corpus: EncodedCorpus,
        tokenizers: TokenizerPair,
        segmenters: Sequence[Segmenter],
        seed: int,
        max_length: int,
        folder: Path,
    ) -> None:
        self._seed, self._folder, self._source_format = seed, folder, corpus.source_format
        self._segmenters, self._most_ids = segmenters, most_ids(max_length, corpus.source_format)
        self._words = [_Words.split(*corpus.sides[side], t, folder) for side, t in zip(SIDES, tokenizers, strict=True)]
        self._dtypes = [corpus.sides[side].values.dtype for side in SIDES]

    def in_epoch(self, epoch: int) -> EncodedCorpus:
        """Return the sentences of an epoch."""
        sides = {side: self._segment(number, epoch) for number, side in enumerate(SIDES)}
        return EncodedCorpus(sides, self._source_format)

    def _segment(self, side: int, epoch: int) -> Ragged:
        words, dtype = self._words[side], self._dtypes[side]
        rng = np.random.Generator(np.random.PCG64([self._seed, epoch, side]))
        segmentations = _Segmentations.draw(words, self._segmenters[side], random.Random(int(rng.integers(2**63))))
        starts = np.zeros_like(words.starts)
        with tempfile.TemporaryFile(dir=self._folder) as file:
            for first in range(0, len(starts) - 1, _SENTENCES_AT_ONCE):
                bounds = words.starts[first : first + _SENTENCES_AT_ONCE + 1]
                types = words.words[bounds[0] : bounds[-1]]
                tokens, lengths = segmentations.choose(types, bounds - bounds[0], self._most_ids[side], rng)
                starts[first + 1 : first + len(bounds)] = lengths
                file.write(tokens.astype(dtype).tobytes())
            np.cumsum(starts, out=starts)
            return Ragged(_mapped(file, dtype), starts)


def _mapped(file: IO[bytes], dtype: Any) -> NDArray[Any]:
    """Map a file just written; an empty one cannot be mapped."""
    file.flush()
    return np.memmap(file, dtype=dtype, mode="r") if file.tell() else np.zeros(1, dtype)
