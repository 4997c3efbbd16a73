"""Reranking of candidate translations: minimum Bayes risk, and closeness to a reference.

Minimum Bayes risk (Eikema and Aziz 2022, arXiv:2108.04718) chooses the candidate with the largest mean utility (chrF
or BLEU) when each candidate in turn is the reference. A text that was sampled twice counts twice; hypotheses of a beam
count once each.
"""

from collections.abc import Sequence
from dataclasses import replace

from mt.data.tokenizer import normalized
from mt.decoding.candidates import Candidate, distinct
from mt.metrics.pairwise import UTILITIES, expected_utility


def rerank_mbr(candidates: Sequence[Candidate], utility: str) -> list[Candidate]:
    """Return the distinct candidates of a line by their mean utility (0 to 100), which becomes their score.

    Ties go to the likelier candidate.
    """
    means = expected_utility([candidate.text for candidate in candidates], utility)
    scored = [replace(candidate, score=mean) for candidate, mean in zip(candidates, means, strict=True)]
    # Rounded, because the order of summation may tell equal utilities apart.
    return distinct(sorted(scored, key=lambda candidate: (-round(candidate.score, 9), -candidate.log_prob)))


def closest(candidates: Sequence[Candidate], reference: str, utility: str = "bleu") -> str:
    """Return the candidate text with the largest utility against a reference; ties go to the first."""
    texts = [candidate.text for candidate in distinct(candidates)]
    return texts[int(UTILITIES[utility]([*texts, normalized(reference)])[:-1, -1].argmax())]
