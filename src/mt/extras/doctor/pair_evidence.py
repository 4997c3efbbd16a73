"""Evidence, learned from the corpus itself, that two lines translate each other; likely shifts of misplaced lines.

N lines   K shifts
"""

from collections.abc import Callable, Iterable, Sequence

import numpy as np

from mt.data.cleaning import CHANCE_CORRELATION, GRACE
from mt.data.lexicon import Lexicon, Side, learn_lexicon
from mt.data.ragged import Array, positions_in, ranges, top_of_each

_UNRELATED = (37, -53)  # shifts of lines that are no translations of each other
_CHUNK = 40_000  # lines scored together
_BINS = 24
_BOUND = 5.0  # largest evidence of a line, in nats

_RELATED = 2.5  # mean evidence of a text's pairs, in nats; that of unrelated texts is lower
_CLEAR = 0.6  # correlation of the lengths of translations, at least
_FARTHEST = 100  # shift of a whole text

_RARE = 50  # lines that a rare word occurs in, at most
_VOTERS = 50  # lines that vote together
_MIN_VOTES, _BEST, _MAX_SHIFTS = 5, 3, 12  # of a shift; shifts of each group of voters; shifts in all
_MIN_REPEATED = 0.8  # share of a block's lines
_MAX_REPEATS = 20  # occurrences of a line; more frequent ones prove nothing


class PairEvidence:
    """Log-likelihood ratios of "translation" to "unrelated", from words that translate each other and from lengths.

    Args:
        source, target: the lines; most pairs of the same number are right.
        in_step: (N,), the pairs to learn from.
    """

    def __init__(self, source: Side, target: Side, in_step: Array) -> None:
        self.source, self.target = source, target
        known = np.flatnonzero(in_step)
        self.forward = learn_lexicon(source, target, known, known)
        self._backward = learn_lexicon(target, source, known, known)
        self._log_ratios = log_length_ratio(source.characters, target.characters)
        self._typical = np.median(self._log_ratios)
        self._in_step, *unrelated = self._features((0, *_UNRELATED), 0, len(source.counts))
        self._log_densities = [
            log_density_ratio(self._in_step[kind][in_step], np.concatenate([shifted[kind] for shifted in unrelated]))
            for kind in (0, 1)
        ]

    def rows(self, shifts: Sequence[int], start: int, end: int) -> Array:
        """Return the evidence that source lines `start` to `end` belong `shift` lines further on (K, end - start)."""
        rows, lines = [], np.arange(start, end)
        for shift, features in zip(shifts, self._features(shifts, start, end), strict=True):
            row = self._ratios(features)
            row[(lines + shift < 0) | (lines + shift >= len(self.target.counts))] = -_BOUND
            rows.append(np.clip(row, -_BOUND, _BOUND))
        return np.stack(rows)

    def in_step(self) -> tuple[Array, Array]:
        """Return the evidence for the pairs as they are, unbounded, and their log ratios of lengths, both (N,)."""
        return self._ratios(self._in_step), self._log_ratios

    def _ratios(self, features: tuple[Array, Array]) -> Array:
        total: Array = np.sum([f(x) for f, x in zip(self._log_densities, features, strict=True)], axis=0)
        return total

    def _features(self, shifts: Sequence[int], start: int, end: int) -> list[tuple[Array, Array]]:
        """Return for each shift the gain per word, and the deviation of the log length ratio (end - start,)."""
        source, target, lines = self.source, self.target, np.arange(start, end)
        low, high = max(0, start + min(shifts)), min(len(target.counts), end + max(shifts))
        forward = _gains(source, target, self.forward, shifts, start, end)
        backward = _gains(target, source, self._backward, [-shift for shift in shifts], low, high)
        features = []
        for shift, gain, back in zip(shifts, forward, backward, strict=True):
            other = np.clip(lines + shift, low, high - 1)
            words = np.maximum(source.counts[start:end] + target.counts[other], 1)
            ratio = log_length_ratio(source.characters[start:end], target.characters[other])
            features.append(((gain + back[other - low]) / words, np.abs(ratio - self._typical)))
        return features


def _entries(side: Side, lexicon: Lexicon, start: int, end: int) -> tuple[Array, Array]:
    """Return the entries of the words of lines `start` to `end`, and the line of each."""
    first = np.searchsorted(lexicon[0], np.arange(len(side.vocab) + 1))  # entry of each word
    words = side.ids[side.starts[start] : side.starts[end]]
    rows = np.repeat(np.arange(start, end), side.counts[start:end])
    sizes = first[words + 1] - first[words]
    return ranges(first[words], sizes), np.repeat(rows, sizes)


