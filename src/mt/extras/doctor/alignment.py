"""Alignment of the sentences of two texts, one a translation of the other.

Dynamic programming over sentences that are translated one to one, merged, split or left out, as by Gale and Church
1993, "A Program for Aligning Sentences in Bilingual Corpora". Lengths, names and numbers give a first alignment, from
which a lexicon is learned that gives the next ones (Moore 2002; Varga et al. 2005).

    N source and M target lines   W = 2 * band + 1 target lines that are tried with a source line
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from mt.data.cleaning import GRACE
from mt.data.lexicon import Lexicon, Side, learn_lexicon
from mt.data.ragged import Array, ranges, row_sums
from mt.extras.doctor.pair_evidence import log_density_ratio

# Source and target lines of a step, and the log ratio of its prior to that of one to one: for lines left out near Gale
# and Church's table 5, for merges lower, chosen on validation text.
_MOVES = ((1, 1, 0.0), (1, 0, -4.0), (0, 1, -4.0), (2, 1, -4.0), (1, 2, -4.0))
_ONE, _INSERTED = 0, 2  # of _MOVES
_FIRST_BAND, _NEXT_BAND = 300, 60
_PASSES = 3  # with a lexicon
_BOUND = 4.0  # largest evidence of a step, in nats
_DEVIATION = 0.3  # of the logarithm of a length ratio, before it is learned
_UNRELATED = 23  # lines this far apart are no translations
_MIN_KNOWN = 100  # steps from which densities are learned

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
    """Align two texts in order; a line without a translation is in no link."""
    if not sources or not targets:
        return []
    source, target = Side(sources), Side(targets)
    none = np.zeros(0, np.int64)
    centre = np.linspace(0, len(targets), len(sources) + 1).round().astype(np.int64)
    band = _first_band(len(sources), len(targets))
    links, centre = _Aligner(source, target, learn_lexicon(source, target, none, none)).best(centre, band)
    for number in range(_PASSES):  # the first ones may be far off
        known = np.array([(link.source[0], link.target[0]) for link in links if link.is_single], np.int64)
        if len(known) < _MIN_KNOWN:
            break
        lexicon = learn_lexicon(source, target, known[:, 0], known[:, 1])
        links, centre = _Aligner(source, target, lexicon, known).best(centre, _NEXT_BAND if number else band)
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


def _first_evidence(gains: Array, deviations: Array) -> Array:
    bounded: Array = np.clip(1.0 + 2.0 * gains - 0.5 * (deviations / _DEVIATION) ** 2, -_BOUND, _BOUND)
    return bounded


class _Aligner:
    """Search for the best sequence of steps, scored by a lexicon and by the evidence that known pairs (P, 2) teach."""

    def __init__(self, source: Side, target: Side, lexicon: Lexicon, known: Array | None = None) -> None:
        self.source, self.target = source, target
        self._first = np.searchsorted(lexicon[0], np.arange(len(source.vocab) + 1))
        self._translations, self._gains = lexicon[1:]
        self._weights = np.zeros(len(target.vocab) + 1)  # of each target word, for one source line
        self._typical = math.log((target.characters.sum() + GRACE) / (source.characters.sum() + GRACE))
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
        ratios: Array = np.abs(np.log((target + GRACE) / (source + GRACE)) - self._typical)
        return ratios

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

    def best(self, centre: Array, band: int) -> tuple[list[Link], Array]:
        """Return the best links, and their path: the target lines before each number of source lines (N + 1,).

        Args:
            centre: the path of an earlier alignment; at most `band` target lines from it are tried.
        """
        n_target = len(self.target.counts)
        pad = 2  # -inf before the first target line, for steps that would begin there
        rows = np.full((3, n_target + 1 + pad), -np.inf)  # of the last source lines, by target lines so far
        reach = zip(centre, [*centre[1:], n_target], strict=True)  # up to the next line, past target lines left out
        bounds = [(max(0, int(first) - band), min(n_target, int(last) + band)) for first, last in reach]
        cells = np.concatenate([[0], np.cumsum([high - low + 1 for low, high in bounds])])
        origins, scores = np.zeros(cells[-1], np.int8), np.zeros(cells[-1], np.float32)
        for i, (low, high) in enumerate(bounds):
            row = rows[i % 3]
            if i >= 3:
                row[bounds[i - 3][0] + pad : bounds[i - 3][1] + pad + 1] = -np.inf
            here = slice(low + pad, high + pad + 1)
            evidence = self._step_evidence(i, low, high)
            reached = np.full((len(_MOVES), high - low + 1), -np.inf)
            for move, (n_src, n_tgt, prior) in enumerate(_MOVES):
                if move != _INSERTED and i >= n_src:
                    before = rows[(i - n_src) % 3][here.start - n_tgt : here.stop - n_tgt]
                    reached[move] = before + prior + evidence[move]
            if i == 0 and low == 0:
                reached[_ONE, 0] = 0.0
            chosen = reached.argmax(axis=0)
            best = reached.max(axis=0)
            steps = _MOVES[_INSERTED][2] * np.arange(len(best))
            inserted = np.maximum.accumulate(best - steps) + steps
            chosen[inserted > best] = _INSERTED
            row[here] = np.maximum(best, inserted)
            origins[cells[i] : cells[i + 1]] = chosen
            scores[cells[i] : cells[i + 1]] = evidence[chosen, np.arange(len(chosen))]
        return self._traced(origins, scores, cells[:-1] - [low for low, _ in bounds])

    def _step_evidence(self, i: int, low: int, high: int) -> Array:
        """Return the evidence of each move that ends after `i` source lines and `low` to `high` target lines."""
        evidence = np.zeros((len(_MOVES), high - low + 1))
        start = max(0, low - 2)
        counts, characters = self.target.counts[start:high], self.target.characters[start:high]
        ends = np.arange(low, high + 1)
        for move, (n_src, n_tgt, _) in enumerate(_MOVES):
            if not n_src or not n_tgt or i < n_src:
                continue
            gains = self._line_gains(i - n_src, i, start, high)
            totals = [np.concatenate([[0.0], np.cumsum(x)]) for x in (gains, counts, characters)]
            last, first = ends - start, np.maximum(0, ends - start - n_tgt)
            gain, words, length = (total[last] - total[first] for total in totals)
            source_length = float(self.source.characters[i - n_src : i].sum())
            evidence[move] = self._evidence(gain / np.maximum(1, words), self._deviations(source_length, length))
        return evidence

    def _traced(self, origins: Array, scores: Array, first: Array) -> tuple[list[Link], Array]:
        i, j = len(self.source.counts), len(self.target.counts)
        links, path = list[Link](), np.zeros(i + 1, np.int64)
        while i or j:
            path[i] = j
            cell = first[i] + j
            move = int(origins[cell])
            n_src, n_tgt, _ = _MOVES[move]
            if n_src and n_tgt:
                links.append(Link((i - n_src, i), (j - n_tgt, j), float(scores[cell])))
                path[i - n_src + 1 : i] = j
            i, j = i - n_src, j - n_tgt
        return links[::-1], path
