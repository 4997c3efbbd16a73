"""Augmentation on the fly: in each epoch some training sentences are changed and encoded again.

The text of a sentence is decoded from its tokens, so that nothing but the encoded corpus is read. Which sentences
change, and how, is a pure function of (seed, epoch, index of the sentence).

    N sentences
"""

import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, islice, pairwise, takewhile
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mt.config import Config
from mt.data.augmentation import Languages, Pair, augment
from mt.data.batching import Sentences, TrainingCorpus
from mt.data.bidirectional import reversed_pairs
from mt.data.inline_terms import annotate, draw_terms, encode_annotated
from mt.data.shuffle import hash_indices
from mt.data.subword_sampling import Lattice, Merges
from mt.data.token_store import SIDES, EncodedCorpus, Ids, Indices, Lengths, Ragged, most_ids
from mt.data.tokenizer import EOS_ID, SPACE, SPECIALS, TokenizerPair
from mt.data.tokenizer_kinds import TextTokenizer

_AT_ONCE = 4096  # sentences
_STREAM = 2**32 - 3  # keeps the keys apart from those of other draws of an epoch
_TOKENIZER_EPOCH = 2**32 - 1

Changed = dict[int, tuple[list[int], list[int]]]  # token ids of both sides, by row


def _keys(seed: int, epoch: int) -> NDArray[np.uint64]:
    keys = np.random.SeedSequence([seed, epoch, _STREAM]).generate_state(2, np.uint64)
    return np.asarray(keys, np.uint64)


def choose_kinds(indices: Indices, shares: Mapping[str, float], seed: int, epoch: int) -> NDArray[np.int64]:
    """Return the number of the change (N,) that each sentence gets; `len(shares)`: none."""
    uniform = (hash_indices(indices, _keys(seed, epoch)[0]) >> np.uint64(11)) * 2.0**-53
    return np.searchsorted(np.cumsum(list(shares.values())), uniform, side="right")


def languages_of(config: Config) -> Languages:
    """Return the languages of a configuration; empty where a side has several."""
    source, target = (
        codes[0] if len(codes) == 1 else "" for codes in (config.data.source_lang, config.data.target_lang)
    )
    return Languages(source, target)


@dataclass(frozen=True)
class CasedLines:
    """Training text of a tokenizer, of which shares are in the case of the augmented sentences.

    Capitals would otherwise be spelt in single letters. Other changes need no pieces of their own: spans that no text
    has, such as emoji, are spelt in bytes, and so are those that users write. Which lines change
    does not depend on the run's seed, so that models of several seeds have one vocabulary.
    """

    lines: Iterable[str]
    cases: Mapping[str, float]
    language: str

    def __iter__(self) -> Iterator[str]:
        names, languages, rng = list(self.cases), Languages(self.language, self.language), random.Random(0)
        lines, first = iter(self.lines), 0
        while some := list(islice(lines, _AT_ONCE)):
            kinds = choose_kinds(np.arange(first, first + len(some)), self.cases, 0, _TOKENIZER_EPOCH)
            for line, kind in zip(some, kinds.tolist(), strict=True):
                pair = line, line
                yield augment(names[kind], pair, pair, rng, languages)[0] if kind < len(names) else line
            first += len(some)


class _Text(NamedTuple):
    """A sentence: its text, its ids, and those of the tags and the end around it.

    The text is empty if there are specials within it, such as unknown characters.
    """

    text: str
    ids: list[int]
    before: list[int]
    after: list[int]


class _TextPair(NamedTuple):
    """Both sides of a pair, and their languages: the opposite ones where bidirectional training reverses it."""

    source: _Text
    target: _Text
    languages: Languages


