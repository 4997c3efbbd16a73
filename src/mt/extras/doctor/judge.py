"""Looks at pairs one by one: all that can be said of a pair without knowing the others."""

import re
from collections.abc import Iterator
from functools import cache
from hashlib import blake2b
from math import log
from pathlib import Path

import numpy as np

from mt.data.cleaning import EMPTY, GRACE, pair_hash, reason_to_drop
from mt.data.corpus import one_line
from mt.data.token_store import sentence_tokens
from mt.data.tokenizer import BpeTokenizer
from mt.extras.doctor.agreement import ends_differ, numbers_differ
from mt.extras.doctor.another_language import other_language
from mt.extras.doctor.characters import markup, mojibake, odd_characters
from mt.extras.doctor.chunks import HASHES, Chunk, Examples, Judged, Yardstick
from mt.extras.doctor.kinds import BIT
from mt.extras.doctor.scripts import foreign_letters
from mt.text.lines import nfc

Pair = tuple[str, str]
Found = tuple[str, str, int | None, int]  # kind, what to say, which side or both, and where in it

_IDENTICAL = 20  # letters from which text that is the same on both sides is more than a name
_TELLING = 12  # bytes of letters that make a sentence no everyday phrase
_LONGEST_PIECE = 50  # characters: a token stands for fewer
_TWO_LETTERS = re.compile(r"[^\W_][\W_]*[^\W_]")


def judge(chunk: Chunk) -> Judged:
    """Everything that is wrong with each pair on its own."""
    masks = [0] * len(chunk.pairs)
    judged = Judged(np.zeros(0, np.uint64), np.zeros(0, HASHES), Examples(chunk.examples))
    digests = []

    def add(number: int, found: Found) -> None:
        kind, note, side, place = found
        if not masks[number] & BIT[kind]:
            masks[number] |= BIT[kind]
            if judged.examples.wants(kind, chunk.split):
                judged.examples.add(kind, chunk.example(number, note, side, place))

    for number, raw in enumerate(chunk.pairs):
        pair = (one_line(raw[0]), one_line(raw[1]))
        digests.append(_digests(pair, chunk.yardstick.languages[1]))
        sampled = (chunk.first + number) % chunk.every == 0
        judged.sampled += sampled
        if problem := chunk.unreadable.get(number):
            side = int("\ufffd" not in raw[0])
            add(number, ("encoding", problem, side, raw[side].find("\ufffd")))
            continue
        for found in _faults(raw, pair, chunk.yardstick, sampled):
            add(number, found)
    for number, tokens in _too_long(chunk):
        add(number, ("too-long", tokens, None, 0))
    judged.masks = np.array(masks, np.uint64)
    judged.hashes = np.frombuffer(b"".join(digests), HASHES)
    return judged


def _faults(raw: Pair, pair: Pair, yardstick: Yardstick, sampled: bool) -> Iterator[Found]:
    for side, text in enumerate(raw):
        for kind, place, note in odd_characters(text, yardstick.scripts[side]):
            yield kind, note, side, place
        if not text.isascii():
            for kind, place, note in mojibake(text):
                yield kind, note, side, place
        for kind, place, note in markup(text):
            yield kind, note, side, place
        for kind, place, note in foreign_letters(text, yardstick.scripts[side]):
            yield kind, note, side, place
    for kind, note in _of_both_sides(pair, yardstick):
        yield kind, note, None, 0
    if sampled:
        for side in (0, 1):
            if yardstick.detectable[side] and (note := other_language(pair[side], yardstick.languages[side])):
                yield "language", note, side, 0


def _of_both_sides(pair: Pair, yardstick: Yardstick) -> Iterator[tuple[str, str]]:
    src, tgt = pair
    reason = reason_to_drop(src, tgt, yardstick.max_ratio)
    if reason == EMPTY:
        yield "empty", ""
        return
    lengths = f"{len(src):,} and {len(tgt):,} characters"
    middle, far = yardstick.ratio
    if reason is not None:
        yield "ratio", lengths
    elif abs(log((len(tgt) + GRACE) / (len(src) + GRACE)) - middle) > far:
        yield "unusual-ratio", lengths
    if nfc(src) == nfc(tgt) and any(map(str.isalpha, src)):
        yield "identical" if len(_letters(src)) >= _IDENTICAL else "same-words", ""
    if _TWO_LETTERS.search(src) is None or _TWO_LETTERS.search(tgt) is None:
        yield "short", ""
    if note := numbers_differ(src, tgt, yardstick.languages):
        yield "numbers", note
    if note := ends_differ(src, tgt, yardstick.languages):
        yield "punctuation", note


def _digests(pair: Pair, language: str) -> bytes:
    """The bytes of one of `HASHES`."""
    key = language.encode()
    src, tgt = map(nfc, pair)
    letters = [_letters(side).encode() for side in (src, tgt)]
    sides = (_hash(side, key) if len(side) >= _TELLING else bytes(8) for side in letters)
    both = _hash(b"\n".join(letters), key) if sum(map(len, letters)) >= 2 * _TELLING else bytes(8)
    return b"".join(
        (pair_hash(src, tgt, language), *(_hash(f"{side}\n".encode(), key) for side in (src, tgt)), both, *sides)
    )


def _letters(text: str) -> str:
    return "".join(filter(str.isalpha, text.casefold()))


def _hash(text: bytes, key: bytes) -> bytes:
    return blake2b(text, digest_size=8, key=key).digest()


def _too_long(chunk: Chunk) -> Iterator[tuple[int, str]]:
    """Pairs with more tokens than training takes, and how many; only those are encoded that can have them."""
    if chunk.yardstick.tokenizers is None:
        return
    pairs = [(one_line(src), one_line(tgt)) for src, tgt in chunk.pairs]
    limits = chunk.yardstick.max_length
    candidates = [
        number
        for number, pair in enumerate(pairs)
        if number not in chunk.unreadable
        # A token stands for at least a byte; and the marker of the first word is one more.
        and any(len(side.encode()) + 3 > limit for side, limit in zip(pair, limits, strict=True))
    ]
    tokenizers = [_tokenizer(path) for path in chunk.yardstick.tokenizers]
    cut = [limit * _LONGEST_PIECE for limit in limits]  # what lies beyond changes nothing
    counts = [
        [len(ids) for ids in tokenizer.encode_batch([pairs[number][side][: cut[side]] for number in candidates])]
        for side, tokenizer in enumerate(tokenizers)
    ]
    for number, *lengths in zip(candidates, *counts, strict=True):
        tokens = sentence_tokens(*lengths)
        if any(n > limit for n, limit in zip(tokens, limits, strict=True)):
            at_least = any(len(side) > most for side, most in zip(pairs[number], cut, strict=True))
            yield number, f"{'at least ' if at_least else ''}{max(tokens):,} tokens"


@cache
def _tokenizer(path: Path) -> BpeTokenizer:
    return BpeTokenizer.load(path)
