"""Minimum Bayes risk decoding: of many candidates, the one most like all the others.

Eikema and Aziz 2022 (arXiv:2108.04718): candidates drawn from the model stand for what it believes, and the best of
them is the one with the largest mean utility (chrF or BLEU) when each in turn is taken as the reference. One that was
drawn twice counts twice; the n best of a beam search count once each.
"""

from collections.abc import Sequence
from dataclasses import replace

from mt.decoding.translator import Candidate
from mt.metrics.pairwise import expected


def by_utility(candidates: Sequence[Candidate], utility: str) -> list[Candidate]:
    """The distinct candidates of a line, best first, with their mean utility (0 to 100) as score.

    Among equals the likelier comes first.
    """
    means = expected([candidate.text for candidate in candidates], utility)
    scored = [replace(candidate, score=mean) for candidate, mean in zip(candidates, means, strict=True)]
    distinct: dict[str, Candidate] = {}
    # Rounded, since equal utilities may be added up in different orders.
    for candidate in sorted(scored, key=lambda candidate: (-round(candidate.score, 9), -candidate.log_prob)):
        distinct.setdefault(candidate.text, candidate)
    return list(distinct.values())
