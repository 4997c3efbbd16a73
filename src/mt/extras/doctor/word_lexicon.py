"""Lexicon coverage: the share of words in a pair that translate a word of the other side."""

from collections.abc import Sequence

from mt.data.corpus import Pair
from mt.data.lexicon import Side, word_translations, words_in

_Translations = dict[str, frozenset[str]]


class WordLexicon:
    """Translations of words in both directions, learned from pairs most of which are right (IBM Model 1)."""

    def __init__(self, pairs: Sequence[Pair]) -> None:
        source, target = (Side(pair[side] for pair in pairs) for side in (0, 1))
        self._directions = [
            {word: frozenset(translations) for word, translations in word_translations(*sides).items()}
            for sides in ((source, target), (target, source))
        ]

    def coverage(self, pair: Pair) -> float:
        """Return the share of both sides' distinct words with a translation on the other side, from 0 to 1."""
        src, tgt = (frozenset(words_in(side)) for side in pair)
        total = len(src) + len(tgt)
        forward, backward = self._directions
        covered = len(_reached(src, forward) & tgt) + len(_reached(tgt, backward) & src)
        return covered / total if total else 0.0


def _reached(words: frozenset[str], lexicon: _Translations) -> frozenset[str]:
    return frozenset().union(*(lexicon[word] for word in words if word in lexicon))
