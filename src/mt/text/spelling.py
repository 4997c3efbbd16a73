"""Spelling correction: misspelt words of a source text are replaced by known words."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from mt.errors import InputError
from mt.text.casing import WORD, Kept, last_span, starts_sentence
from mt.text.lines import nfc

_KEYBOARD = ("qwertyuiop", "asdfghjkl", "zxcvbnm", "йцукенгшщзхъ", "фывапролджэ", "ячсмитьбю")
NEIGHBOURS = {
    letter: row[max(0, place - 1) : place] + row[place + 1 : place + 2]
    for row in _KEYBOARD
    for place, letter in enumerate(row)
}
"""The letters beside each letter in its row of a keyboard, which are typed for it by mistake."""

_HEADER = "mt spelling 1"
_MAX_WORDS = 300_000
_MIN_COUNT = 3  # of a word that may replace a misspelt one
_MIN_LETTERS = 4  # of a word that may be misspelt
_NOUNS = 0.4  # share of capitalised frequent words above which nouns are: German has over 0.5, others under 0.3
# Neither code nor names of files: words, with apostrophes and hyphens, between quotation and punctuation marks.
_PROSE = re.compile(r"(?<!\S)[\"'“„‚«‹(\[¿¡]*([^\W\d_]+(?:['’-][^\W\d_]+)*)[.,;:!?…)\]\"'”»›]*(?!\S)")


@dataclass(frozen=True)
class Spelling:
    """Words of a language with capitals and small letters."""

    words: tuple[str, ...]  # the most frequent first; in small letters, or capitalised if they usually are
    n_frequent: int  # how many of them are frequent enough to replace a misspelt word

    @classmethod
    def learn(cls, lines: Iterable[str]) -> "Spelling | None":
        """Learn words from text; None if it is in a script without case."""
        counts, capitals = Counter[str](), Counter[str]()
        for line in map(nfc, lines):
            if line.isupper():
                continue
            for match in WORD.finditer(line):
                small = match[0].lower()
                counts[small] += 1
                if match[0] == small:
                    capitals[small] -= 1
                elif not starts_sentence(match):
                    capitals[small] += 1
        ranked = sorted((-count, word) for word, count in counts.items() if word.upper() != word)[:_MAX_WORDS]
        words = tuple(word.capitalize() if capitals[word] > 0 else word for _, word in ranked)
        return cls(words, sum(-count >= _MIN_COUNT for count, _ in ranked)) if words else None

    def text(self) -> str:
        """Return the content of a file that `read` reads."""
        return "\n".join([f"{_HEADER} {self.n_frequent}", *self.words]) + "\n"

    @classmethod
    def read(cls, path: Path) -> "Spelling":
        """Read a file of `text`; raise InputError if it is not one."""
        header, *words = path.read_text(encoding="utf-8", errors="replace").split("\n")
        match = re.fullmatch(rf"{_HEADER} (\d{{1,6}})", header)
        if match is None or not int(match[1]) < len(words) <= _MAX_WORDS + 1 or "" in words[:-1]:
            raise InputError(f"{path}: not a list of words for the correction of spelling")
        return cls(tuple(words[:-1]), int(match[1]))

    @cached_property
    def _known(self) -> frozenset[str]:
        return frozenset(word.lower() for word in self.words)

    @cached_property
    def _rank(self) -> dict[str, int]:
        return {word.lower(): rank for rank, word in enumerate(self.words[: self.n_frequent])}

    @cached_property
    def _longest(self) -> int:
        return max(map(len, self._rank), default=0) + 1  # a letter was doubled

    @cached_property
    def _capitalises_nouns(self) -> bool:
        frequent = self.words[: self.n_frequent]
        return sum(word[0].isupper() for word in frequent) > _NOUNS * len(frequent)

    @cached_property
    def _letters(self) -> str:
        return "".join(sorted({letter for word in self._rank for letter in word if letter.upper() != letter}))

    def corrected(self, line: str, kept: Kept = lambda line: ()) -> str:
        """Replace each unknown word that is one typing error away from a frequent one.

        Of several such words the most frequent is taken. Short words, abbreviations, code, and spans of `kept` stay as
        they are. So do capitalised words, which may be names; if the language capitalises nouns, only frequent words
        that are capitalised replace them.
        """
        unknown = [
            word
            for word in WORD.finditer(line)
            if _MIN_LETTERS <= len(word[0]) <= self._longest and word[0].lower() not in self._known
        ]
        if not unknown:
            return line
        prose, spans = [(*match.span(1), match[1]) for match in _PROSE.finditer(line)], kept(line)
        pieces, end = [], 0
        for word in unknown:
            is_prose = word.end() <= last_span(prose, word.start())[1]
            if is_prose and last_span(spans, word.end() - 1)[1] <= word.start():
                pieces += [line[end : word.start()], self._corrected(word[0])]
                end = word.end()
        return "".join([*pieces, line[end:]])

    def _corrected(self, word: str) -> str:
        small = word.lower()
        if word != small and not (word == small.capitalize() and self._capitalises_nouns):
            return word
        ranks = [self._rank[known] for known in _candidates(small, self._letters) if known in self._rank]
        if word != small:
            ranks = [rank for rank in ranks if self.words[rank][0].isupper()]
        if not ranks:
            return word
        best = self.words[min(ranks)].lower()
        return best if word == small else best.capitalize()


def _candidates(word: str, letters: str) -> Iterator[str]:
    """Yield what one typing error may have turned into a word: a letter was left out, doubled, swapped or mistyped.

    The first letter is taken for correct, and so is the last: a different one is more often an inflection.
    """
    for i in range(1, len(word)):
        before, letter, after = word[:i], word[i], word[i + 1 :]
        yield from (before + missing + letter + after for missing in letters)
        if letter == word[i - 1]:
            yield before + after
        if not after:
            return
        yield before + after[0] + letter + after[1:]
        yield from (before + other + after for other in NEIGHBOURS.get(letter, ""))
