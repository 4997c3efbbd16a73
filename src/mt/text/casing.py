"""Letter case: conversion, and truecasing of lines in capitals or title case."""

import bisect
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from operator import itemgetter
from pathlib import Path
from unicodedata import category

from mt.errors import InputError
from mt.text.languages import base_language
from mt.text.lines import nfc

_DOTTED_I = {"tr", "az", "tt", "crh"}  # languages with the letters ı and İ
_TO_CAPITAL, _TO_SMALL = {ord("i"): "İ"}, {ord("I"): "ı", ord("İ"): "i"}  # their letters with other counterparts
_FIRST_LETTER = re.compile(r"(?<!\S)([^\w\s]*)(\w)")
WORD = re.compile(r"[^\W\d_]+")
"""Letters in a row."""
_INNER = re.compile(r"(?<=\w)[^\w\s]+\w+")  # after an apostrophe or a hyphen, where title case has no capital
_SENTENCE_START = re.compile(r"(?:^|(?<!\b\w)[.!?…]\s)\W*$")  # not after an initial
_FINAL_MARK = re.compile(r"[.!?…:][\"'»”’)]*$")
_HEADER = "mt casing 1"
_MAX_WORDS = 30_000
_TITLE_WORDS = 4  # usually lower-case words that make a title; fewer may be a name
_MIN_COUNT = 2  # a word seen once teaches only the case of unknown words


def upper_case(text: str, language: str = "") -> str:
    """Return a text in capitals; letters that would become several stay as they are, except for ß."""
    return _recased(text, language, str.upper, _TO_CAPITAL)


def lower_case(text: str, language: str = "") -> str:
    """Return a text in small letters; letters that would become several stay as they are."""
    return _recased(text, language, str.lower, _TO_SMALL)


def _recased(text: str, language: str, change: Callable[[str], str], dotted: Mapping[int, str]) -> str:
    """Change the case of a text, but not of letters that would become several, except for ß."""
    if _has_dotted_i(language):
        text = text.translate(dotted)
    changed = change(text)
    if len(changed) == len(text):
        return changed
    return "".join(c if len(change(c)) > 1 and c != "ß" else change(c) for c in text)


def _has_dotted_i(language: str) -> bool:
    return base_language(language) in _DOTTED_I


def title_case(text: str, language: str = "") -> str:
    """Return a text in which every word begins with a capital; the other letters stay as they are.

    Words in Georgian, which writes capitals for whole words only, stay as they are.
    """
    return _FIRST_LETTER.sub(lambda match: match[1] + _recased(match[2], language, str.title, _TO_CAPITAL), text)


Recase = Callable[[str, str], str]  # of a text and its language
Kept = Callable[[str], Sequence[tuple[int, int, str]]]
"""Finds terms, code and the like in a line: ordered, disjoint spans of start, end, and the text in its usual case."""


def last_span(spans: Sequence[tuple[int, int, str]], position: int) -> tuple[int, int, str]:
    """Return the last of ordered, disjoint spans that starts at or before a position; an empty one if none does."""
    n_before = bisect.bisect_right(spans, position, key=itemgetter(0))
    return spans[n_before - 1] if n_before else (0, 0, "")


