"""Evidence that two lines translate each other, learned from the corpus itself.

N lines   K shifts
"""

from collections.abc import Iterable, Sequence

import numpy as np

from mt.data.cleaning import GRACE
from mt.data.lexicon import Array, Lexicon, Side, learn_lexicon
from mt.data.token_store import ranges

_UNRELATED = (37, -53)  # lines so far apart are no translations
_CHUNK = 40_000  # lines scored together
_BINS = 24
_BOUND = 5.0  # nats that a single line can give


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
        self._typical = np.median(np.log((target.characters + GRACE) / (source.characters + GRACE)))
        self._in_step, *unrelated = self._features((0, *_UNRELATED), 0, len(source.counts))
        self._tables = [
            density_ratios(self._in_step[kind][in_step], np.concatenate([each[kind] for each in unrelated]))
            for kind in (0, 1)
        ]

    def rows(self, shifts: Sequence[int], start: int, end: int) -> Array:
        """Return the evidence that lines `start` to `end` belong to those `shift` further on (K, end - start)."""
        rows, lines = [], np.arange(start, end)
        for shift, features in zip(shifts, self._features(shifts, start, end), strict=True):
            row = self._ratios(features)
            row[(lines + shift < 0) | (lines + shift >= len(self.target.counts))] = -_BOUND
            rows.append(np.clip(row, -_BOUND, _BOUND))
        return np.stack(rows)

    def in_step(self) -> tuple[Array, Array]:
        """Return the evidence for the pairs as they are, unbounded, and their log ratios of lengths, both (N,)."""
        log_ratios = np.log((self.target.characters + GRACE) / (self.source.characters + GRACE))
        return self._ratios(self._in_step), log_ratios

    def _ratios(self, features: tuple[Array, Array]) -> Array:
        tables = zip(self._tables, features, strict=True)
        total: Array = np.sum([ratio[np.searchsorted(edges, x, side="right")] for (edges, ratio), x in tables], axis=0)
        return total

    def _features(self, shifts: Sequence[int], start: int, end: int) -> list[tuple[Array, Array]]:
        """Return for each shift the gain per word, and the deviation of the length ratio."""
        source, target, lines = self.source, self.target, np.arange(start, end)
        low, high = max(0, start + min(shifts)), min(len(target.counts), end + max(shifts))
        forward = _gains(source, target, self.forward, shifts, start, end)
        backward = _gains(target, source, self._backward, [-shift for shift in shifts], low, high)
        features = []
        for shift, gain, back in zip(shifts, forward, backward, strict=True):
            other = np.clip(lines + shift, low, high - 1)
            words = np.maximum(source.counts[start:end] + target.counts[other], 1)
            ratio = np.log((target.characters[other] + GRACE) / (source.characters[start:end] + GRACE))
            features.append(((gain + back[other - low]) / words, np.abs(ratio - self._typical)))
        return features


def lexicon_entries(side: Side, lexicon: Lexicon, start: int, end: int) -> tuple[Array, Array]:
    """Return the entries of the words of lines `start` to `end`, and the line of each."""
    first = np.searchsorted(lexicon[0], np.arange(len(side.vocab) + 1))  # entry of each word
    words = side.ids[side.starts[start] : side.starts[end]]
    rows = np.repeat(np.arange(start, end), side.counts[start:end])
    sizes = first[words + 1] - first[words]
    return ranges(first[words], sizes), np.repeat(rows, sizes)


def _gains(source: Side, target: Side, lexicon: Lexicon, shifts: Iterable[int], first: int, last: int) -> list[Array]:
    """Return for each shift the gains of the words of the line so many lines on that translate words of a line."""
    n_lines, n_targets = len(target.counts), len(target.vocab) + 1
    results = [np.zeros(max(0, last - first)) for _ in shifts]
    for start in range(first, last, _CHUNK):
        end = min(last, start + _CHUNK)
        entries, rows = lexicon_entries(source, lexicon, start, end)
        keys, weights = _largest(rows * n_targets + lexicon[1][entries], lexicon[2][entries])
        for shift, result in zip(shifts, results, strict=True):
            low, high = max(0, start + shift), min(n_lines, end + shift)
            if low >= high or not len(keys):
                continue
            tgt = target.ids[target.starts[low] : target.starts[high]]
            line = np.repeat(np.arange(low, high), target.counts[low:high]) - shift
            wanted = line * n_targets + tgt
            place = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
            found = keys[place] == wanted
            result[start - first : end - first] += np.bincount(line[found] - start, weights[place[found]], end - start)
    return results


def _largest(keys: Array, values: Array) -> tuple[Array, Array]:
    """Return the distinct keys in ascending order, and the largest value of each."""
    order = np.argsort(keys)
    keys, values = keys[order], values[order]
    starts = np.flatnonzero(np.diff(keys, prepend=-1))
    return keys[starts], np.maximum.reduceat(values, starts) if len(starts) else values


def density_ratios(right: Array, unrelated: Array) -> tuple[Array, Array]:
    """Return edges of bins of a feature, and the log ratio of its densities in right and unrelated pairs in each."""
    quantiles = np.quantile(np.concatenate([right, unrelated]), np.linspace(0, 1, _BINS + 1)[1:-1])
    edges = np.unique(quantiles)
    densities = []
    for values in (right, unrelated):
        counts = np.bincount(np.searchsorted(edges, values, side="right"), minlength=len(edges) + 1) + 1.0
        densities.append(np.log(counts / counts.sum()))
    return edges, densities[0] - densities[1]
