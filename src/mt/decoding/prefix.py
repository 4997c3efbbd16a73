"""Prefixes that translations begin with, which may end inside a word.

The beginning of a word is seldom spelt with the first pieces of the whole word: `lie` and `liebe` are different pieces.
So the last word's pieces may be rolled back and replaced by one longer piece: the likeliest spelling is taken.
"""

import bisect
import functools
from collections.abc import Iterator, Sequence
from itertools import islice, takewhile
from typing import TYPE_CHECKING, NamedTuple

from mt.data.tokenizer import SPACE, UNK_ID, normalized
from mt.errors import InputError
from mt.text.lines import without_line_breaks

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from mt.data.tokenizer_kinds import TextTokenizer

_MAX_ROLLBACK = 8  # pieces


class Prefix(NamedTuple):
    """The beginning of a translation.

    Attributes:
        text: the user's text, normalised.
        ids: its tokens.
        n_complete: how many of them stay when the last word is rolled back, by at most `_MAX_ROLLBACK` pieces.
        forced: the likeliest tokens, with which search begins; the last may be longer than the prefix.
    """

    text: str = ""
    ids: Sequence[int] = ()
    n_complete: int = 0
    forced: Sequence[int] = ()


class PrefixSpeller:
    """Spells prefixes with the pieces of a tokenizer.

    Attributes:
        pieces: pairs of piece and id, sorted, without special tokens, bytes and tags.
        space: the id of the piece that is a single space; None if there is none.
    """

    def __init__(self, tokenizer: "TextTokenizer") -> None:
        self._tokenizer = tokenizer
        hidden = {*tokenizer.hidden, *tokenizer.byte_ids}
        self.pieces = sorted((piece, i) for i, piece in enumerate(tokenizer.pieces) if i not in hidden)
        self.space = next((i for piece, i in self.pieces if piece == SPACE), None)

    def encode(self, text: str) -> Prefix:
        """Return a prefix as tokens; white space at its end is the beginning of the next word.

        Raises:
            InputError: the tokenizer cannot spell one of its characters.
        """
        tokenizer, text = self._tokenizer, without_line_breaks(text)
        ids = tokenizer.encode(text)
        if UNK_ID in ids:
            unknown = next((c for c in text if UNK_ID in tokenizer.encode(c)), text)
            raise InputError(f"the model's vocabulary has no {unknown!r}, so no translation begins with it")
        prefix = normalized(text)
        if prefix and text[-1].isspace() and self.space is not None:
            return Prefix(f"{prefix} ", [*ids, self.space], len(ids))
        word_starts = [i for i, piece in enumerate(tokenizer.tokens(ids)) if piece.startswith(SPACE)]
        return Prefix(prefix, ids, max(len(ids) - _MAX_ROLLBACK, *word_starts[-1:], 0))

    def encode_all(
        self,
        split: Sequence[Sequence[str]],
        sources: Sequence[Sequence[int]],
        prefixes: Sequence[str],
        numbers: Sequence[int],
        bounds: Sequence[int],
    ) -> Iterator[Prefix]:
        """Yield the encoded prefix of each part of some lines; a blank one is no prefix.

        Args:
            split: the parts of each line; `sources` are the tokens of all parts.
            prefixes, numbers: the text and the number of each line.
            bounds: the maximum number of tokens of each part's translation.

        Raises:
            InputError: a prefix cannot be spelt, is longer than the bound, or belongs to a line of several parts.
        """
        remaining = zip(sources, bounds, strict=True)
        for number, parts, text in zip(numbers, split, prefixes, strict=True):
            if text.strip() and len(parts) > 1:
                raise InputError(f"line {number} has a prefix, and is longer than the model takes", "split this line")
            for source, bound in islice(remaining, len(parts)):
                prefix = self.encode(text) if source and text.strip() else Prefix()
                if (n := len(prefix.ids)) > bound:
                    message = f"the prefix of line {number} has {n} tokens, and a translation may have {bound}"
                    raise InputError(message, "shorten the prefix")
                yield prefix

    def likeliest(self, prefix: Prefix, log_probs: "NDArray[np.float32]") -> Prefix:
        """Return an encoded prefix with the likeliest tokens whose text begins with it.

        The log-probabilities (T, V) are those of the next token behind 0 to T - 1 of its T tokens.
        """
        ids, pieces = prefix.ids, self._tokenizer.tokens(prefix.ids)
        total, best, chosen = 0.0, float("-inf"), ids
        for place in range(prefix.n_complete, len(ids)):
            rest = "".join(pieces[place:])
            for _, token in self._pieces_beginning(rest):
                if total + log_probs[place, token] > best:
                    best, chosen = total + float(log_probs[place, token]), [*ids[:place], token]
            total += float(log_probs[place, ids[place]])
        return prefix._replace(forced=ids if total > best else chosen)

    def _pieces_beginning(self, text: str) -> Iterator[tuple[str, int]]:
        start = bisect.bisect_left(self.pieces, (text,))
        return takewhile(lambda piece: piece[0].startswith(text), self.pieces[start:])

    def decode(self, prefix: Prefix, ids: Sequence[int]) -> str:
        """Return the text of a translation, which begins with the prefix's text.

        Decoded tokens may not begin with it: a user's tokenizer may normalise text, and stray bytes behind a character
        that is spelt in bytes garble it.
        """
        decoded, spelt = self._tokenizer.decode_batch([ids, prefix.ids])
        rest = decoded[len(spelt) :] if decoded.startswith(spelt) else self._tokenizer.decode(ids[len(prefix.forced) :])
        return prefix.text + without_broken_bytes(rest)


def without_broken_bytes(text: str) -> str:
    """Return decoded text without the replacement characters that stand for invalid bytes."""
    return text.replace(" \ufffd", "").replace("\ufffd", "")


speller_of = functools.lru_cache(maxsize=8)(PrefixSpeller)
