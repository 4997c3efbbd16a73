"""Places where the lines of a block may belong, and lines that occur twice."""

import numpy as np

from mt.extras.doctor.lexicon import Array, Side
from mt.extras.doctor.pair_evidence import PairEvidence, lexicon_entries

_RARE = 50  # lines with a word, at most, for which they are compared
_CHUNK = 50  # lines that vote together
_MIN_VOTES, _BEST, _MAX_SHIFTS = 5, 3, 12
_MIN_REPEATED = 0.8  # of a block's lines
_MAX_REPEATS = 20  # of a line


def likely_shifts(evidence: PairEvidence, candidates: Array, start: int, end: int) -> list[int]:
    """Return shifts at which lines `start` to `end` find many rare words translated, the likeliest first.

    Args:
        evidence: of all lines.
        candidates: the target lines that may belong to them, in order.
    """
    target = evidence.target
    sizes = target.counts[candidates]
    posted = np.repeat(candidates, sizes)
    positions = np.arange(sizes.sum()) + np.repeat(target.starts[candidates] - np.cumsum(sizes) + sizes, sizes)
    words = target.ids[positions]
    order = np.argsort(words, kind="stable")
    posted, words = posted[order], words[order]
    entries, rows = lexicon_entries(evidence.source, evidence.forward, start, end)
    translations = evidence.forward[1][entries]
    first = np.searchsorted(words, translations)
    counts = np.searchsorted(words, translations, side="right") - first
    counts[counts > _RARE] = 0
    hits = np.arange(counts.sum()) + np.repeat(first - np.cumsum(counts) + counts, counts)
    rows = np.repeat(rows, counts)
    span = 2 * len(target.counts)
    votes, n_votes = np.unique((rows // _CHUNK) * span + posted[hits] - rows + span // 2, return_counts=True)
    chunks, shifts = votes // span, votes % span - span // 2
    order = np.lexsort((-n_votes, chunks))
    rank = np.arange(len(order)) - np.searchsorted(chunks[order], chunks[order])
    chosen = order[(rank < _BEST) & (n_votes[order] >= _MIN_VOTES)]
    found, index = np.unique(shifts[chosen], return_inverse=True)
    totals = np.bincount(index, n_votes[chosen], len(found))
    return [int(shift) for shift in found[np.argsort(-totals, kind="stable")[:_MAX_SHIFTS]]]


def repeated_from(side: Side, start: int, end: int) -> int | None:
    """Return the first of the lines elsewhere that lines `start` to `end` are equal to, or None."""
    wanted = side.hashes[start:end]
    places = np.flatnonzero(np.isin(side.hashes, wanted))
    places = places[(places < start) | (places >= end)]
    order = np.argsort(side.hashes[places], kind="stable")
    places = places[order]
    known = side.hashes[places]
    first = np.searchsorted(known, wanted)
    counts = np.searchsorted(known, wanted, side="right") - first
    counts[counts > _MAX_REPEATS] = 0
    hits = np.arange(counts.sum()) + np.repeat(first - np.cumsum(counts) + counts, counts)
    shifts, votes = np.unique(places[hits] - np.repeat(np.arange(start, end), counts), return_counts=True)
    if not len(votes) or votes.max() < _MIN_REPEATED * (end - start):
        return None
    return start + int(shifts[votes.argmax()])
