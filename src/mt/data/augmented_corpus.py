"""Augmentation on the fly: in each epoch some training sentences are changed and encoded again.

The text of a sentence is decoded from its tokens, so that nothing but the encoded corpus is read. Which sentences
change, and how, is a pure function of (seed, epoch, index of the sentence).

    N sentences   L tokens of the longest   P parts of the corpus
"""

import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, islice, pairwise, takewhile
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mt.data.augmentation import Pair, augment
from mt.data.batching import Sentences, TrainingCorpus
from mt.data.bidirectional import reversed_pairs
from mt.data.inline_terms import annotate, draw_terms, encode_annotated, is_marked
from mt.data.ragged import Indices, Lengths, Ragged
from mt.data.sentence_format import most_ids
from mt.data.shuffle import draw_bits
from mt.data.subword_sampling import Segmenter
from mt.data.token_store import SIDES, EncodedCorpus, Ids
from mt.data.tokenizer import EOS_ID, SPACE
from mt.data.tokenizer_kinds import TextTokenizer, TokenizerPair

_AT_ONCE = 4096  # sentences
_STREAM = 2**32 - 3  # a seed that keeps these draws apart from others of an epoch
_TOKENIZER_EPOCH = 2**32 - 1  # no epoch of training

_Changes = dict[int, tuple[list[int], list[int]]]  # token ids of both sides, by row


def choose_kinds(indices: Indices, shares: Mapping[str, float], seed: int, epoch: int) -> NDArray[np.int64]:
    """Return the index in `shares` (N,) of each sentence's change; `len(shares)` stands for none."""
    uniform = (draw_bits(indices, seed, epoch, _STREAM) >> np.uint64(11)) * 2.0**-53
    return np.searchsorted(np.cumsum(list(shares.values())), uniform, side="right")


@dataclass(frozen=True)
class CasedLines:
    """Training text of a tokenizer with a share of its lines in upper, title or lower case, as augmentation has them.

    Capitals would otherwise be spelt letter by letter. Other kinds of augmentation need no pieces of their own:
    characters that the text lacks, such as emoji, are spelt in bytes, as they will be in users' text. The choice of
    lines is independent of the run's seed, so that runs with different seeds share one vocabulary.
    """

    lines: Iterable[str]
    cases: Mapping[str, float]
    language: str

    def __iter__(self) -> Iterator[str]:
        names, languages, rng = list(self.cases), (self.language, self.language), random.Random(0)
        lines, first = iter(self.lines), 0
        while chunk := list(islice(lines, _AT_ONCE)):
            kinds = choose_kinds(np.arange(first, first + len(chunk)), self.cases, 0, _TOKENIZER_EPOCH)
            for line, kind in zip(chunk, kinds.tolist(), strict=True):
                pair = line, line
                yield augment(names[kind], pair, pair, rng, languages)[0] if kind < len(names) else line
            first += len(chunk)


class _Text(NamedTuple):
    """A sentence's text and token ids, and the ids of the tags and EOS before and after it.

    The text is empty if it could not be encoded again: its ids contain specials, such as `<unk>`, or it is marked.
    """

    text: str
    ids: list[int]
    before: list[int]
    after: list[int]


class _TextPair(NamedTuple):
    """Both sides of a pair, and their languages: the opposite ones where bidirectional training reverses it."""

    source: _Text
    target: _Text
    languages: Pair


class _Encoder:
    """A codec between one side's token ids and text that keeps the tags and EOS around a sentence apart."""

    def __init__(self, tokenizer: TextTokenizer, segmenter: Segmenter | None) -> None:
        self._tokenizer, self._segmenter = tokenizer, segmenter
        self._edges = {EOS_ID, *tokenizer.tags.values()}
        self._begins_word = {i for i, piece in enumerate(tokenizer.pieces) if piece.startswith(SPACE)}

    def decode(self, ids: Ids, lengths: Lengths) -> list[_Text]:
        """Return the texts of sentences, given as ids (N, L) and lengths (N,)."""
        rows = [row[:length].tolist() for row, length in zip(ids, lengths.tolist(), strict=True)]
        texts = []
        for row, text in zip(rows, self._tokenizer.decode_batch(rows), strict=True):
            before = list(takewhile(self._edges.__contains__, row))
            after = list(takewhile(self._edges.__contains__, reversed(row[len(before) :])))[::-1]
            inner = row[len(before) : len(row) - len(after)]
            is_usable = self._tokenizer.hidden.isdisjoint(inner) and not is_marked(self._tokenizer, text)
            texts.append(_Text(text if is_usable else "", inner, before, after))
        return texts

    def encode(
        self, texts: Sequence[_Text], changed: Sequence[str], rngs: Sequence[random.Random], max_length: int
    ) -> list[list[int]]:
        """Return the ids of changed texts, with subword regularisation where there is a segmenter."""
        rows = [row for row, (text, new) in enumerate(zip(texts, changed, strict=True)) if text.text != new]
        encoded = [text.ids for text in texts]
        new = encode_annotated(self._tokenizer, [changed[row] for row in rows], max_length)
        for row, ids in zip(rows, new, strict=True):
            encoded[row] = ids if self._segmenter is None else list(self._segmented(ids, rngs[row]))
        return [[*text.before, *ids, *text.after] if ids else [] for text, ids in zip(texts, encoded, strict=True)]

    def _segmented(self, ids: list[int], rng: random.Random) -> Iterator[int]:
        assert self._segmenter is not None
        for start, end in pairwise([0, *(i for i, p in enumerate(ids) if i and p in self._begins_word), len(ids)]):
            [drawn] = self._segmenter.draw(ids[start:end], 1, rng)
            yield from drawn


