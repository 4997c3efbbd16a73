"""Second pass over a corpus: check every pair on its own and against the others."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain, groupby
from operator import attrgetter

import numpy as np
from numpy.typing import NDArray

from mt.console import progress
from mt.errors import InputError
from mt.extras.doctor.bitexts import Bitext, RawPair, read_bitext
from mt.extras.doctor.characters import excerpt
from mt.extras.doctor.findings import Chunk, ChunkResult, Criteria, Example, Findings, Location
from mt.extras.doctor.overlaps import Group, HeldOutIndex, RepetitionFinder
from mt.extras.doctor.pair_checks import check_chunk
from mt.extras.doctor.pair_scores import PairScores
from mt.extras.doctor.rules import BIT
from mt.extras.doctor.statistics import BitextStatistics
from mt.extras.doctor.word_hashes import common_frame
from mt.system.cpus import usable_cores
from mt.system.workers import in_order

_CHUNK_PAIRS, _CHUNK_CHARACTERS = 10_000, 2**22  # of a chunk, at most
_SINGLE_PROCESS = 30_000  # pairs; with fewer, starting worker processes takes longer than it saves
_MAX_WORKERS = 8  # one process reads for all of them, and each takes some 200 MB


def check_pairs(
    statistics: Sequence[BitextStatistics],
    criteria: dict[str, Criteria],
    findings: Findings,
    finder: RepetitionFinder,
    in_blocks: NDArray[np.uint64],
    scores: PairScores | None,
) -> NDArray[np.uint64]:
    """Read the bitexts again, add to `findings` and `finder`, and return the rule bits of all training pairs (N,).

    Args:
        criteria: by direction.
        in_blocks: rule bits of all pairs (N,) from `check_blocks`.
        scores: of all training pairs; those of other pairs raise InputError.
    """
    total = sum(stats.pairs for stats in statistics)
    held_out = {"test": HeldOutIndex(), "valid": HeldOutIndex()}
    masks, n_done = [np.zeros(0, np.uint64)], 0
    chunks = _chunks(statistics, criteria, findings.max_examples)
    with progress(total=total, unit="pair", desc="checking", unit_scale=True) as bar:
        for chunk, result in in_order(check_chunk, chunks, workers_for(total)):
            result.masks |= in_blocks[n_done : n_done + len(chunk.pairs)]
            n_done += len(chunk.pairs)
            for split, index in held_out.items():
                if split == chunk.split:
                    index.add(chunk, result)
                    for swapped in _swapped(chunk, criteria):
                        index.add(swapped, check_chunk(swapped))
                    break  # the index of a later split is still empty
                index.find_leaks(chunk, result)
            if chunk.split == "train" and scores is not None:
                scores.mark(chunk, result)
            _add_result(findings, chunk, result)
            if chunk.split == "train":
                finder.add(chunk, result)
                masks.append(result.masks)
            bar.update(len(chunk.pairs))
    if scores is not None and len(scores.values) != (pairs := sum(map(len, masks))):
        raise InputError(f"{len(scores.values):,} scores of {pairs:,} training pairs", "score this text again")
    return np.concatenate(masks)


def add_repetitions(
    statistics: Sequence[BitextStatistics],
    findings: Findings,
    finder: RepetitionFinder,
    masks: NDArray[np.uint64],
    scores: PairScores | None,
) -> None:
    """Add repeated pairs and sentences of the training text to `findings` and to the rule bits of its pairs (N,).

    With scores, the best of near duplicates and the best source of a target are not added. The text is read again for
    the examples.
    """
    groups = defaultdict[str, list[Group]](list)  # to show, by rule
    for repetition in finder.find(findings.max_examples, None if scores is None else scores.values):
        rule = repetition.rule
        masks[repetition.pairs] |= np.uint64(BIT[rule])
        findings.counts[rule]["train"] += len(repetition.pairs)
        groups[rule] = sorted(groups[rule] + repetition.groups, key=attrgetter("rank"))[: findings.max_examples]
    shown = [(rule, group) for rule, ranked in groups.items() for group in ranked]
    locations = _locate([stats.bitext for stats in statistics], {pair for _, group in shown for pair in group.pairs})
    for rule, group in shown:
        sides = tuple(chain.from_iterable(locations[pair] for pair in group.pairs))
        note = f"{group.size:,} different" if rule not in ("duplicate", "near-duplicate") else ""
        if rule == "template":
            frames = (common_frame([place.text for place in sides[side::2]]) for side in (0, 1))
            note, sides = f"{group.size:,} pairs: {' / '.join(frames)}", sides[:4]
        findings.show(rule, Example("train", sides, note))


def workers_for(pairs: int) -> int:
    """Return the number of processes that check a given number of pairs."""
    return 1 if pairs < _SINGLE_PROCESS else min(usable_cores(), _MAX_WORKERS)


def _swapped(chunk: Chunk, criteria: dict[str, Criteria]) -> Iterator[Chunk]:
    """Yield a chunk with the sides of its pairs swapped, if the corpus has that direction, too."""
    languages = chunk.criteria.languages
    for reverse in criteria.values():
        if reverse.languages == languages[::-1] != languages:
            yield replace(chunk, pairs=[pair[::-1] for pair in chunk.pairs], max_examples=0, criteria=reverse)


def _add_result(findings: Findings, chunk: Chunk, result: ChunkResult) -> None:
    for rule, bit in BIT.items():
        findings.counts[rule][chunk.split] += int(np.count_nonzero(result.masks & np.uint64(bit)))
    for (rule, _), examples in result.findings.examples.items():
        findings.show(rule, *examples)
    if chunk.split == "train":
        findings.repairable.update(result.findings.repairable)
    findings.pairs[chunk.split] += len(chunk.pairs)


def _chunks(
    statistics: Sequence[BitextStatistics], criteria: dict[str, Criteria], max_examples: int
) -> Iterator[Chunk]:
    offset = Counter[str]()
    for stats in statistics:
        bitext, split = stats.bitext, stats.bitext.split
        for files, reader in groupby(read_bitext(bitext), key=attrgetter("files")):
            while pairs := _take_chunk(reader):
                yield Chunk(
                    split=split,
                    files=files,
                    offset=offset[split],
                    lines=[pair.line for pair in pairs],
                    pairs=[(pair.source, pair.target) for pair in pairs],
                    encoding_errors={index: pair.error for index, pair in enumerate(pairs) if pair.error},
                    max_examples=max_examples,
                    criteria=criteria[bitext.direction],
                )
                offset[split] += len(pairs)


def _take_chunk(reader: Iterator[RawPair]) -> list[RawPair]:
    pairs, characters = list[RawPair](), 0
    for pair in reader:
        pairs.append(pair)
        characters += len(pair.source) + len(pair.target)
        if len(pairs) == _CHUNK_PAIRS or characters > _CHUNK_CHARACTERS:
            break
    return pairs


def _locate(bitexts: Sequence[Bitext], wanted: set[int]) -> dict[int, list[Location]]:
    """Return the two sides of training pairs by their index in the whole training text."""
    located: dict[int, list[Location]] = {}
    training = chain.from_iterable(read_bitext(bitext) for bitext in bitexts if bitext.split == "train")
    for index, pair in enumerate(training if wanted else ()):
        if index in wanted:
            sides = zip(pair.files, pair.cleaned(), strict=True)
            located[index] = [Location(file, pair.line, excerpt(text)) for file, text in sides]
            if len(located) == len(wanted):
                break
    return located
