"""Alignment of the sentences of two texts, one a translation of the other.

Dynamic programming over sentences that are translated one to one, merged, split or left out, as by Gale and Church
1993, "A Program for Aligning Sentences in Bilingual Corpora", but with affine gap costs: lines that are left out often
follow each other. Lengths, names and numbers give a first alignment, from which a lexicon is learned that gives the
next ones (Moore 2002; Varga et al. 2005).

    N source and M target lines   W = 2 * band + 1 target lines that are tried with a source line
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from operator import itemgetter

import numpy as np

from mt.data.lexicon import Lexicon, Side, learn_lexicon
from mt.data.ragged import Array, ranges, row_sums
from mt.extras.doctor.pair_evidence import log_density_ratio, log_length_ratio

# Source and target lines of a match, and the log ratio of its prior to that of one to one, chosen on validation text.
_MATCHES = ((1, 1, 0.0), (2, 1, -4.0), (1, 2, -4.0))
# The log prior of the first line left out, near Gale and Church's table 5, and of each next one (affine gap costs).
_GAPS = ((1, 0), (0, 1))
_GAP_COSTS = np.array([[-4.0], [-2.0]])
_FIRST_BAND, _NEXT_BAND = 300, 60
_PASSES = 3  # with a lexicon
_BOUND = 4.0  # largest evidence of a step, in nats
_DEVIATION = 0.3  # of the logarithm of a length ratio, before it is learned
_UNRELATED = 23  # lines this far apart are no translations
MIN_KNOWN = 100  # steps from which densities are learned

# From gains per word and deviations of the length ratio to the log-likelihood ratio of "translation" to "unrelated".
Evidence = Callable[[Array, Array], Array]


@dataclass(frozen=True)
class Link:
    """Source and target lines, `[start, end)` each, that translate each other, and the evidence in nats."""

    source: tuple[int, int]
    target: tuple[int, int]
    score: float

    @property
    def is_single(self) -> bool:
        """Report whether a single line is likely the translation of a single line."""
        return self.source[1] - self.source[0] == self.target[1] - self.target[0] == 1 and self.score > 0

    def moved(self, lines: int) -> "Link":
        """Return the link with both ranges that many lines further on."""
        (a, b), (c, d) = self.source, self.target
        return Link((a + lines, b + lines), (c + lines, d + lines), self.score)


def align(sources: Sequence[str], targets: Sequence[str]) -> list[Link]:
    """Align two texts in order; a line without a translation is in no link.

    With fewer than `MIN_KNOWN` single links no lexicon was learned.
    """
    if not sources or not targets:
        return []
    source, target = Side(sources), Side(targets)
    none = np.zeros(0, np.int64)
    centre = np.linspace(0, len(targets), len(sources) + 1).round().astype(np.int64)
    band = _first_band(len(sources), len(targets))
    lexicon = learn_lexicon(source, target, none, none)
    _, links, centre = max(
        (_Aligner(source, target, lexicon, ratio).best(centre, band) for ratio in _length_ratios(source, target)),
        key=itemgetter(0),
    )
    for number in range(_PASSES):  # the first ones may be far off
        known = np.array([(link.source[0], link.target[0]) for link in links if link.is_single], np.int64)
        if len(known) < MIN_KNOWN:
            break
        lexicon = learn_lexicon(source, target, known[:, 0], known[:, 1])
        ratio = float(np.median(log_length_ratio(source.characters[known[:, 0]], target.characters[known[:, 1]])))
        aligner = _Aligner(source, target, lexicon, ratio, known)
        _, links, centre = aligner.best(centre, _NEXT_BAND if number else band)
    return links


def with_gaps(links: list[Link], n_source: int, n_target: int) -> Iterator[Link]:
    """Yield the links in order and, linked to an empty range, each line that is in none of them."""
    end, i, j = Link((n_source, n_source), (n_target, n_target), 0.0), 0, 0
    for link in (*links, end):
        yield from (Link((line, line + 1), (j, j), -math.inf) for line in range(i, link.source[0]))
        i, last = link.source
        yield from (Link((i, i), (line, line + 1), -math.inf) for line in range(j, link.target[0]))
        i, j = last, link.target[1]
        if link is not end:
            yield link


def table_cells(n_source: int, n_target: int) -> int:
    """Return the number of cells in the alignment table of two texts."""
    return (n_source + 1) * (2 * _first_band(n_source, n_target) + 1)


def _first_band(n_source: int, n_target: int) -> int:
    return max(_FIRST_BAND, abs(n_source - n_target) + 100)


def _length_ratios(source: Side, target: Side) -> set[float]:
    """Return the log length ratios that translations may have: of the texts, or if much is missing, of their lines."""
    return {
        round(float(log_length_ratio(float(statistic(source.characters)), float(statistic(target.characters)))), 1)
        for statistic in (np.sum, np.mean)
    }


def _first_evidence(gains: Array, deviations: Array) -> Array:
    bounded: Array = np.clip(1.0 + 2.0 * gains - 0.5 * (deviations / _DEVIATION) ** 2, -_BOUND, _BOUND)
    return bounded


class _Aligner:
    """Search for the best sequence of steps, scored by a lexicon and by the evidence that known pairs (P, 2) teach."""

    def __init__(
        self, source: Side, target: Side, lexicon: Lexicon, length_ratio: float, known: Array | None = None
    ) -> None:
        self.source, self.target = source, target
        self._first = np.searchsorted(lexicon[0], np.arange(len(source.vocab) + 1))
        self._translations, self._gains = lexicon[1:]
        self._weights = np.zeros(len(target.vocab) + 1)  # of each target word, for one source line
        self._length_ratio = length_ratio  # its logarithm
        self._evidence = _first_evidence if known is None else self._learned_evidence(known)

    def _learned_evidence(self, known: Array) -> Evidence:
        """Return the evidence that known pairs of lines (P, 2) teach, in contrast to pairs of lines far apart."""
        far = np.stack([known[:, 0], np.roll(known[:, 1], _UNRELATED)], axis=1)
        right, unrelated = (self._features(pairs) for pairs in (known, far))
        of_gain, of_deviation = map(log_density_ratio, right, unrelated)
        return lambda gains, deviations: np.clip(of_gain(gains) + of_deviation(deviations), -_BOUND, _BOUND)

    def _features(self, pairs: Array) -> tuple[Array, Array]:
        gains = np.array([self._line_gains(i, i + 1, j, j + 1)[0] for i, j in pairs.tolist()])
        counts = np.maximum(1, self.target.counts[pairs[:, 1]])
        return gains / counts, self._deviations(
            self.source.characters[pairs[:, 0]], self.target.characters[pairs[:, 1]]
        )

    def _deviations(self, source: Array | float, target: Array) -> Array:
        deviations: Array = np.abs(log_length_ratio(source, target) - self._length_ratio)
        return deviations

    def _line_gains(self, first: int, last: int, low: int, high: int) -> Array:
        """Return the gains of target lines `low` to `high` as translations of source lines `first` to `last`."""
        words = self.source.ids[self.source.starts[first] : self.source.starts[last]]
        sizes = self._first[words + 1] - self._first[words]
        entries = ranges(self._first[words], sizes)
        translations, gained = self._translations[entries], self._gains[entries]
        self._weights[translations] = gained  # of a word that several translate, the last: nearly the same
        starts = self.target.starts[low : high + 1]
        gains = row_sums(self._weights[self.target.ids[starts[0] : starts[-1]]], starts - starts[0])
        self._weights[translations] = 0.0
        return gains

    def best(self, centre: Array, band: int) -> tuple[float, list[Link], Array]:
        """Return the best alignment: its score, links and path, the target lines before each number of source lines.

        Args:
            centre: the path (N + 1,) of an earlier alignment; at most `band` target lines from it are tried.
        """
        n_target = len(self.target.counts)
        pad = 2  # -inf before the first target line, for steps that would begin there
        # Scores of paths to the last source lines that end in a match, or in a gap, by target lines so far.
        rows = np.full((3, 2, n_target + 1 + pad), -np.inf)
        reach = zip(centre, [*centre[1:], n_target], strict=True)  # up to the next line, past target lines left out
        bounds = [(max(0, int(first) - band), min(n_target, int(last) + band)) for first, last in reach]
        cells = np.concatenate([[0], np.cumsum([high - low + 1 for low, high in bounds])])
        origins, scores = np.zeros((2, cells[-1]), np.int8), np.zeros(cells[-1], np.float32)
        for i, (low, high) in enumerate(bounds):
            row, above = rows[i % 3], rows[i % 3 - 1]
            if i >= 3:
                row[:, bounds[i - 3][0] + pad : bounds[i - 3][1] + pad + 1] = -np.inf
            here, left = slice(low + pad, high + pad + 1), slice(low + pad - 1, high + pad)
            evidence = self._match_evidence(i, low, high)
            matched = np.concatenate(
                [
                    rows[(i - n_src) % 3][:, here.start - n_tgt : here.stop - n_tgt] + prior + evidence[move]
                    for move, (n_src, n_tgt, prior) in enumerate(_MATCHES)
                ]
            )
            if i == low == 0:
                matched[0, 0] = 0.0
            row[0, here] = matched.max(axis=0)
            gapped = np.stack([*(above[:, here] + _GAP_COSTS), row[0, left] + _GAP_COSTS[0]]).max(axis=0)
            steps = _GAP_COSTS[1] * np.arange(len(gapped))
            row[1, here] = np.maximum.accumulate(gapped - steps) + steps
            cell = slice(cells[i], cells[i + 1])
            origins[0, cell] = chosen = matched.argmax(axis=0)
            origins[1, cell] = np.concatenate([above[:, here] + _GAP_COSTS, row[:, left] + _GAP_COSTS]).argmax(axis=0)
            scores[cell] = evidence[chosen // 2, np.arange(len(chosen))]
        ends = row[:, n_target + pad]
        return float(ends.max()), *self._traced(origins, scores, cells[:-1] - [low for low, _ in bounds], ends.argmax())

    def _match_evidence(self, i: int, low: int, high: int) -> Array:
        """Return the evidence of each match that ends after `i` source lines and `low` to `high` target lines."""
        evidence = np.zeros((len(_MATCHES), high - low + 1))
        start = max(0, low - 2)
        counts, characters = self.target.counts[start:high], self.target.characters[start:high]
        ends = np.arange(low, high + 1)
        for move, (n_src, n_tgt, _) in enumerate(_MATCHES):
            if i < n_src:
                continue
            gains = self._line_gains(i - n_src, i, start, high)
            totals = [np.concatenate([[0.0], np.cumsum(x)]) for x in (gains, counts, characters)]
            last, first = ends - start, np.maximum(0, ends - start - n_tgt)
            gain, words, length = (total[last] - total[first] for total in totals)
            source_length = float(self.source.characters[i - n_src : i].sum())
            evidence[move] = self._evidence(gain / np.maximum(1, words), self._deviations(source_length, length))
        return evidence

    def _traced(self, origins: Array, scores: Array, first: Array, in_gap: int) -> tuple[list[Link], Array]:
        """Follow the origins (2, cells) of matches and gaps back to the start."""
        i, j = len(self.source.counts), len(self.target.counts)
        links, path = list[Link](), np.zeros(i + 1, np.int64)
        while i or j:
            path[i] = j
            cell = first[i] + j
            move, was_in_gap = divmod(int(origins[in_gap, cell]), 2)
            n_src, n_tgt = _GAPS[move] if in_gap else _MATCHES[move][:2]
            if not in_gap:
                links.append(Link((i - n_src, i), (j - n_tgt, j), float(scores[cell])))
                path[i - n_src + 1 : i] = j
            i, j, in_gap = i - n_src, j - n_tgt, was_in_gap
        return links[::-1], path
