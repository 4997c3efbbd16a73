"""Blocks of wrong lines: in another language, with their sides swapped, or out of step; and maps of training texts.

N pairs   C columns of a map, each a part of the text   B bins of a value
"""

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain, islice, pairwise
from math import log
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mt.config import PairFiles, TableFile
from mt.data.corpus import line_texts
from mt.data.ragged import Array
from mt.extras.doctor.align_files import line_links
from mt.extras.doctor.bitexts import Bitext, read_bitext
from mt.extras.doctor.findings import SPLITS, Example, Findings, Masks, bits
from mt.extras.doctor.language_blocks import LanguageBlock, language_blocks
from mt.extras.doctor.misalignment import Block, misaligned_blocks, segment_pairs
from mt.extras.doctor.statistics import BitextStatistics
from mt.system.cpus import usable_cores
from mt.system.workers import in_order

MAX_COLUMNS, BINS = 480, 40
# The range that the bins of each value cover (evidence in nats); the first and the last bin hold what is beyond.
_RANGES = {"evidence": (-12.0, 12.0), "length ratio": (-log(4), log(4))}

_PARTS = 4  # of a text, for each process, at most
_SINGLE_PROCESS = 30_000  # pairs; with fewer, starting worker processes takes longer than it saves
_MAX_WORKERS = 8  # one process reads for all of them, and each takes some 200 MB


@dataclass
class PositionMap:
    """Counts of a training text's pairs by position and value, (B, C) for each kind of value; its blocks out of step.

    The counts take memory of a fixed size.
    """

    pairs: int
    blocks: list[Block] = field(default_factory=list)
    counts: dict[str, NDArray[np.int64]] = field(default_factory=dict)

    @property
    def n_columns(self) -> int:
        return min(MAX_COLUMNS, self.pairs)

    def add(self, start: int, evidence: Array, log_ratio: Array) -> None:
        """Count N pairs from `start` on by their evidence and log ratio of lengths, both (N,)."""
        for (name, limits), values in zip(_RANGES.items(), (evidence, log_ratio), strict=True):
            self.counts[name] = self.counts.get(name, 0) + self.density(start, values, *limits)

    def merge(self, other: "PositionMap") -> None:
        """Add the counts and blocks of other pairs of the same text."""
        self.blocks += other.blocks
        for name, counts in other.counts.items():
            self.counts[name] = self.counts.get(name, 0) + counts

    def density(self, start: int, values: Array, low: float, high: float) -> NDArray[np.int64]:
        """Count values (N,) of the pairs from `start` on by bin and column (B, C); NaN is left out."""
        columns = np.arange(start, start + len(values)) * self.n_columns // self.pairs
        known = ~np.isnan(values)
        bins = ((values[known] - low) / (high - low) * BINS).clip(0, BINS - 1).astype(np.int64)
        counts = np.bincount(bins * self.n_columns + columns[known], minlength=BINS * self.n_columns)
        return counts.reshape(BINS, self.n_columns)


def with_blocks(bitext: Bitext) -> Bitext:
    """Return a bitext with its repairs of whole lines: their links if their numbers differ, swaps, and shifts."""
    texts = line_texts(bitext.source, bitext.data)
    if len(texts) == 1:
        bitext = replace(bitext, links=line_links(*texts[0]))
    swapped = (block for block in _search_languages(bitext) if block.side is None)
    bitext = replace(bitext, swapped=tuple((block.start, block.end) for block in swapped))
    lengths = np.fromiter((sum(map(len, pair.cleaned())) for pair in read_bitext(bitext)), np.int64)
    bitext = replace(bitext, segment=segment_pairs(len(lengths), int(lengths.sum())))
    pairs = (pair.cleaned() for pair in read_bitext(bitext))
    return replace(bitext, blocks=tuple(misaligned_blocks(pairs, size=bitext.segment)))