@dataclass(frozen=True)
class Casing:
    """A truecaser: the usual case of a language's words within sentences."""

    words: tuple[str, ...]  # the most frequent ones in their usual case
    capital_start: tuple[bool, bool]  # whether lines without and with a final mark usually begin with a capital
    capital_unknown: bool  # whether rare words usually do, as in German, where most are nouns

    @classmethod
    def learn(cls, lines: Iterable[str], language: str = "") -> "Casing | None":
        """Learn the case of words from text; None if most of them are in a script without case."""
        counts: dict[str, Counter[str]] = defaultdict(Counter)
        starts, surplus = Counter[tuple[bool, bool]](), 0  # of words with case
        for line in map(nfc, lines):
            words = list(WORD.finditer(line))
            matches = [word for word in words if _has_case(word[0])]
            surplus += 2 * len(matches) - len(words)
            if line.isupper() or not any(match[0].islower() for match in matches):
                continue  # a line in capitals teaches nothing
            for match in matches:
                if starts_sentence(match):
                    starts[_has_final_mark(line), match[0][0].isupper()] += 1
                else:
                    counts[lower_case(match[0], language)][match[0]] += 1
        usual = {word: forms.most_common(1)[0] for word, forms in counts.items()}
        once = [form for form, count in usual.values() if count < _MIN_COUNT]
        frequent = sorted((-count, form) for form, count in usual.values() if count >= _MIN_COUNT)
        if not counts or surplus <= 0:
            return None
        capital_unknown = 2 * sum(form[0].isupper() for form in once) > len(once)
        without, with_mark = (starts[mark, True] - starts[mark, False] for mark in (False, True))
        # Where the text has no line of one kind, the others count.
        capital_start = (without or with_mark) > 0, (with_mark or without) > 0
        return cls(tuple(form for _, form in frequent[:_MAX_WORDS]), capital_start, capital_unknown)

    def text(self) -> str:
        """Return the content of a file that `read` reads."""
        flags = "".join(str(int(flag)) for flag in (*self.capital_start, self.capital_unknown))
        return "\n".join([f"{_HEADER} {flags}", *self.words]) + "\n"

    @classmethod
    def read(cls, path: Path) -> "Casing":
        """Read a file of `text`; raise InputError if it is not one."""
        header, *words = path.read_text(encoding="utf-8", errors="replace").splitlines() or [""]
        match = re.fullmatch(f"{_HEADER} ([01])([01])([01])", header)
        if match is None or len(words) > _MAX_WORDS:
            raise InputError(f"{path}: not a list of the usual case of words")
        without, with_mark, unknown = (flag == "1" for flag in match.groups())
        return cls(tuple(words), (without, with_mark), unknown)

    @cached_property
    def _by_capitals(self) -> Callable[[str], Mapping[str, str]]:
        # Of words that are equal in capitals, the most frequent counts.
        return cache(lambda language: {upper_case(word, language): word for word in reversed(self.words)})

    def _usual(self, language: str) -> Mapping[str, str]:
        """Return the usual case of words by their capitals, which differ between languages in İ only."""
        return self._by_capitals("tr" if _has_dotted_i(language) else "")

    def restored(self, line: str, language: str = "", kept: Kept = lambda line: ()) -> tuple[str, Recase] | None:
        """Truecase a line in capitals or title case; return it with the function that recases its translation.

        None for any other line. Spans of `kept` get the usual case that it gives.
        """
        if line.isupper():
            if not self._is_shouted(line, language):
                return None
            change = upper_case
        elif self._is_title(line, language):
            change = title_case
        else:
            return None
        capital_start, spans = self.capital_start[_has_final_mark(line)], kept(line)

        def restored_word(match: re.Match[str]) -> str:
            first, last = match.span()
            start, end, text = last_span(spans, first)
            kept_word = text[first - start : last - start] if last <= end else ""
            capitals = upper_case(match[0], language)
            is_abbreviation = change is title_case and len(capitals) > 1 and match[0] == capitals
            if match[0] == kept_word or (is_abbreviation and not kept_word):
                return match[0]
            small = lower_case(match[0], language)
            rare = title_case(small, language) if self.capital_unknown else small
            usual = kept_word or self._usual(language).get(capitals) or rare
            begins = capital_start and usual.islower() and starts_sentence(match)
            return title_case(usual, language) if begins else usual

        return WORD.sub(restored_word, line), change

    def _is_title(self, line: str, language: str) -> bool:
        """Return True if all words begin with a capital, and at least four usually do not."""
        words = WORD.findall(_INNER.sub("", line))
        if not all(word[0].isupper() for word in words):
            return False
        usual = self._usual(language)
        return sum(usual.get(upper_case(word, language), "A")[0].islower() for word in words) >= _TITLE_WORDS

    def _is_shouted(self, line: str, language: str) -> bool:
        """Return True if a line in capitals is not just abbreviations: one word is usually not, or three are long.

        Long is over two letters. False for a line mostly in a script without case, where only abbreviations have case.
        """
        words = WORD.findall(line)
        if 2 * sum(map(_has_case, words)) <= len(words):
            return False
        usual = [self._usual(language).get(word, "") for word in words]
        return any(len(form) > 1 and not form.isupper() for form in usual) or sum(len(word) > 2 for word in words) >= 3


def _has_case(word: str) -> bool:
    """Return False for a word in a script without case, also around an abbreviation, as in Chinese."""
    return word.isascii() or not any(category(letter) == "Lo" for letter in word)


def starts_sentence(word: re.Match[str]) -> bool:
    """Return True for a word at the start of a text or after the end of a sentence."""
    return _SENTENCE_START.search(word.string, max(0, word.start() - 8), word.start()) is not None


def _has_final_mark(line: str) -> bool:
    return _FINAL_MARK.search(line.rstrip()[-4:]) is not None
