"""Words and punctuation marks of a text in any script."""

import re

# Characters of scripts without spaces stand alone, as punctuation marks do.
_UNSPACED = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff"
WORD = re.compile(rf"[{_UNSPACED}]|\w+|[^\w\s]")
_SINGLE = re.compile(rf"[{_UNSPACED}]|[^\w\s]")


def word_starts(text: str) -> list[int]:
    """Return the position of each word and mark."""
    return [match.start() for match in WORD.finditer(text)]


def is_single(character: str) -> bool:
    """Return True for a character that is a word or mark by itself; False for none."""
    return _SINGLE.match(character) is not None
