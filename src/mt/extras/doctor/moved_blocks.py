"""Places where the lines of a block may belong, and lines that occur twice."""

import numpy as np

from mt.data.lexicon import Array, Side
from mt.data.token_store import ranges
from mt.extras.doctor.pair_evidence import PairEvidence, lexicon_entries

_RARE = 50  # lines with a word, at most, for which they are compared
_CHUNK = 50  # lines that vote together
_MIN_VOTES, _BEST, _MAX_SHIFTS = 5, 3, 12
_MIN_REPEATED = 0.8  # of a block's lines
_MAX_REPEATS = 20  # of a line


def likely_shifts(evidence: PairEvidence, candidates: Array, start: int, end: int) -> list[int]:
    """Return shifts at which lines `start` to `end` find many rare words translated, the likeliest first.

    `candidates` are the target lines that may belong to them, in order.
    """
    target = evidence.target
    sizes = target.counts[candidates]
    words = target.ids[ranges(target.starts[candidates], sizes)]
    entries, rows = lexicon_entries(evidence.source, evidence.forward, start, end)
    places, numbers = _occurrences(words, evidence.forward[1][entries], _RARE)
    rows, span = rows[numbers], 2 * len(target.counts)
    votes = (rows // _CHUNK) * span + np.repeat(candidates, sizes)[places] - rows + span // 2
    votes, n_votes = np.unique(votes, return_counts=True)
    chunks, shifts = votes // span, votes % span - span // 2
    order = np.lexsort((-n_votes, chunks))
    rank = np.arange(len(order)) - np.searchsorted(chunks[order], chunks[order])
    chosen = order[(rank < _BEST) & (n_votes[order] >= _MIN_VOTES)]
    found, index = np.unique(shifts[chosen], return_inverse=True)
    totals = np.bincount(index, n_votes[chosen], len(found))
    return [int(shift) for shift in found[np.argsort(-totals, kind="stable")[:_MAX_SHIFTS]]]


def repeated_from(side: Side, start: int, end: int) -> int | None:
    """Return the first of the lines elsewhere that lines `start` to `end` are equal to, or None."""
    equal = np.flatnonzero(np.isin(side.hashes, side.hashes[start:end]))
    equal = equal[(equal < start) | (equal >= end)]
    places, numbers = _occurrences(side.hashes[equal], side.hashes[start:end], _MAX_REPEATS)
    firsts, votes = np.unique(equal[places] - numbers, return_counts=True)
    if not len(votes) or votes.max() < _MIN_REPEATED * (end - start):
        return None
    return int(firsts[votes.argmax()])


def _occurrences(values: Array, wanted: Array, most: int) -> tuple[Array, Array]:
    """Return the places of wanted values that occur at most so often, and the number of the wanted one of each."""
    order = np.argsort(values, kind="stable")
    first, last = (np.searchsorted(values[order], wanted, side) for side in ("left", "right"))
    counts = np.where(last - first <= most, last - first, 0)
    return order[ranges(first, counts)], np.repeat(np.arange(len(wanted)), counts)