@dataclass(frozen=True)
class AugmentedCorpus:
    """A corpus in which shares of the sentences, drawn again in each epoch, are augmented.

    Pairs that a change would make longer than `max_length` on a side, in tokens with specials, stay as they are.
    """

    corpus: TrainingCorpus  # the pairs without changes
    tokenizers: TokenizerPair  # those that encoded it
    shares: Mapping[str, float]  # of the sentences, by kind of change: the configuration's `augmentation` section
    seed: int
    max_length: int
    languages: Sequence[Pair]  # of each part of the corpus, in the wanted direction
    segmenters: Sequence[Segmenter] = ()  # of subword regularisation, for both sides
    lexicon: Mapping[str, Sequence[str]] = field(default_factory=dict)  # translations of words, for the kind `terms`
    ends: Sequence[int] = ()  # (P,), the index behind each part's last sentence, if there are several

    def in_epoch(self, epoch: int) -> Sentences:
        """Return the sentences of an epoch."""
        segmenters = self.segmenters or (None, None)
        encoders = [_Encoder(*both) for both in zip(self.tokenizers, segmenters, strict=True)]
        return _AugmentedSentences(self, self.corpus.in_epoch(epoch), epoch, encoders)


@dataclass(frozen=True)
class _AugmentedSentences:
    """An epoch of an augmented corpus; sentences are changed when they are selected."""

    settings: AugmentedCorpus
    sentences: Sentences
    epoch: int
    encoders: Sequence[_Encoder]

    def __len__(self) -> int:
        return len(self.sentences)

    def select(self, indices: Indices) -> EncodedCorpus:
        """Copy some sentences into memory, changed or not."""
        plain = self.sentences.select(indices)
        kinds = choose_kinds(indices, self.settings.shares, self.settings.seed, self.epoch)
        rows = np.flatnonzero(kinds < len(self.settings.shares))
        changes: _Changes = {}
        for first in range(0, len(rows), _AT_ONCE):
            chunk = rows[first : first + _AT_ONCE]
            changes |= self._change(plain, chunk, indices[chunk], kinds[chunk])
        return replace(plain, sides={side: _replaced(plain, side, changes) for side in SIDES})

    def _change(self, plain: EncodedCorpus, rows: Indices, indices: Indices, kinds: NDArray[np.int64]) -> _Changes:
        """Return the new token ids of some rows of `plain`, without those that would be empty or too long."""
        settings, names = self.settings, list(self.settings.shares)
        rngs = list(map(random.Random, draw_bits(indices, settings.seed, self.epoch, _STREAM, number=1).tolist()))
        pairs = self._texts(plain, rows, indices)
        following = list(pairs)
        if "merge" in names:
            merged = np.flatnonzero(kinds == names.index("merge"))
            successors = (indices[merged] + 1) % len(self)
            texts = self._texts(self.sentences.select(successors), np.arange(len(successors)), successors)
            for row, pair in zip(merged.tolist(), texts, strict=True):
                following[row] = pair
        changed = [
            _changed(names[kind], pair, successor, rng, settings)
            for kind, pair, successor, rng in zip(kinds.tolist(), pairs, following, rngs, strict=True)
        ]
        old_sides = [pair.source for pair in pairs], [pair.target for pair in pairs]
        sides = zip(self.encoders, old_sides, zip(*changed, strict=True), strict=True)
        encoded = [encoder.encode(old, new, rngs, settings.max_length) for encoder, old, new in sides]
        most = most_ids(settings.max_length, plain.source_format)
        return {
            row: (source, target)
            for row, source, target in zip(rows.tolist(), *encoded, strict=True)
            if 0 < len(source) <= most[0] and 0 < len(target) <= most[1]
        }

    def _texts(self, plain: EncodedCorpus, rows: Indices, indices: Indices) -> list[_TextPair]:
        source, target = (
            encoder.decode(*plain.gather(side, rows)) for encoder, side in zip(self.encoders, SIDES, strict=True)
        )
        parts = np.searchsorted(self.settings.ends, indices, side="right").tolist()
        wanted = (self.settings.languages[part] for part in parts)
        languages = [
            pair[::-1] if is_reversed else pair
            for pair, is_reversed in zip(wanted, reversed_pairs(self.sentences, indices), strict=True)
        ]
        return list(map(_TextPair, source, target, languages))


def _changed(kind: str, pair: _TextPair, following: _TextPair, rng: random.Random, settings: AugmentedCorpus) -> Pair:
    """Change a pair whose texts are both known; merge it only with such a pair of the same tags and direction."""
    texts, next_texts = ((p.source.text, p.target.text) for p in (pair, following))
    if kind == "terms":
        return annotate(texts[0], draw_terms(texts, settings.lexicon, rng)), texts[1]
    contexts = [(p.source[2:], p.target[2:], p.languages) for p in (pair, following)]  # tags before and after
    is_mergeable = all(next_texts) and contexts[0] == contexts[1]
    if not all(texts) or (kind == "merge" and not is_mergeable):
        return texts
    return augment(kind, texts, next_texts, rng, pair.languages)


def _replaced(plain: EncodedCorpus, side: str, changes: _Changes) -> Ragged:
    """Return the sentences of a side, some of them replaced."""
    old, new = plain.sides[side], [sides[SIDES.index(side)] for sides in changes.values()]
    added = Ragged(np.fromiter(chain(*new), old.values.dtype), np.cumsum([0, *map(len, new)]))
    rows = np.arange(len(plain))
    rows[list(changes)] = len(plain) + np.arange(len(new))
    return old.followed_by(added).select(rows)
