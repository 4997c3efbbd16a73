"""Candidates: the translations of a line, and the choice of one by minimum Bayes risk or closeness to a reference."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

_MAX_CANDIDATES = 100_000  # in memory at once


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
    prefix: str = ""  # with which it was forced to begin
    parts: tuple[Part, ...] = field(default=(), compare=False, repr=False)  # several if the line was too long

    @property
    def completion(self) -> str:
        """The text behind the prefix."""
        return self.text[len(self.prefix) :]


def lines_at_once(max_lines: int, candidates: int) -> int:
    """Return the number of lines to translate together, given the number of candidates of each."""
    return max(1, min(max_lines, _MAX_CANDIDATES // candidates))


def distinct(candidates: Sequence[Candidate]) -> list[Candidate]:
    """Return the first candidate of each text; after BPE-dropout, a model spells texts in several ways."""
    first: dict[str, Candidate] = {}
    for candidate in candidates:
        first.setdefault(candidate.text, candidate)
    return list(first.values())


def rerank_mbr(candidates: Sequence[Candidate], utility: str) -> list[Candidate]:
    """Return the distinct candidates of a line, sorted by mean utility (0 to 100), which becomes their score.

    Minimum Bayes risk (Eikema and Aziz 2022, arXiv:2108.04718) chooses the candidate with the largest mean utility
    (chrF or BLEU) when each candidate in turn is the reference. A text that was sampled twice counts twice; hypotheses
    of a beam count once each. Ties go to the likelier candidate.
    """
    from mt.metrics.pairwise import expected_utility

    means = expected_utility([candidate.text for candidate in candidates], utility)
    scored = [replace(candidate, score=mean) for candidate, mean in zip(candidates, means, strict=True)]
    # Rounded, because equal utilities may differ by the order of summation.
    return distinct(sorted(scored, key=lambda candidate: (-round(candidate.score, 9), -candidate.log_prob)))


def best_of(candidates: list[Candidate], utility: str | None, n_best: int, sampled: bool) -> list[Candidate]:
    """Return the n best candidates, by utility or else by score; duplicates are kept only if they were sampled."""
    pool = candidates if sampled else distinct(candidates)
    if utility is not None:
        return rerank_mbr(pool, utility)[:n_best]
    return sorted(pool, key=lambda candidate: -candidate.score)[:n_best]


def closest(candidates: Sequence[Candidate], reference: str, utility: str = "bleu") -> str:
    """Return the candidate text with the largest utility against a reference; ties go to the first."""
    from mt.data.tokenizer import normalized
    from mt.metrics.pairwise import UTILITIES

    texts = [candidate.text for candidate in distinct(candidates)]
    return texts[int(UTILITIES[utility]([*texts, normalized(reference)], slice(-1, None))[:-1, 0].argmax())]
