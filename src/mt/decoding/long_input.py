"""Splitting of input longer than the model's limit."""

import re
from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise

from mt.text.sentences import sentence_ends

# Places to split, best first: after a sentence, after a clause, at white space.
_BOUNDARIES: list[Callable[[str], list[int]]] = [
    sentence_ends,
    lambda text: [match.end() for match in re.finditer(r"(?<=[;:,،؛])\s+|(?<=[；：，、」』）])", text)],
    lambda text: [match.end() for match in re.finditer(r"\s+", text)],
]


def split_long(text: str, count_tokens: Callable[[str], int], limit: int) -> list[str]:
    """Split a text into parts of at most `limit` tokens; a text that fits is returned as it is.

    Args:
        text: one line.
        count_tokens: how many tokens a text has.
        limit: at least the tokens of a single character.
    """
    return _split(text, count_tokens, limit, level=0)


def _split(text: str, count_tokens: Callable[[str], int], limit: int, level: int) -> list[str]:
    if count_tokens(text) <= limit or len(text) == 1:
        return [text]
    if level == len(_BOUNDARIES):
        middle = len(text) // 2
        halves = (text[:middle], text[middle:])
        return [part for half in halves if half for part in _split(half, count_tokens, limit, level)]
    parts: list[str] = []
    for packed in _pack(_pieces(text, _BOUNDARIES[level](text)), count_tokens, limit):
        parts.extend(_split(packed, count_tokens, limit, level + 1))
    return parts


def _pieces(text: str, ends: Iterable[int]) -> Iterator[str]:
    """Yield the text between boundaries, each piece with the white space behind it."""
    for start, end in pairwise([0, *ends, len(text)]):
        if text[start:end].strip():
            yield text[start:end]


def _pack(pieces: Iterable[str], count_tokens: Callable[[str], int], limit: int) -> list[str]:
    """Join neighbours while they fit; a piece that is too long stays alone."""
    packed: list[str] = []
    used = 0
    for piece in pieces:
        tokens = count_tokens(piece)
        if packed and used + tokens <= limit:
            packed[-1] += piece
            used += tokens
        else:
            packed.append(piece)
            used = tokens
    return [part.strip() for part in packed]
