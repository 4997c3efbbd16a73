"""Checks of single pairs, run in worker processes."""

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from hashlib import blake2b
from itertools import chain
from math import log

import numpy as np
import regex

from mt.data.cleaning import EMPTY, GRACE, pair_hash, reason_to_drop
from mt.data.corpus import Pair, one_line
from mt.data.sentence_format import sentence_tokens
from mt.data.tokenizer_kinds import read_tokenizer
from mt.extras.doctor.characters import Issue, markup, mojibake, suspicious_characters
from mt.extras.doctor.consistency import end_mismatch, number_mismatch
from mt.extras.doctor.findings import HASHES, Chunk, ChunkResult, Criteria, Findings
from mt.extras.doctor.line_languages import other_languages
from mt.extras.doctor.repair import REPAIRABLE, repaired
from mt.extras.doctor.rules import BIT
from mt.extras.doctor.scripts import foreign_letters, scripts_of
from mt.extras.doctor.word_hashes import frame_hashes, hash_words
from mt.text.lines import nfc

_MIN_COPIED = 20  # letters of a copied sentence; a shorter one may be a name
_MIN_COMPARED = 12  # bytes of letters; shorter sentences are everyday phrases
_REPAIRABLE_BITS = sum(BIT[rule] for rule in REPAIRABLE)
_LONGEST_PIECE = 50  # characters: no token has more
_NO_LETTERS = regex.compile(r"[^\p{L}\p{M}]+")  # vowel signs are marks
_TWO_LETTERS = re.compile(r"[^\W_][\W_]*[^\W_]")


def check_chunk(chunk: Chunk) -> ChunkResult:
    """Apply every rule that needs no other pair."""
    masks = [0] * len(chunk.pairs)
    pairs = [(one_line(src), one_line(tgt)) for src, tgt in chunk.pairs]
    target_lang = chunk.criteria.languages[1]
    words = hash_words([src for src, _ in pairs]), hash_words([tgt for _, tgt in pairs], target_lang)
    findings, digests = Findings(chunk.max_examples), []

    def add(index: int, rule: str, note: str, side: int | None = None, position: int = 0) -> None:
        if not masks[index] & BIT[rule]:
            masks[index] |= BIT[rule]
            if findings.wants(rule, chunk.split):
                findings.show(rule, chunk.example(index, note, side, position))

    for index, (raw, pair) in enumerate(zip(chunk.pairs, pairs, strict=True)):
        digests.append(_digests(pair, chunk.criteria.direction))
        if error := chunk.encoding_errors.get(index):
            side = int("\ufffd" not in raw[0])
            add(index, "encoding", error, side, raw[side].find("\ufffd"))
            continue
        for side, (text, scripts) in enumerate(zip(raw, chunk.criteria.scripts, strict=True)):
            for rule, position, note in chain(_repairable_issues(text, scripts), foreign_letters(text, scripts)):
                add(index, rule, note, side, position)
        for rule, note in _compare_sides(pair, chunk.criteria):
            add(index, rule, note)
        if masks[index] & _REPAIRABLE_BITS:
            findings.repairable.update(_repairable(raw, masks[index], chunk.criteria))
    for side in (0, 1):
        for index, note in other_languages([pair[side] for pair in pairs], chunk.criteria.languages, side):
            if index not in chunk.encoding_errors:
                add(index, "language", note, side)
    for index, note in _too_long(chunk, pairs):
        add(index, "too-long", note)
    hashes, frames = np.frombuffer(b"".join(digests), HASHES), frame_hashes(words, chunk.criteria.frequent)
    return ChunkResult(np.array(masks, np.uint64), hashes, words, frames, findings)


def _repairable(raw: Pair, mask: int, criteria: Criteria) -> set[str]:
    """Return the rules that a pair of these rule bits no longer breaks once it is repaired."""
    broken = {rule for rule in REPAIRABLE if mask & BIT[rule]}
    for text, code, scripts in zip(raw, criteria.languages, criteria.scripts, strict=True):
        text, _ = repaired(text, scripts_of(code))  # cleaning detects no scripts
        broken -= {rule for rule, *_ in _repairable_issues(text, scripts)}
    return broken


def _repairable_issues(text: str, scripts: frozenset[str]) -> Iterator[Issue]:
    return chain(suspicious_characters(text, scripts), mojibake(text), markup(text))


def _compare_sides(pair: Pair, criteria: Criteria) -> Iterator[tuple[str, str]]:
    src, tgt = pair
    reason = reason_to_drop(src, tgt, criteria.max_ratio)
    if reason == EMPTY:
        yield "empty", ""
        return
    lengths = f"{len(src):,} and {len(tgt):,} characters"
    median, max_deviation = criteria.typical_ratio
    if reason is not None:
        yield "ratio", lengths
    elif abs(log((len(tgt) + GRACE) / (len(src) + GRACE)) - median) > max_deviation:
        yield "unusual-ratio", lengths
    if nfc(src) == nfc(tgt) and any(map(str.isalpha, src)) and not criteria.same_language:
        yield "identical" if len(_letters(src)) >= _MIN_COPIED else "same-words", ""
    if _TWO_LETTERS.search(src) is None or _TWO_LETTERS.search(tgt) is None:
        yield "short", ""
    if note := number_mismatch(src, tgt, criteria.languages):
        yield "numbers", note
    if note := end_mismatch(src, tgt, criteria.languages):
        yield "punctuation", note


def _digests(pair: Pair, direction: str) -> bytes:
    """Return the bytes of one item of dtype `HASHES`."""
    key = direction.encode()[:64]
    src, tgt = map(nfc, pair)
    letters = [_letters(side).encode() for side in (src, tgt)]
    sides = (_hash(side, key) if len(side) >= _MIN_COMPARED else bytes(8) for side in letters)
    both = _hash(b"\n".join(letters), key) if sum(map(len, letters)) >= 2 * _MIN_COMPARED else bytes(8)
    sentences = (_hash(f"{side}\n".encode(), key) for side in (src, tgt))
    return b"".join((pair_hash(src, tgt, direction), *sentences, both, *sides))


def _letters(text: str) -> str:
    return str(_NO_LETTERS.sub("", text.casefold()))


def _hash(text: bytes, key: bytes) -> bytes:
    return blake2b(text, digest_size=8, key=key).digest()


def _too_long(chunk: Chunk, pairs: Sequence[Pair]) -> Iterator[tuple[int, str]]:
    """Yield the index and token count of pairs beyond max_length, encoding only those that can be."""
    if chunk.criteria.tokenizers is None:
        return
    limits = chunk.criteria.max_length
    candidates = [
        index
        for index, pair in enumerate(pairs)
        if index not in chunk.encoding_errors
        # A token stands for at least a byte; the first word's marker is one more.
        and any(len(side.encode()) + 3 > limit for side, limit in zip(pair, limits, strict=True))
    ]
    cut = [limit * _LONGEST_PIECE for limit in limits]  # enough characters to exceed the limit
    counts = [
        [len(ids) for ids in _load(path).encode_batch([pairs[index][side][: cut[side]] for index in candidates])]
        for side, path in enumerate(chunk.criteria.tokenizers)
    ]
    for index, *lengths in zip(candidates, *counts, strict=True):
        tokens = sentence_tokens(*lengths)
        if any(n > limit for n, limit in zip(tokens, limits, strict=True)):
            was_cut = any(len(side) > most for side, most in zip(pairs[index], cut, strict=True))
            yield index, f"{'at least ' if was_cut else ''}{max(tokens):,} tokens"


_load = lru_cache(maxsize=8)(read_tokenizer)  # never stale: each check writes its tokenizers to new paths