def check_blocks(
    statistics: Sequence[BitextStatistics], findings: Findings
) -> tuple[dict[str, Masks], list[PositionMap]]:
    """Add examples of blocks of wrong lines; return the rule bits of each split (N,), and maps of training texts."""
    workers = workers_for(sum(stats.pairs for stats in statistics))
    searches = [_searches(stats, _PARTS * workers) for stats in statistics]
    results = (result for _, result in in_order(operator.call, chain.from_iterable(searches), workers))
    masks, maps = {split: np.zeros(0, np.uint64) for split in reversed(SPLITS)}, list[PositionMap]()
    for stats, own in zip(statistics, searches, strict=True):
        foreign, *parts = islice(results, len(own))
        positions = PositionMap(stats.pairs)
        for part in parts:
            positions.merge(part)
        mask = np.zeros(stats.pairs, np.uint64)
        _add_languages(stats.bitext, foreign, mask, findings)
        _add_alignment(stats.bitext, foreign, positions, mask, findings)
        masks[stats.bitext.split] = np.append(masks[stats.bitext.split], mask)
        if stats.bitext.split == "train":
            maps.append(positions)
    return masks, maps


def workers_for(pairs: int) -> int:
    """Return the number of processes that check a given number of pairs."""
    return 1 if pairs < _SINGLE_PROCESS else min(usable_cores(), _MAX_WORKERS)


def _searches(stats: BitextStatistics, max_parts: int) -> list[Callable[[], Any]]:
    """Return the search for other languages in a text, then those for lines out of step in parts of whole segments."""
    in_languages = partial(_search_languages, stats.bitext)
    if stats.bitext.repair:  # its blocks are known
        return [in_languages]
    segments = -(-stats.pairs // stats.bitext.segment)
    bounds = np.linspace(0, segments, min(segments, max_parts) + 1).astype(int) * stats.bitext.segment
    parts = pairwise(bounds.clip(max=stats.pairs).tolist())
    return [in_languages, *(partial(_search_alignment, stats.bitext, stats.pairs, *part) for part in parts)]


def _search_languages(bitext: Bitext) -> list[LanguageBlock]:
    return language_blocks((pair.cleaned() for pair in read_bitext(bitext)), bitext.languages)


def _search_alignment(bitext: Bitext, n_pairs: int, start: int, end: int) -> PositionMap:
    positions = PositionMap(n_pairs)
    pairs = (pair.cleaned() for pair in islice(read_bitext(bitext), start, end))
    positions.blocks.extend(misaligned_blocks(pairs, positions.add, start, bitext.segment))
    return positions


def _add_languages(bitext: Bitext, blocks: Sequence[LanguageBlock], mask: Masks, findings: Findings) -> None:
    """Add blocks in another language, and those whose sides are swapped, also to the mask of all pairs (N,)."""
    for block in blocks:
        is_swapped = block.side is None
        rule = "swapped" if is_swapped else "wrong-language"
        mask[block.start : block.end] |= bits(rule)
        note = block.described(*bitext.files) + (_swapped_fix(bitext) if is_swapped and block.whole else "")
        findings.show(rule, Example(bitext.split, (), note))
        if is_swapped and bitext.split == "train":
            findings.repairable["swapped"] += block.end - block.start


def _add_alignment(
    bitext: Bitext, foreign: Sequence[LanguageBlock], positions: PositionMap, mask: Masks, findings: Findings
) -> None:
    """Add blocks out of step, also to the mask of all pairs (N,), and drop those in another language from the map.

    Of a bitext that is read repaired, only pairs that have no certain translation are marked.
    """
    bit = bits("misaligned")
    if bitext.repair:
        mask[bitext.unpaired()] |= bit
        return
    positions.blocks = [
        block
        for block in positions.blocks
        if 2 * sum(other.overlap(block.start, block.end) for other in foreign) < block.end - block.start
    ]
    for block in positions.blocks:
        mask[block.start : block.end] |= bit
        if not (block.swapped and block.shift and block.shift < 0):  # described with the block it is swapped with
            findings.show("misaligned", Example(bitext.split, (), block.described(*bitext.files)))
    unpaired = replace(bitext, blocks=tuple(positions.blocks)).unpaired()
    if bitext.split == "train":
        marked = (mask & bit) > 0
        findings.repairable["misaligned"] += int(marked.sum()) - int(marked[unpaired].sum())


def _swapped_fix(bitext: Bitext) -> str:
    source, remedy = bitext.source, ""
    if isinstance(source, PairFiles):
        remedy = f"write {{source: {source.target}, target: {source.source}}}, or "
    elif isinstance(source, TableFile):
        remedy = "exchange source_column and target_column, or "
    return f"; {remedy}exchange data.source_lang and data.target_lang"
