"""The translation of a line, with details of the search."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from mt.decoding.candidates import Candidate

if TYPE_CHECKING:
    from mt.decoding.attention_weights import Attention


@dataclass(frozen=True)
class Translation:
    """The translation of one line, with what the search knows about it.

    Attributes:
        source: the line.
        n_best: the translations found, best first, each with `text`, `score` (by which it was ranked) and `log_prob`
            (natural logarithm, the end of the sentence counted).
        source_tokens, tokens: the pieces that the model read and wrote.
        attention: with `attention=True`, the weights, one item per part of a long line.
    """

    source: str
    n_best: tuple[Candidate, ...]
    source_tokens: tuple[str, ...]
    tokens: tuple[str, ...]
    attention: "tuple[Attention, ...] | None" = None

    @property
    def text(self) -> str:
        """The best translation."""
        return self.n_best[0].text

    @property
    def completion(self) -> str:
        """The best translation behind its prefix."""
        return self.n_best[0].completion

    @property
    def score(self) -> float:
        """The score of the best translation: its log-probability, normalised by length."""
        return self.n_best[0].score

    @property
    def alignment(self) -> list[tuple[int, int]] | None:
        """Pairs (source word, target word), counted from 0, read from the attention; None without it."""
        if self.attention is None:
            return None
        from mt.decoding.attention_weights import word_pairs

        return word_pairs(self.attention)
