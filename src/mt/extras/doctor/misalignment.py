"""Blocks of a corpus whose lines are not translations of each other, by a lexicon that the corpus itself teaches.

Most lines of a corpus are right, so IBM Model 1 learns from it which words translate each other. How many of its
translations a line finds in the lines beside its own tells which line is its translation. That evidence, in which right
pairs differ from pairs of lines far apart, is summed by a hidden Markov model whose state is the shift.

    N pairs   K shifts
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice, pairwise

import numpy as np

from mt.data.cleaning import GRACE
from mt.extras.doctor.lexicon import Array, Lexicon, Side, density_ratios, learn_lexicon

MAX_SHIFT = 3
_SHIFTS = tuple(range(-MAX_SHIFT, MAX_SHIFT + 1))
_UNRELATED = (37, -53)  # lines so far apart are no translations
_SEGMENT = 200_000  # pairs in memory together
_MIN_PAIRS = 300  # of which nothing can be learned
_CHUNK = 40_000  # lines scored together
_LEAVE, _CHANGE, _RETURN = 14.0, 6.0, 2.0  # cost, in nats, of a state other than "in step"
_BOUND = 5.0  # nats that a single line can give
_MIN_LINES, _LONG = 3, 20


@dataclass(frozen=True)
class Block:
    """Pairs `start` to `end` (exclusive) of a corpus, counted from 0, that are out of step.

    `shift`: the translation of a source line stands so many lines further on; None: nowhere near.
    """

    start: int
    end: int
    shift: int | None

    def described(self, source: str, target: str) -> str:
        """Name the lines and where their translations are."""
        lines = f"{'pairs' if source == target else 'lines'} {self.start + 1:,} to {self.end:,}"
        if self.shift is None:
            return f"{target}: {lines} do not translate those of {source}"
        count = f"{abs(self.shift)} line{'s' if abs(self.shift) > 1 else ''}"
        direction, cause = ("late", "too many") if self.shift > 0 else ("early", "missing")
        return f"{target}: {lines} are {count} {direction}: {count} {cause} before them"


def misaligned_blocks(
    pairs: Iterable[tuple[str, str]], observe: Callable[[int, Array, Array], None] | None = None
) -> Iterator[Block]:
    """Find blocks of pairs that are out of step with the rest; a corpus of less than 300 pairs teaches too little.

    `observe` gets the index of the first of N pairs, their evidence in nats (N,) and log ratio of lengths (N,).
    """
    remaining, before = iter(pairs), 0
    while segment := list(islice(remaining, _SEGMENT)):
        if len(segment) >= _MIN_PAIRS:
            states, evidence, ratios = _states(segment)
            if observe is not None:
                observe(before, evidence, ratios)
            for block in _blocks(states):
                yield Block(block.start + before, block.end + before, block.shift)
        before += len(segment)


def _states(pairs: list[tuple[str, str]]) -> tuple[Array, Array, Array]:
    """Return state, evidence and log ratio of lengths of each pair; learned again without those out of step."""
    source, target = (Side(pair[side] for pair in pairs) for side in (0, 1))
    in_step = np.ones(len(pairs), np.bool_)
    evidence = _evidence(source, target, in_step)
    states = _likeliest_states(evidence.clip(-_BOUND, _BOUND))
    for block in _blocks(states):
        in_step[block.start : block.end] = False
    if not in_step.all() and in_step.sum() >= _MIN_PAIRS:
        evidence = _evidence(source, target, in_step)
        states = _likeliest_states(evidence.clip(-_BOUND, _BOUND))
    return states, evidence[_SHIFTS.index(0)], _log_ratios(source, target)


def _log_ratios(source: Side, target: Side) -> Array:
    return np.log((target.characters + GRACE) / (source.characters + GRACE))


def _gains(source: Side, target: Side, lexicon: Lexicon, shifts: Iterable[int]) -> list[Array]:
    """Return for each shift (N,) the gains of the words of the line so many lines on that translate words of a line."""
    words, translations, gains = lexicon
    first = np.searchsorted(words, np.arange(len(source.vocab) + 1))  # entry of each source word
    n_lines, n_targets = len(source.counts), len(target.vocab) + 1
    results = [np.zeros(n_lines) for _ in shifts]
    for start in range(0, n_lines, _CHUNK):
        end = min(n_lines, start + _CHUNK)
        src = source.ids[source.starts[start] : source.starts[end]]
        rows = np.repeat(np.arange(start, end), source.counts[start:end])
        n_entries = first[src + 1] - first[src]
        total = np.cumsum(n_entries)
        entries = np.arange(total[-1] if len(total) else 0) + np.repeat(first[src] - total + n_entries, n_entries)
        keys, order = np.unique(np.repeat(rows, n_entries) * n_targets + translations[entries], return_index=True)
        weights = gains[entries][order]
        for shift, result in zip(shifts, results, strict=True):
            low, high = max(0, start + shift), min(n_lines, end + shift)
            if low >= high or not len(keys):
                continue
            tgt = target.ids[target.starts[low] : target.starts[high]]
            line = np.repeat(np.arange(low, high), target.counts[low:high]) - shift
            wanted = line * n_targets + tgt
            place = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
            found = keys[place] == wanted
            result[start:end] += np.bincount(line[found] - start, weights[place[found]], end - start)
    return results


def _evidence(source: Side, target: Side, in_step: Array) -> Array:
    """Return the log-likelihood ratio of "translation" to "unrelated" for each shift, and 0 for no shift (K + 1, N).

    It is learned from the lines `in_step` (N,).
    """
    known = np.flatnonzero(in_step)
    shifts = (*_SHIFTS, *_UNRELATED)
    forward = _gains(source, target, learn_lexicon(source, target, known, known), shifts)
    backward = _gains(target, source, learn_lexicon(target, source, known, known), [-shift for shift in shifts])
    lines = np.arange(len(source.counts))
    typical = np.median(_log_ratios(source, target))

    def features(shift: int, gain: Array, back: Array) -> tuple[Array, Array]:
        other = np.clip(lines + shift, 0, len(lines) - 1)
        words = np.maximum(source.counts + target.counts[other], 1)
        ratio = np.log((target.characters[other] + GRACE) / (source.characters + GRACE))
        return (gain + back[other]) / words, np.abs(ratio - typical)

    by_shift = {each[0]: features(*each) for each in zip(shifts, forward, backward, strict=True)}
    tables = [
        density_ratios(by_shift[0][kind][in_step], np.concatenate([by_shift[shift][kind] for shift in _UNRELATED]))
        for kind in (0, 1)
    ]
    rows = []
    for shift in _SHIFTS:
        found = [
            table[np.searchsorted(edges, values, side="right")]
            for (edges, table), values in zip(tables, by_shift[shift], strict=True)
        ]
        row = found[0] + found[1]
        row[(lines + shift < 0) | (lines + shift >= len(lines))] = -_BOUND
        rows.append(row)
    return np.stack([*rows, np.zeros(len(lines))])


def _likeliest_states(evidence: Array) -> Array:
    """Return the likeliest sequence of states (N,), each a row of `evidence` (Viterbi's algorithm)."""
    n_states, n_lines = evidence.shape
    in_step = _SHIFTS.index(0)
    cost = np.full((n_states, n_states), _CHANGE)  # from, to
    cost[in_step], cost[:, in_step] = _LEAVE, _RETURN
    np.fill_diagonal(cost, 0.0)
    scores = evidence[:, 0] - cost[in_step]
    origins = np.zeros((n_lines, n_states), np.int8)
    for line in range(1, n_lines):
        reached = scores[:, None] - cost
        origins[line] = reached.argmax(axis=0)
        scores = reached.max(axis=0) + evidence[:, line]
    states = np.empty(n_lines, np.int64)
    states[-1] = scores.argmax()
    for line in range(n_lines - 1, 0, -1):
        states[line - 1] = origins[line, states[line]]
    return states


def _blocks(states: Array) -> Iterator[Block]:
    """Yield the runs of states other than "in step", one for those that follow each other."""
    bounds = [0, *(np.flatnonzero(np.diff(states)) + 1).tolist(), len(states)]
    runs: list[Block] = []
    for start, end in (*pairwise(bounds), (len(states), len(states))):
        shift = _SHIFTS[states[start]] if start < end and states[start] < len(_SHIFTS) else None
        if start < end and shift != 0:
            runs.append(Block(start, end, shift))
        elif runs and runs[-1].end - runs[0].start >= _MIN_LINES:
            yield from _joined(runs)
            runs = []
        else:
            runs = []


def _joined(runs: list[Block]) -> Iterator[Block]:
    """Join short runs, which similar lines bring about, to the long ones that they touch."""
    size = max(run.end - run.start for run in runs) / 3
    long = [run for run in runs if run.end - run.start >= min(size, _LONG)]
    starts = [runs[0].start, *(run.start for run in long[1:])]
    for start, end, run in zip(starts, (*starts[1:], runs[-1].end), long, strict=True):
        yield Block(start, end, run.shift)