def _gains(source: Side, target: Side, lexicon: Lexicon, shifts: Iterable[int], first: int, last: int) -> list[Array]:
    """Return for each shift the gains of the words in target line `i + shift` that translate words of line `i`."""
    n_lines, n_targets = len(target.counts), len(target.vocab) + 1
    results = [np.zeros(max(0, last - first)) for _ in shifts]
    for start in range(first, last, _CHUNK):
        end = min(last, start + _CHUNK)
        entries, rows = _entries(source, lexicon, start, end)
        keys, weights = _largest(rows * n_targets + lexicon[1][entries], lexicon[2][entries])
        for shift, result in zip(shifts, results, strict=True):
            low, high = max(0, start + shift), min(n_lines, end + shift)
            if low >= high:
                continue
            tgt = target.ids[target.starts[low] : target.starts[high]]
            line = np.repeat(np.arange(low, high), target.counts[low:high]) - shift
            place = positions_in(line * n_targets + tgt, keys)
            found = place >= 0
            result[start - first : end - first] += np.bincount(line[found] - start, weights[place[found]], end - start)
    return results


def _largest(keys: Array, values: Array) -> tuple[Array, Array]:
    """Return the distinct keys in ascending order, and the largest value of each."""
    order = np.argsort(keys)
    keys, values = keys[order], values[order]
    starts = np.flatnonzero(np.diff(keys, prepend=-1))
    return keys[starts], np.maximum.reduceat(values, starts) if len(starts) else values


def log_length_ratio(source: Array | float, target: Array | float) -> Array:
    ratios: Array = np.log((target + GRACE) / (source + GRACE))
    return ratios


def log_density_ratio(right: Array, unrelated: Array) -> Callable[[Array], Array]:
    """Return the log ratio of a feature's densities in right and unrelated pairs, as a function of the feature."""
    quantiles = np.quantile(np.concatenate([right, unrelated]), np.linspace(0, 1, _BINS + 1)[1:-1])
    edges = np.unique(quantiles)
    densities = []
    for values in (right, unrelated):
        counts = np.bincount(np.searchsorted(edges, values, side="right"), minlength=len(edges) + 1) + 1.0
        densities.append(np.log(counts / counts.sum()))
    ratios = densities[0] - densities[1]
    return lambda values: ratios[np.searchsorted(edges, values, side="right")]


def likely_shifts(evidence: PairEvidence, candidates: Array, start: int, end: int) -> list[int]:
    """Return shifts at which lines `start` to `end` find many rare words translated, the likeliest first.

    `candidates` are the target lines that may belong to them, in order.
    """
    target = evidence.target
    sizes = target.counts[candidates]
    words = target.ids[ranges(target.starts[candidates], sizes)]
    entries, rows = _entries(evidence.source, evidence.forward, start, end)
    places, numbers = _occurrences(words, evidence.forward[1][entries], _RARE)
    rows, span = rows[numbers], 2 * len(target.counts)
    votes = (rows // _VOTERS) * span + np.repeat(candidates, sizes)[places] - rows + span // 2  # group and shift
    votes, n_votes = np.unique(votes, return_counts=True)
    groups, shifts = votes // span, votes % span - span // 2
    chosen = top_of_each(groups, n_votes, _BEST)
    chosen = chosen[n_votes[chosen] >= _MIN_VOTES]
    shifts, index = np.unique(shifts[chosen], return_inverse=True)
    totals = np.bincount(index, n_votes[chosen], len(shifts))
    return [int(shift) for shift in shifts[np.argsort(-totals, kind="stable")[:_MAX_SHIFTS]]]


def shift_of_all(evidence: PairEvidence) -> int | None:
    """Return by how many lines two texts are shifted as a whole; 0 if not, None if they are unrelated.

    Such texts teach no lexicon, but the lengths of translations correlate (Gale and Church 1993).
    """
    if evidence.in_step()[0].mean() >= _RELATED:
        return 0
    source, target = (np.log(side.characters + GRACE) for side in (evidence.source, evidence.target))
    shifts = sorted(range(-_FARTHEST, _FARTHEST + 1), key=abs)
    correlations = [_correlation(source, target, shift) for shift in shifts]
    best = int(np.argmax(correlations))
    if correlations[best] >= _CLEAR:
        return shifts[best]
    return None if correlations[0] < CHANCE_CORRELATION else 0


def _correlation(source: Array, target: Array, shift: int) -> float:
    """Return the correlation of source values with the target values `shift` lines further on."""
    first, last = max(0, -shift), min(len(source), len(target) - shift)
    with np.errstate(invalid="ignore"):  # of lines that are equally long
        found = np.corrcoef(source[first:last], target[first + shift : last + shift])[0, 1]
    return float(np.nan_to_num(found))


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
    """Return the places of wanted values that occur at most `most` times, and for each its index in `wanted`."""
    order = np.argsort(values, kind="stable")
    first, last = (np.searchsorted(values[order], wanted, side) for side in ("left", "right"))
    counts = np.where(last - first <= most, last - first, 0)
    return order[ranges(first, counts)], np.repeat(np.arange(len(wanted)), counts)
