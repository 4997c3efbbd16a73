"""Blocks of a corpus whose lines are not translations of each other, by a lexicon that the corpus itself teaches.

Most lines of a corpus are right, so IBM Model 1 learns from it which words translate each other. How many of its
translations a line finds in the lines beside its own tells which line is its translation. That evidence, in which right
pairs differ from pairs of lines far apart, is summed by a hidden Markov model whose state is the shift. A second one
looks for the translations of blocks that have none nearby, among the lines of the other such blocks.

    N pairs   K shifts
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, islice, pairwise
from operator import attrgetter

import numpy as np

from mt.data.lexicon import Side
from mt.data.ragged import Array
from mt.extras.doctor.pair_evidence import PairEvidence, likely_shifts, repeated_from, shift_of_all

# Pairs in memory together; no block reaches from one segment into the next. Those of long lines have fewer pairs.
SEGMENT, _MIN_SEGMENT, _SEGMENT_CHARACTERS = 200_000, 2_000, 60_000_000
_SHIFTS = tuple(range(-3, 4))
_NOWHERE = np.iinfo(np.int64).max  # instead of a shift
_MIN_PAIRS = 300  # from which a lexicon is learned
_LEAVE, _CHANGE, _RETURN = 14.0, 6.0, 2.0  # cost, in nats, of a transition: out of step, to another shift, back in step
_MIN_LINES, _LONG = 3, 20  # of blocks; of runs that are not joined to others
_MARGIN = 10  # lines around a block that are looked at again with it
_NEGLIGIBLE = 0.01  # share of wrong pairs with which a lexicon can be learned
_SURE = 3.0  # nats by which a line belongs to its block rather than to the one beside it


@dataclass(frozen=True)
class Block:
    """Pairs `start` to `end` (exclusive) of a corpus, counted from 0, that are out of step.

    Attributes:
        shift: number of lines by which the translation of a source line stands further on; None: nowhere.
        swapped: the source lines there have their translations here.
        copied: side (0: source, 1: target) whose lines are copies, and the first of the lines that they repeat.
        unsure: pairs at its ends and within whose translation is not certain.
    """

    start: int
    end: int
    shift: int | None
    swapped: bool = False
    copied: tuple[int, int] | None = None
    unsure: tuple[int, ...] = ()

    def described(self, source: str, target: str) -> str:
        """Name the lines and where their translations are."""
        is_table, n_lines = source == target, self.end - self.start
        sides = ("sources of pairs", "targets of pairs") if is_table else ("lines", "lines")

        def span(start: int, side: int) -> str:
            return f"{sides[side]} {start + 1:,} to {start + n_lines:,}"

        lines = f"{'pairs' if is_table else 'lines'} {self.start + 1:,} to {self.end:,}"
        if self.copied:
            side, first = self.copied
            return f"{(source, target)[side]}: {span(self.start, side)} repeat {span(first, side)}"
        if self.shift is None:
            return f"{target}: {lines} do not translate those of {source}"
        if abs(self.shift) >= n_lines and abs(self.shift) > _SHIFTS[-1]:
            other = "" if is_table else f" of {source}"
            both = ", and the other way round" if self.swapped else ""
            return f"{target}: {span(self.start + self.shift, 1)} belong to {span(self.start, 0)}{other}{both}"
        count = f"{abs(self.shift):,} line{'s' if abs(self.shift) > 1 else ''}"
        direction, cause = ("late", "too many") if self.shift > 0 else ("early", "missing")
        return f"{target}: {lines} are {count} {direction}: {count} {cause} before them"


def segment_pairs(pairs: int, characters: int) -> int:
    """Return the pairs of a segment of a text, by its size; those of ordinary sentences are `SEGMENT`."""
    return max(_MIN_SEGMENT, min(SEGMENT, _SEGMENT_CHARACTERS * pairs // max(characters, 1)))


def misaligned_blocks(
    pairs: Iterable[tuple[str, str]],
    observe: Callable[[int, Array, Array], None] | None = None,
    before: int = 0,
    size: int = SEGMENT,
) -> Iterator[Block]:
    """Find blocks of pairs that are out of step with the rest; a corpus of fewer than 300 pairs teaches too little.

    Args:
        pairs: of a corpus, from the first one of a segment on.
        observe: gets the index of the first of N pairs, their evidence in nats (N,) and log ratio of lengths (N,).
        before: number of the corpus's pairs before these.
        size: of a segment, in pairs.
    """
    remaining = iter(pairs)
    while segment := list(islice(remaining, size)):
        if len(segment) >= _MIN_PAIRS:
            source, target = (Side(pair[side] for pair in segment) for side in (0, 1))
            blocks, evidence = _segment_blocks(source, target)
            if observe is not None:
                observe(before, *evidence.in_step())
            for block in blocks:
                copied = block.copied and (block.copied[0], block.copied[1] + before)
                unsure = tuple(line + before for line in block.unsure)
                yield replace(block, start=block.start + before, end=block.end + before, copied=copied, unsure=unsure)
        before += len(segment)


def unpaired_lines(blocks: Iterable[Block]) -> set[int]:
    """Return the pairs that have no translation, or no certain one."""
    return {
        line
        for block in blocks
        for line in (*block.unsure, *(range(block.start, block.end) if block.shift is None else ()))
    }


def _segment_blocks(source: Side, target: Side) -> tuple[list[Block], PairEvidence]:
    """Find the blocks of one segment; if they are many, the lexicon is learned a second time without them."""
    n_lines = len(source.counts)
    in_step = np.ones(n_lines, np.bool_)
    evidence = PairEvidence(source, target, in_step)
    if (shift := shift_of_all(evidence)) != 0:
        ends = range(-shift) if shift and shift < 0 else range(n_lines - (shift or 0), n_lines)
        return [Block(0, n_lines, shift, unsure=tuple(ends))], evidence
    shifts, support, unsure = _path(evidence, 0, n_lines, (), np.zeros(n_lines))
    blocks = list(_blocks(shifts))
    if not blocks:
        return [], evidence
    for block in blocks:
        in_step[block.start : block.end] = False
    if in_step.sum() >= _MIN_PAIRS:
        if in_step.mean() < 1 - _NEGLIGIBLE:
            evidence = PairEvidence(source, target, in_step)
            shifts, support, unsure = _path(evidence, 0, n_lines, (), np.zeros(n_lines))
        _find_moved(evidence, shifts, support, unsure)
        blocks = list(_blocks(shifts))
    unsure |= conflicts(shifts, support, unsure)
    return list(_described_blocks(blocks, shifts, unsure, source, target)), evidence


def _find_moved(evidence: PairEvidence, shifts: Array, support: Array, unsure: Array) -> None:
    """Find the translations of lines that have none nearby among those of all such lines; changes the arrays (N,)."""
    n_lines = len(shifts)
    groups: list[tuple[int, int]] = []
    for block in _blocks(shifts):
        start, end = max(0, block.start - _MARGIN), min(n_lines, block.end + _MARGIN)
        if groups and start <= groups[-1][1]:
            start = groups.pop()[0]
        groups.append((start, end))
    groups = [(start, end) for start, end in groups if (shifts[start:end] == _NOWHERE).sum() >= _MIN_LINES]
    candidates = np.concatenate([np.zeros(0, np.int64), *(np.arange(*group) for group in groups)])
    loss = np.where(shifts == 0, np.maximum(support, 0.0), 0.0)  # what a target line would lose by moving
    for start, end in groups:
        far = [shift for shift in likely_shifts(evidence, candidates, start, end) if shift not in _SHIFTS]
        if far:
            shifts[start:end], support[start:end], unsure[start:end] = _path(evidence, start, end, far, loss)


def _path(evidence: PairEvidence, start: int, end: int, far: Sequence[int], loss: Array) -> tuple[Array, Array, Array]:
    """Return the likeliest shift of lines `start` to `end`, the evidence for it, and what is not certain (each (N,)).

    The shifts `far` are tried, too; `loss` is the evidence that each target line of the segment would lose by them.
    """
    shifts, lines = (*_SHIFTS, *far), np.arange(start, end)
    places = (np.clip(lines + shift, 0, len(loss) - 1) for shift in far)
    moved = (evidence.rows([shift], start, end) - loss[there] for shift, there in zip(far, places, strict=True))
    rows = np.concatenate([evidence.rows(_SHIFTS, start, end), *moved, np.zeros((1, end - start))])
    states = _likeliest_states(rows, shifts.index(0))
    unsure = np.zeros(end - start, np.bool_)
    bounds = [0, *(np.flatnonzero(np.diff(states)) + 1).tolist(), len(states)]
    for low, seam, high in zip(bounds, bounds[1:], bounds[2:], strict=False):  # behind the next seam, evidence reverses
        lead = rows[states[seam - 1]] - rows[states[seam]]  # of the state before
        after = np.cumsum(lead[seam : min(high, seam + _LONG)])
        before = np.cumsum(-lead[max(low, seam - _LONG) : seam][::-1])
        for side, sums in ((1, after), (-1, before)):
            likely = np.flatnonzero(sums > -_SURE)
            reach = int(likely[-1]) + 1 if len(likely) else 0
            unsure[min(seam, seam + side * reach) : max(seam, seam + side * reach)] = True
    return np.array([*shifts, _NOWHERE])[states], rows[states, lines - start], unsure


def _likeliest_states(evidence: Array, in_step: int) -> Array:
    """Return the likeliest sequence of states (N,), each a row of `evidence` (Viterbi's algorithm)."""
    n_states, n_lines = evidence.shape
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


def conflicts(shifts: Array, support: Array, unsure: Array) -> Array:
    """Mark the lines (N,) without a translation of their own: another line has as good a claim to it, or nearly."""
    lines = np.flatnonzero((shifts != _NOWHERE) & ~unsure)
    claimed = lines + shifts[lines]
    order = np.lexsort((-support[lines], claimed))
    claimed, lines = claimed[order], lines[order]
    repeats = np.flatnonzero(claimed[1:] == claimed[:-1]) + 1
    places = np.arange(len(shifts)) + np.where(shifts == _NOWHERE, 0, shifts)
    lost = (places < 0) | (places >= len(shifts))
    lost[lines[repeats]] = True
    lost[lines[repeats - 1]] |= support[lines[repeats - 1]] - support[lines[repeats]] < _SURE
    return lost


def _blocks(shifts: Array) -> Iterator[Block]:
    """Yield the runs of shifts other than 0, one for those that follow each other."""
    bounds = [0, *(np.flatnonzero(np.diff(shifts)) + 1).tolist(), len(shifts)]
    for is_wrong, spans in groupby(pairwise(bounds), key=lambda span: shifts[span[0]] != 0):
        runs = [Block(start, end, None if shifts[start] == _NOWHERE else int(shifts[start])) for start, end in spans]
        if is_wrong and runs[-1].end - runs[0].start >= _MIN_LINES:
            yield from _joined(runs)


def _joined(runs: list[Block]) -> Iterator[Block]:
    """Join short runs, which similar lines bring about, to the long ones that they touch."""
    size = max(run.end - run.start for run in runs) / 3
    long = [run for run in runs if run.end - run.start >= min(size, _LONG)]
    firsts = [next(same) for _, same in groupby(long, key=attrgetter("shift"))]
    starts = [runs[0].start, *(run.start for run in firsts[1:])]
    for start, end, run in zip(starts, (*starts[1:], runs[-1].end), firsts, strict=True):
        yield Block(start, end, run.shift)


def _described_blocks(blocks: list[Block], shifts: Array, unsure: Array, source: Side, target: Side) -> Iterator[Block]:
    """Complete the blocks: with swaps, copies and uncertain pairs."""
    cuts = [0, *(block.end + min(_LONG, after.start - block.end) for block, after in pairwise(blocks)), len(shifts)]
    for block, (low, high) in zip(blocks, pairwise(cuts), strict=True):
        lines = np.arange(low, high)
        inside = (lines >= block.start) & (lines < block.end)
        differs = inside & (shifts[low:high] != (_NOWHERE if block.shift is None else block.shift))
        block = replace(block, unsure=tuple(lines[unsure[low:high] | differs].tolist()))
        if block.shift is None:
            copies = ((side, repeated_from(text, block.start, block.end)) for side, text in ((1, target), (0, source)))
            yield replace(block, copied=next(((side, first) for side, first in copies if first is not None), None))
            continue
        there = shifts[max(0, block.start + block.shift) : max(0, block.end + block.shift)]
        yield replace(block, swapped=2 * int((there == -block.shift).sum()) > len(there))
