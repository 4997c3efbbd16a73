"""Word alignments of an encoded corpus: computed once from its tokens, stored, and mapped to the pieces of a batch.

B sentences of a batch   S, T positions of source and target   L tokens   V vocabulary   N sentences
"""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, pairwise
from pathlib import Path

import numpy as np

from mt.data.ragged import Array, Indices, Ragged, indexed
from mt.data.token_store import SIDES, EncodedCorpus
from mt.data.tokenizer import BYTES, SPACE
from mt.data.tokenizer_kinds import TextTokenizer, TokenizerPair
from mt.data.word_alignment import align_words
from mt.storage import atomic
from mt.text.words import is_single

ALIGNMENTS_VERSION = 2  # changes when the stored words or links do

_AT_ONCE, _PIECES = 2**16, 2**23  # sentences of a block, and its pieces with padding
_BASE = np.uint64(0x9E3779B97F4A7C15)  # of the polynomial that hashes a word's pieces


class PieceWords:
    """A mapping of one side's pieces to the words and punctuation marks of a text, however that is segmented."""

    def __init__(self, tokenizer: TextTokenizer) -> None:
        pieces = tokenizer.pieces
        # (V,), True for specials and language tags, which belong to no word.
        self.hidden = np.array([i in tokenizer.hidden for i in range(len(pieces))])
        texts = ["x" if piece in BYTES else piece.lstrip(SPACE) for piece in pieces]
        self._is_space = np.array([not text for text in texts]) & ~self.hidden
        begins = [piece.startswith(SPACE) or is_single(text[:1]) for piece, text in zip(pieces, texts, strict=True)]
        self._begins = np.array(begins) & ~self._is_space
        self._ends = np.array([is_single(text[-1:]) for text in texts]) | self._is_space | self.hidden
        self._inner = np.array([sum(is_single(a) or is_single(b) for a, b in pairwise(text)) for text in texts])
        names = [hashlib.blake2b(text.lower().encode(), digest_size=8).digest() for text in texts]
        self._keys = np.frombuffer(b"".join(names), np.uint64)

    def numbers(self, ids: Array) -> tuple[Array, Array]:
        """Return each token's word (B, L), counted within its sentence, and the number of words of each sentence (B,).

        Hidden tokens have the word -1.
        """
        hidden, is_space = self.hidden[ids], self._is_space[ids]
        follows_end = np.pad(self._ends[ids[:, :-1]], ((0, 0), (1, 0)), constant_values=True)
        begins = (self._begins[ids] | follows_end) & ~hidden & ~is_space
        inner = np.where(hidden, 0, self._inner[ids]).cumsum(axis=1)
        numbers = begins.cumsum(axis=1) - 1 + np.pad(inner[:, :-1], ((0, 0), (1, 0))) + is_space
        # A piece may hold several words and has the number of the first, so the last piece's are added here.
        ends = np.where(hidden, 0, numbers + self._inner[ids] + 1)
        return np.where(hidden, -1, numbers), ends.max(axis=1, initial=0)

    def keys(self, ids: Array) -> tuple[Array, Array]:
        """Return a hash of each word of sentences (B, L), in order, and the number of words of each sentence (B,)."""
        numbers, sizes = self.numbers(ids)
        rows, columns = np.nonzero(numbers >= 0)
        places = (np.cumsum(sizes) - sizes)[rows] + numbers[rows, columns]
        firsts = np.flatnonzero(np.diff(places, prepend=-1))
        position = np.arange(len(places)) - np.repeat(firsts, np.diff(firsts, append=len(places)))
        keys = np.zeros(int(sizes.sum()), np.uint64)
        np.add.at(keys, places, self._keys[ids[rows, columns]] * (_BASE ** position.astype(np.uint64)))
        return keys, sizes


@dataclass(frozen=True)
class Alignments:
    """The links between the words of an encoded corpus."""

    links: Array  # (source word, target word) of all sentences, one after another
    starts: Array  # (N + 1,), where each sentence's links begin
    sizes: Array  # (N, 2), number of words of source and target
    words: tuple[PieceWords, PieceWords]  # of source and target

    @classmethod
    def open(cls, folder: Path, tokenizers: TokenizerPair) -> "Alignments":
        """Map a folder that `write_alignments` wrote."""
        links, starts, sizes = (np.load(folder / f"{name}.npy", mmap_mode="r") for name in ("links", "starts", "sizes"))
        return cls(links, starts, sizes, (PieceWords(tokenizers.source), PieceWords(tokenizers.target)))

    def of_batch(self, sentences: Indices, src_tokens: Array, tgt_in: Array) -> Array:
        """Return True for the aligned positions of a batch (B, T, S), given its sentences' indices in the corpus (B,).

        Sentences whose number of words an augmentation has changed are not aligned.
        """
        (source, n_source), (target, n_target) = map(PieceWords.numbers, self.words, (src_tokens, tgt_in))
        n_words = np.stack([n_source, n_target], axis=1)
        is_linked = np.zeros((len(sentences), n_words[:, 1].max() + 1, n_words[:, 0].max() + 1), np.bool_)
        for row in np.flatnonzero((n_words == self.sizes[sentences]).all(axis=1)).tolist():
            links = self.links[self.starts[sentences[row]] : self.starts[sentences[row] + 1]]
            is_linked[row, links[:, 1], links[:, 0]] = True
        # Hidden tokens, whose word is -1, take the last row or column, which no link sets.
        return is_linked[np.arange(len(sentences))[:, None, None], target[:, :, None], source[:, None, :]]


def write_alignments(corpus: EncodedCorpus, tokenizers: TokenizerPair, folder: Path, key: str) -> None:
    """Align an encoded corpus and write the links of its words into `folder`, atomically."""
    sides = [_corpus_words(corpus, side, words) for side, words in zip(SIDES, tokenizers, strict=True)]
    counts = [0]

    def numbers() -> Iterator[int]:
        for sentence_links in align_words(*sides):
            counts.append(len(sentence_links))
            yield from chain.from_iterable(sentence_links)

    links = np.fromiter(numbers(), np.uint16).reshape(-1, 2)
    with atomic.new_folder(folder, key=key) as partial:
        np.save(partial / "links.npy", links)
        np.save(partial / "starts.npy", np.cumsum(counts))
        np.save(partial / "sizes.npy", np.stack([np.diff(side.starts) for side in sides], axis=1).astype(np.uint16))


def _corpus_words(corpus: EncodedCorpus, side: str, tokenizer: TextTokenizer) -> Ragged:
    """Return the words of one side as ids in the order of their keys."""
    words = PieceWords(tokenizer)
    pad = int(np.flatnonzero(words.hidden)[0])
    longest = int(np.diff(corpus.sides[side].starts).max(initial=1))
    at_once = max(1, min(_AT_ONCE, _PIECES // longest))  # sentences are padded to the longest

    def keys() -> Iterator[tuple[Array, Array]]:
        for start in range(0, len(corpus), at_once):
            ids, lengths = corpus.gather(side, np.arange(start, min(start + at_once, len(corpus))))
            yield words.keys(np.where(np.arange(ids.shape[1]) < lengths[:, None], ids, pad))

    _, blocks = indexed(keys())
    starts = np.cumsum(np.concatenate([[0], *(sizes for _, sizes in blocks)]))
    return Ragged(np.concatenate([numbers for numbers, _ in blocks]), starts)