class _Encoder:
    """Text of one side's token ids and back, with the tags and the end around it."""

    def __init__(self, tokenizer: TextTokenizer, segmenter: Merges | Lattice | None) -> None:
        self._tokenizer, self._segmenter = tokenizer, segmenter
        self._edges = {EOS_ID, *tokenizer.tags.values()}
        self._hidden = {*range(len(SPECIALS)), *self._edges}
        self._begins_word = {
            i for i, piece in enumerate(tokenizer.tokens(range(tokenizer.vocab_size))) if piece.startswith(SPACE)
        }

    def decode(self, ids: Ids, lengths: Lengths) -> list[_Text]:
        """Return the texts of sentences (N, L)."""
        rows = [row[:length].tolist() for row, length in zip(ids, lengths.tolist(), strict=True)]
        texts = []
        for row, text in zip(rows, self._tokenizer.decode_batch(rows), strict=True):
            before = list(takewhile(self._edges.__contains__, row))
            after = list(takewhile(self._edges.__contains__, reversed(row[len(before) :])))[::-1]
            inner = row[len(before) : len(row) - len(after)]
            texts.append(_Text(text if self._hidden.isdisjoint(inner) else "", inner, before, after))
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
    """A corpus of which shares of the sentences are changed in each epoch.

    Args:
        corpus: the pairs without changes.
        tokenizers: those that encoded it.
        shares: of the sentences that are changed, by kind: a key of the configuration's `augmentation` section.
        seed: with the epoch and a sentence's index, decides on its change.
        max_length: pairs that a change would make longer on a side, in tokens with specials, stay as they are.
        languages: of both sides, in the wanted direction; of a corpus of several parts, those of each.
        segmenters: of subword regularisation, for both sides; none: the tokenizers' own segmentation.
        lexicon: translations of words, for the kind `terms`.
        ends: (P,), the index behind each part's last sentence, if there are several.
    """

    corpus: TrainingCorpus
    tokenizers: TokenizerPair
    shares: Mapping[str, float]
    seed: int
    max_length: int
    languages: Sequence[Languages]
    segmenters: Sequence[Merges | Lattice] = ()
    lexicon: Mapping[str, Sequence[str]] = field(default_factory=dict)
    ends: Sequence[int] = ()

    def in_epoch(self, epoch: int) -> Sentences:
        """Return the sentences of an epoch, which are changed where a window selects them."""
        segmenters = self.segmenters or (None, None)
        encoders = [_Encoder(*both) for both in zip(self.tokenizers, segmenters, strict=True)]
        return _AugmentedSentences(self, self.corpus.in_epoch(epoch), epoch, encoders)


@dataclass(frozen=True)
class _AugmentedSentences:
    """An epoch of an augmented corpus; it is `select` that changes sentences."""

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
        changed: Changed = {}
        for first in range(0, len(rows), _AT_ONCE):
            some = rows[first : first + _AT_ONCE]
            changed |= self._change(plain, some, indices[some], kinds[some])
        return replace(plain, sides={side: _replaced(plain, side, changed) for side in SIDES})

    def _change(self, plain: EncodedCorpus, rows: Indices, indices: Indices, kinds: NDArray[np.int64]) -> Changed:
        """Return the new token ids of some rows of `plain`, but of those that cannot change or would be too long."""
        settings, names = self.settings, list(self.settings.shares)
        rngs = list(map(random.Random, hash_indices(indices, _keys(settings.seed, self.epoch)[1]).tolist()))
        own = self._texts(plain, rows, indices)
        following = list(own)
        if "merge" in names:
            merged = np.flatnonzero(kinds == names.index("merge"))
            others = (indices[merged] + 1) % len(self)
            found = self._texts(self.sentences.select(others), np.arange(len(others)), others)
            for row, texts in zip(merged.tolist(), found, strict=True):
                following[row] = texts
        pairs = [
            _changed(names[kind], texts, others, rng, settings)
            for kind, texts, others, rng in zip(kinds.tolist(), own, following, rngs, strict=True)
        ]
        texts_of_sides = list(zip(*own, strict=True))[: len(SIDES)]
        sides = zip(self.encoders, texts_of_sides, zip(*pairs, strict=True), strict=True)
        encoded = [encoder.encode(texts, new, rngs, settings.max_length) for encoder, texts, new in sides]
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
        own, is_reversed = map(self.settings.languages.__getitem__, parts), reversed_pairs(self.sentences, indices)
        languages = [Languages(*each[:: -1 if r else 1]) for each, r in zip(own, is_reversed, strict=True)]
        return list(map(_TextPair, source, target, languages))


def _changed(kind: str, own: _TextPair, following: _TextPair, rng: random.Random, settings: AugmentedCorpus) -> Pair:
    """Change a pair, if both of its texts are known and, to be merged, the next one's are.

    Pairs with other tags or in the opposite direction are not merged.
    """
    pair, other = ((each.source.text, each.target.text) for each in (own, following))
    if kind == "terms":
        return annotate(pair[0], draw_terms(pair, settings.lexicon, rng)), pair[1]
    forms = [(each.source[2:], each.target[2:], each.languages) for each in (own, following)]
    fitting = all(other) and forms[0] == forms[1]
    return augment(kind, pair, other, rng, own.languages) if all(pair) and (fitting or kind != "merge") else pair


def _replaced(plain: EncodedCorpus, side: str, changed: Changed) -> Ragged:
    """Return the sentences of a side, some of them replaced."""
    old, new = plain.sides[side], [sides[SIDES.index(side)] for sides in changed.values()]
    added = Ragged(np.fromiter(chain(*new), old.values.dtype), np.cumsum([0, *map(len, new)]))
    rows = np.arange(len(plain))
    rows[list(changed)] = len(plain) + np.arange(len(new))
    return old.followed_by(added).select(rows)
