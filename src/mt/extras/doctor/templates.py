"""Templates: families of pairs that are the same on both sides but for rare words, names and numbers.

N pairs   W words of all of them
"""

import re
from collections.abc import Sequence
from difflib import SequenceMatcher

import numpy as np

from mt.extras.doctor.word_hashes import Hashes, Words, hash_words, mixed, positions_in

SLOT = " ⟨…⟩"
MIN_FAMILY = 10  # different pairs of a template

_SHARE, _MIN_COUNT = 0.002, 10  # occurrences of a frequent word, per sentence and in all
_MIN_WORDS = 3  # frequent words of a frame, at least half of the sentence
_TOKEN = re.compile(r"\s*(?:[^\W\d_\u3041-\u309f\u3400-\u9fff]+|\S)")


def frequent_words(texts: Sequence[str], key: str = "") -> Hashes:
    """Return the hashes of the words that a frame can have, in ascending order; `key` as of `hash_words`."""
    hashes, counts = np.unique(hash_words(texts, key).hashes, return_counts=True)
    return hashes[counts >= max(_SHARE * len(texts), _MIN_COUNT)]


def frame_hashes(words: Sequence[Words], frequent: Sequence[Hashes]) -> Hashes:
    """Return a hash of the frames of both sides (N,): words that are not frequent are slots; 0 is a pair without."""
    both = np.zeros(len(words[0].counts), np.uint64)
    framed = np.ones(len(both), bool)
    for side, known in zip(words, frequent, strict=True):
        kept = positions_in(side.hashes, known) >= 0
        n_kept = side.sums(kept).astype(np.int64)
        framed &= (n_kept >= _MIN_WORDS) & (2 * n_kept >= side.counts) & (n_kept < side.counts)
        # Rare words one after another are one slot.
        first = np.ones(len(kept), bool)
        ends = np.cumsum(side.counts)
        first[1:] = kept[:-1]
        first[(ends - side.counts)[side.counts > 0]] = True
        tokens = Words(np.where(kept, side.hashes, 0)[kept | first], side.sums(kept | first).astype(np.int64))
        starts = np.cumsum(tokens.counts) - tokens.counts
        positions = (np.arange(len(tokens.hashes)) - np.repeat(starts, tokens.counts)).astype(np.uint64)
        both = mixed(both + tokens.sums(mixed(tokens.hashes + mixed(positions))))
    return np.where(framed, both, 0)


def common_frame(texts: Sequence[str]) -> str:
    """Return the words that texts of one template share, and slots between them."""

    frame = _TOKEN.findall(texts[0])
    for text in texts[1:]:
        common: list[str] = []
        for name, start, end, *_ in SequenceMatcher(None, frame, _TOKEN.findall(text), autojunk=False).get_opcodes():
            common += frame[start:end] if name == "equal" else [] if common[-1:] == [SLOT] else [SLOT]
        frame = common
    return "".join(frame).strip()
