"""Words of many sentences as 64-bit hashes, by array operations on all their characters.

A frame is a sentence with slots for rare words, names and numbers; pairs with the same frames are of one template.

N sentences   W words of all of them   C characters
"""

import re
import unicodedata
from collections.abc import Sequence
from difflib import SequenceMatcher
from functools import cache
from hashlib import blake2b
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mt.data.ragged import positions_in, ranges, row_sums
from mt.data.shuffle import mixed
from mt.text.lines import nfc

Hashes = NDArray[np.uint64]

_IN_WORD, _WORD = 1, 2  # a letter of a word; a letter that is a word: Han and hiragana are written without spaces
_WORD_RANGES = ((0x3041, 0x309F), (0x3400, 0x4DBF), (0x4E00, 0x9FFF), (0xF900, 0xFAFF), (0x20000, 0x3134F))
_LAST = 0x31FFF  # no letters have higher code points
_MULTIPLIERS = np.random.default_rng(0).integers(0, 2**64, 256, np.uint64) | np.uint64(1)

_SLOT = " ⟨…⟩"
MIN_FAMILY = 10  # different pairs of a template

_MIN_RATE, _MIN_COUNT = 0.002, 10  # occurrences of a frequent word: per sentence, and in all
_MIN_WORDS = 3  # frequent words of a frame, which are also at least half of the sentence
_TOKEN = re.compile(r"\s*(?:[^\W\d_\u3041-\u309f\u3400-\u9fff]+|\S)")


class Words(NamedTuple):
    """The words of sentences, one sentence after another."""

    hashes: Hashes  # (W,)
    counts: NDArray[np.int64]  # words of each sentence (N,)

    @property
    def sentences(self) -> NDArray[np.int64]:
        """Return the sentence of each word (W,)."""
        return np.repeat(np.arange(len(self.counts)), self.counts)

    def sums(self, values: NDArray[Any]) -> Hashes:
        """Return the sum modulo 2**64 of the values (W,) of each sentence (N,)."""
        return row_sums(values.astype(np.uint64), np.append(0, np.cumsum(self.counts)))


def hash_words(texts: Sequence[str], key: str = "") -> Words:
    """Return the words of sentences without line ends (N,), ignoring case, digits, punctuation and spaces.

    With different keys, all hashes differ. Exchanging letters 256 places apart in a word does not change its hash.
    """
    text = nfc("\n".join(texts).casefold()) + "\n"
    codes = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)
    kinds = _kinds()[np.minimum(codes, _LAST)]
    first = kinds > 0
    first[1:] &= (kinds[1:] == _WORD) | (kinds[:-1] != _IN_WORD)
    starts = np.flatnonzero(first)
    ends = np.flatnonzero(codes == ord("\n"))[: len(texts)]
    counts = np.diff(np.searchsorted(starts, ends), prepend=0)
    if not len(starts):
        return Words(np.zeros(0, np.uint64), counts)
    lengths = np.diff(starts, append=len(codes))  # including the spaces and marks after a word, which add 0
    offsets = np.arange(starts[0], len(codes)) - np.repeat(starts, lengths)
    values = _MULTIPLIERS[offsets & 255] * np.where(kinds[starts[0] :] > 0, codes[starts[0] :], 0)
    hashes = np.add.reduceat(values, starts - starts[0])
    return Words(mixed(hashes) ^ np.frombuffer(blake2b(key.encode(), digest_size=8).digest(), np.uint64), counts)


@cache
def _kinds() -> NDArray[np.uint8]:
    letters = (unicodedata.category(chr(code))[0] in "LM" for code in range(_LAST + 1))
    kinds = np.fromiter(letters, np.uint8, _LAST + 1)
    for low, high in _WORD_RANGES:
        kinds[low : high + 1] *= _WORD
    return kinds


def frequent_words(texts: Sequence[str], key: str = "") -> Hashes:
    """Return the hashes of the words that a frame can have, in ascending order; `key` as for `hash_words`."""
    hashes, counts = np.unique(hash_words(texts, key).hashes, return_counts=True)
    return hashes[counts >= max(_MIN_RATE * len(texts), _MIN_COUNT)]


def frame_hashes(words: Sequence[Words], frequent: Sequence[Hashes]) -> Hashes:
    """Return a hash of the two frames of each pair (N,), 0 if a side has none; words not in `frequent` are slots."""
    frames = np.zeros(len(words[0].counts), np.uint64)
    framed = np.ones(len(frames), bool)
    for side, known in zip(words, frequent, strict=True):
        kept = positions_in(side.hashes, known) >= 0
        n_kept = side.sums(kept).astype(np.int64)
        framed &= (n_kept >= _MIN_WORDS) & (2 * n_kept >= side.counts) & (n_kept < side.counts)
        # Consecutive rare words are one slot.
        begins_slot = np.ones(len(kept), bool)
        begins_slot[1:] = kept[:-1]
        begins_slot[(np.cumsum(side.counts) - side.counts)[side.counts > 0]] = True
        is_token = kept | begins_slot
        tokens = Words(np.where(kept, side.hashes, 0)[is_token], side.sums(is_token).astype(np.int64))
        positions = ranges(np.zeros_like(tokens.counts), tokens.counts).astype(np.uint64)
        frames = mixed(frames + tokens.sums(mixed(tokens.hashes + mixed(positions))))
    return np.where(framed, frames, 0)


def common_frame(texts: Sequence[str]) -> str:
    """Return the words that all texts of a template share, with slots between them."""
    frame = _TOKEN.findall(texts[0])
    for text in texts[1:]:
        common: list[str] = []
        for name, start, end, *_ in SequenceMatcher(None, frame, _TOKEN.findall(text), autojunk=False).get_opcodes():
            common += frame[start:end] if name == "equal" else [] if common[-1:] == [_SLOT] else [_SLOT]
        frame = common
    return "".join(frame).strip()
