"""The second reading: all pairs are judged, each on its own and then against the others."""

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import count
from math import ceil
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mt.console import progress
from mt.data.corpus import one_line
from mt.extras.doctor.characters import excerpt
from mt.extras.doctor.chunks import Chunk, Example, Examples, Judged, Place, Yardstick
from mt.extras.doctor.judge import judge
from mt.extras.doctor.kinds import BIT, PAIR_KINDS
from mt.extras.doctor.overlaps import Common, HeldOut, Repeats
from mt.extras.doctor.reading import Read, Text, read_text
from mt.extras.doctor.survey import Survey
from mt.system.cpus import usable_cores
from mt.system.workers import in_order

_PAIRS, _CHARACTERS = 10_000, 2**22  # of a chunk, at most
_ALONE = 30_000  # pairs that a second process would not pay for
_MOST_WORKERS = 8  # one process reads for all of them, and each takes some 200 MB
_JUDGED = 10_000  # pairs of a split whose language is looked at


class Tally:
    """Counts of findings by kind and split, and examples."""

    def __init__(self, examples: int) -> None:
        self.counts: dict[str, Counter[str]] = {kind.name: Counter() for kind in PAIR_KINDS}
        self.examples = Examples(examples)
        self.pairs: Counter[str] = Counter()
        self.sampled: Counter[str] = Counter()

    def add(self, chunk: Chunk, judged: Judged) -> None:
        for kind, bit in BIT.items():
            self.counts[kind][chunk.split] += int(np.count_nonzero(judged.masks & np.uint64(bit)))
        for kind in judged.examples.by_kind:
            self.examples.add(kind, *judged.examples.of(kind))
        self.pairs[chunk.split] += len(chunk.pairs)
        self.sampled[chunk.split] += judged.sampled

    def add_common(self, each: Sequence[Common], texts: Sequence[Text]) -> None:
        found = _fetch(texts, {pair for common in each for group in common.groups for pair in group.pairs})
        for common in each:
            self.counts[common.kind]["train"] += len(common.pairs)
            for group in common.groups:
                note = "" if common.kind == "duplicate" else f"{group.size:,} different"
                places = tuple(place for pair in group.pairs for place in found[pair])
                self.examples.add(common.kind, Example("train", places, note))


def examine(
    surveys: Sequence[Survey],
    measures: dict[str, Yardstick],
    examples: int,
    every_language: bool,
    folder: Path,
    dropped_for: frozenset[str] = frozenset(),
) -> tuple[Tally, NDArray[np.uint64]]:
    """Reads the texts again and judges their pairs.

    Args:
        surveys: of the texts.
        measures: what to judge pairs of each language with.
        examples: to keep of each kind of finding.
        every_language: judge the language of all pairs, not of a sample.
        folder: where temporary files may lie.
        dropped_for: a pair with one of these findings is not the first of those equal to it.

    Returns:
        what was found, and the bits of kinds of all training pairs (N,).
    """
    tally = Tally(examples)
    chunks = _chunks(surveys, measures, examples, every_language)
    with Repeats(folder, dropped_for) as repeats:
        masks = _judge_all(chunks, sum(one.pairs for one in surveys), tally, repeats)
        found = list(repeats.found(examples))
    for common in found:
        masks[common.pairs] |= np.uint64(BIT[common.kind])
    tally.add_common(found, [one.text for one in surveys])
    return tally, masks


def _judge_all(chunks: Iterator[Chunk], total: int, tally: Tally, repeats: Repeats) -> NDArray[np.uint64]:
    """Fills the tally; returns the masks of the training pairs."""
    workers = 1 if total < _ALONE else min(usable_cores(), _MOST_WORKERS)
    held_out = {"test": HeldOut(), "valid": HeldOut()}
    masks = [np.zeros(0, np.uint64)]
    with progress(total=total, unit="pair", desc="checking", unit_scale=True) as bar:
        for chunk, judged in in_order(judge, chunks, workers):
            for split, pairs in held_out.items():
                if split == chunk.split:
                    pairs.add(chunk, judged)
                    break
                pairs.find(chunk, judged)
            else:
                repeats.add(chunk, judged)
                masks.append(judged.masks)
            tally.add(chunk, judged)
            bar.update(len(chunk.pairs))
    return np.concatenate(masks)


def _chunks(
    surveys: Sequence[Survey], measures: dict[str, Yardstick], examples: int, every_language: bool
) -> Iterator[Chunk]:
    total, first = Counter[str](), Counter[str]()
    for one in surveys:
        total[one.text.split] += one.pairs
    for one in surveys:
        split = one.text.split
        every = 1 if every_language else max(1, ceil(total[split] / _JUDGED))
        reading = read_text(one.text)
        while pairs := _take(reading):
            lines, sources, targets, problems = (list(column) for column in zip(*pairs, strict=True))
            unreadable = {number: problem for number, problem in enumerate(problems) if problem}
            yardstick = measures[one.text.target_lang]
            both = list(zip(sources, targets, strict=True))
            yield Chunk(split, one.text.files, first[split], lines, both, unreadable, every, examples, yardstick)
            first[split] += len(pairs)


def _take(reading: Iterator[Read]) -> list[Read]:
    """The next pairs, as many as a chunk may have."""
    taken: list[Read] = []
    characters = 0
    for read in reading:
        taken.append(read)
        characters += len(read[1]) + len(read[2])
        if len(taken) == _PAIRS or characters > _CHARACTERS:
            break
    return taken


def _fetch(texts: Sequence[Text], wanted: set[int]) -> dict[int, tuple[Place, Place]]:
    """Training pairs by their places in the whole text, to show them."""
    found: dict[int, tuple[Place, Place]] = {}
    if not wanted:
        return found
    number = count()
    for text in texts:
        for line, *sides, _ in read_text(text) if text.split == "train" else ():
            place = next(number)
            if place in wanted:
                one, other = (
                    Place(file, line, excerpt(one_line(side))) for file, side in zip(text.files, sides, strict=True)
                )
                found[place] = (one, other)
                if len(found) == len(wanted):
                    return found
    return found
