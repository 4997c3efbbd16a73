"""Candidates: the translations of a line among which one is chosen."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

_MAX_CANDIDATES = 100_000  # held in memory together


class Part(NamedTuple):
    """Part of a line as tokens: the model's input, its output, and the attention of output to input."""

    source: Sequence[int]
    target: Sequence[int]
    attention: list[list[float]] | None


@dataclass(frozen=True)
class Candidate:
    """One translation of a line."""

    text: str
    score: float  # by which it was ranked
    log_prob: float  # with a prefix, that of the rest
    prefix: str = ""  # that it was made to begin with
    parts: tuple[Part, ...] = field(default=(), compare=False, repr=False)  # several if the line was too long

    @property
    def completion(self) -> str:
        """The text behind the prefix."""
        return self.text[len(self.prefix) :]


def lines_at_once(max_lines: int, candidates: int) -> int:
    """Return the number of lines to translate together where each has so many candidates."""
    return max(1, min(max_lines, _MAX_CANDIDATES // candidates))


def distinct(candidates: Sequence[Candidate]) -> list[Candidate]:
    """Return the first candidate of each text; after BPE-dropout, a model spells texts in several ways."""
    first: dict[str, Candidate] = {}
    for candidate in candidates:
        first.setdefault(candidate.text, candidate)
    return list(first.values())
