"""Lexicon coverage: the share of words in a pair that translate a word of the other side."""

from collections.abc import Sequence

import numpy as np

from mt.data.corpus import Pair
from mt.extras.doctor.lexicon import Side, learn_lexicon, words_in

_Translations = dict[str, frozenset[str]]


class WordLexicon:
    """Translations of words in both directions, learned from pairs most of which are right (IBM Model 1)."""

    def __init__(self, pairs: Sequence[Pair]) -> None:
        source, target = (Side(pair[side] for pair in pairs) for side in (0, 1))
        self._directions = _translations(source, target), _translations(target, source)

    def coverage(self, pair: Pair) -> float:
        """Return the share of both sides' distinct words with a translation on the other side, from 0 to 1."""
        src, tgt = (frozenset(words_in(side)) for side in pair)
        total = len(src) + len(tgt)
        forward, backward = self._directions
        covered = len(_reached(src, forward) & tgt) + len(_reached(tgt, backward) & src)
        return covered / total if total else 0.0


def _reached(words: frozenset[str], lexicon: _Translations) -> frozenset[str]:
    return frozenset().union(*(lexicon[word] for word in words if word in lexicon))


def _translations(source: Side, target: Side) -> _Translations:
    lines = np.arange(len(source.counts))
    words, translations, _ = learn_lexicon(source, target, lines, lines)
    own, other = list(source.vocab), list(target.vocab)
    found: dict[str, set[str]] = {}
    for word, translation in zip(words.tolist(), translations.tolist(), strict=True):
        found.setdefault(own[word], set()).add(other[translation])
    return {word: frozenset(each) for word, each in found.items()}
