"""Words and punctuation marks of a text in any script."""

import re

# Characters of scripts without spaces stand alone, as punctuation marks do.
UNSPACED = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff"
INVISIBLE = "\xad\u200b\u2060\ufeff"
"""Soft hyphens and spaces without width, for use in a set."""
# Accents and vowel signs belong to the letter before them, but are no letters to Python; nor are joiners of letters.
_SIGNS = (
    "\u0300-\u036f\u0483-\u0489\u0591-\u05bd\u05bf-\u05c2\u05c4\u05c5\u05c7\u0610-\u061a\u064b-\u065f\u0670\u06d6-\u06ed"
    "\u0711\u0730-\u074a\u07a6-\u07b0\u07eb-\u07f3\u0816-\u082d\u0859-\u085b\u08ca-\u0963\u0971-\u0df3\u0f71-\u0f87"
    f"\u200c\u200d{INVISIBLE}"
)
IN_WORD = rf"\w{_SIGNS}"
"""The characters of words, for use in a set of a regular expression."""
GLUED = rf"{UNSPACED}\u3000-\u303f\uac00-\ud7af\uff00-\uffef"
"""Characters that may stand beside an address or code without a space, for use in a set: Korean has particles there."""
ID_CHAR = rf"[^\W{GLUED}]"
"""A character of an identifier: a letter, a digit or `_` that is not in `GLUED`."""
_BRACKETED = rf"(?:\([^\s<>\"'`(){GLUED}]*\)|\{{+[^\s<>\"'`{{}}{GLUED}]*\}}+)"
URL = (
    rf"(?=[hfw])(?<![^\W_{GLUED}])(?:(?:https?|ftp)://|www\.)"
    rf"(?:(?!\*\*|~~)[^\s<>\"'`({{}}\]{GLUED}]|\](?![(\[])|{_BRACKETED})*"
    rf"(?:{_BRACKETED}|(?!\*\*|~~)[^\s<>\"'`.,;:!?(){{}}\]\\»”{GLUED}])"
)
"""An address, without the punctuation or the Markdown marks after it."""
EMAIL = rf"(?<!{ID_CHAR})(?<![.+-])(?:{ID_CHAR}|[.+-])++@(?:{ID_CHAR}|-)+(?:\.(?:{ID_CHAR}|-)+)+"
# A mark with what belongs to it: accents, the variation and skin colour of an emoji, and emoji joined to it.
_MARK = rf"[^\w\s{INVISIBLE}](?:[{_SIGNS}\ufe0f\U0001f3fb-\U0001f3ff]|(?<=\u200d)[^\w\s])*"
WORD = re.compile(rf"[{UNSPACED}]|\w[{IN_WORD}]*|{_MARK}")
_SINGLE = re.compile(rf"[{UNSPACED}]|[^{IN_WORD}\s]")


def word_starts(text: str) -> list[int]:
    """Return the position of each word and mark."""
    return [match.start() for match in WORD.finditer(text)]


def is_single(character: str) -> bool:
    """Return True for a character that is a word or mark by itself; False for none."""
    return _SINGLE.match(character) is not None
