"""Splitting of input longer than the model's limit."""

import re
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import TYPE_CHECKING

from mt.data.tokenizer import normalized
from mt.text.sentences import sentence_ends

if TYPE_CHECKING:
    from mt.data.tokenizer_kinds import TextTokenizer

# Positions to split at, best first: after a sentence, after a clause, at white space.
_BOUNDARIES: list[Callable[[str], list[int]]] = [
    sentence_ends,
    lambda text: [match.end() for match in re.finditer(r"(?<=[;:,،؛])\s+|(?<=[；：，、」』）])", text)],
    lambda text: [match.end() for match in re.finditer(r"\s+", text)],
]


def parts_of(line: str, tokenizer: "TextTokenizer", limit: int) -> list[str]:
    """Return a line, normalised, in parts of at most `limit` tokens; an empty line has none."""
    text = normalized(line)
    if not text:
        return []
    if tokenizer.max_tokens_per_character * len(text) + 1 <= limit:
        return [text]
    return split_long(text, lambda part: len(tokenizer.encode_batch([part], limit)[0]), limit)


def split_long(text: str, count_tokens: Callable[[str], int], limit: int, level: int = 0) -> list[str]:
    """Split a line into parts of at most `limit` tokens, which is at least the tokens of a single character.

    A line that fits is returned as it is. Boundaries of kinds before `level` have been tried.
    """
    if count_tokens(text) <= limit or len(text) == 1:
        return [text]
    if level < len(_BOUNDARIES):
        pieces = list(_pack(text, _BOUNDARIES[level](text), count_tokens, limit))
    else:
        middle = len(text) // 2
        pieces = [text[:middle], text[middle:]]
    return [part for piece in pieces for part in split_long(piece, count_tokens, limit, level + 1)]


def _pack(text: str, ends: list[int], count_tokens: Callable[[str], int], limit: int) -> Iterator[str]:
    """Yield the pieces between `ends`, joined as long as they fit; a piece that is too long stays alone."""
    packed, used = "", 0
    for start, end in pairwise([0, *ends, len(text)]):
        piece = text[start:end]
        if not piece.strip():
            continue
        tokens = count_tokens(piece)
        if packed and used + tokens > limit:
            yield packed.strip()
            packed, used = "", 0
        packed, used = packed + piece, used + tokens
    if packed:
        yield packed.strip()
