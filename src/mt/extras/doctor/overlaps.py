"""Pairs in common with other text, and repeated pairs and sentences, found by their hashes."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import chain, islice
from operator import itemgetter
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mt.data.duplicates import HashPartitions
from mt.data.ragged import positions_in
from mt.errors import InputError
from mt.extras.doctor.bitexts import Bitext, read_bitext
from mt.extras.doctor.characters import excerpt
from mt.extras.doctor.findings import HASHES, Chunk, ChunkResult, Example, Findings, Location, Masks, bits
from mt.extras.doctor.near_copies import NearCopyIndex, NearDuplicateFinder
from mt.extras.doctor.pair_scores import PairScores
from mt.extras.doctor.statistics import BitextStatistics
from mt.extras.doctor.word_hashes import MIN_FAMILY, Hashes, Words, common_frame

_MIN_VARIANTS = 4  # different translations of one sentence that are reported
_SHOWN = 4  # of them in an example

_RECORD = np.dtype([("hash", np.uint64), ("pair", np.uint64), ("index", np.uint64)])
_FRAME = np.dtype([("hash", np.uint64), ("index", np.uint64)])
_REPETITIONS = ("duplicate", "many-targets", "many-sources", "near-duplicate", "template")
_DROPPED_FIRST = ("encoding", "empty", "ratio")  # as in training, before duplicates are looked for


class HeldOutIndex:
    """The pairs of the validation or test text, in both directions if the corpus has them; some 500 bytes each."""

    def __init__(self) -> None:
        self._places: list[str] = []
        self._usable, self._words = [np.zeros(0, HASHES)], list[tuple[Words, Words]]()

    def add(self, chunk: Chunk, result: ChunkResult) -> None:
        """Add the pairs of a chunk; all must be added before the first search."""
        self._places += [f"{chunk.files[0]}:{line}" for line in chunk.lines]
        usable = result.hashes.copy()
        usable[(result.masks & bits(*_DROPPED_FIRST)) > 0] = 0
        self._usable.append(usable)
        self._words.append(result.words)

    @cached_property
    def _near_copies(self) -> NearCopyIndex:
        return NearCopyIndex(self._words)

    @cached_property
    def _sorted(self) -> dict[str, tuple[Hashes, NDArray[np.int64]]]:
        """Return the hashes of each kind that is looked up in ascending order, and the pairs that have them."""
        hashes, kinds = np.concatenate(self._usable), ("pair", "letters", "src_letters", "tgt_letters")
        orders = {name: np.argsort(hashes[name], kind="stable") for name in kinds}
        return {name: (hashes[name][order], order) for name, order in orders.items()}

    def find_leaks(self, chunk: Chunk, result: ChunkResult) -> None:
        """Add the pairs of a chunk that are in this index to its result, each by its closest match only."""
        hashes = result.hashes
        candidates = (result.masks & bits(*_DROPPED_FIRST, "leak")) == 0
        exact = self._lookup("pair", hashes["pair"], candidates & (hashes["letters"] != 0))
        candidates &= exact < 0
        near = self._lookup("letters", hashes["letters"], candidates)
        near = np.where(near < 0, self._near_copies.find(result.words, candidates & (near < 0)), near)
        candidates &= near < 0
        source = self._lookup("src_letters", hashes["src_letters"], candidates)
        target = self._lookup("tgt_letters", hashes["tgt_letters"], candidates & (source < 0))
        for rule, matches, relation in (
            ("leak", exact, "as"),
            ("near-leak", near, "almost as"),
            ("side-leak", source, "source as"),
            ("side-leak", target, "target as"),
        ):
            leaked = np.flatnonzero(matches >= 0)
            result.masks[leaked] |= bits(rule)
            for index in leaked[: chunk.max_examples].tolist():
                note = f"{relation} in {self._places[matches[index]]}"
                result.findings.show(rule, chunk.example(index, note))

    def _lookup(self, name: str, wanted: Hashes, mask: NDArray[np.bool_]) -> NDArray[np.int64]:
        """Return the index of a pair with each masked hash, or -1."""
        hashes, order = self._sorted[name]
        positions = positions_in(wanted, hashes)
        return np.where(mask & (wanted != 0) & (positions >= 0), np.append(order, -1)[positions], -1)


class Group(NamedTuple):
    """Training pairs that share something."""

    rank: tuple[int, ...]  # groups of the lowest rank are shown
    pairs: list[int]  # indices of up to four of them
    size: int  # number of different pairs


class Repetition(NamedTuple):
    """Training pairs that break a rule of repetition, and groups of them to show; a rule can have several."""

    rule: str
    pairs: NDArray[np.uint64]
    groups: list[Group]


class RepetitionFinder:
    """Repeated pairs and sentences of the training text, without pairs that break a rule in `dropped_for`.

    It keeps files in `folder` until `close`. Of a template, `max_per_template` pairs do not break the rule.
    """

    def __init__(self, folder: Path, dropped_for: frozenset[str], max_per_template: int) -> None:
        dropped = {*_DROPPED_FIRST, *dropped_for} - {*_REPETITIONS}
        self._dropped = bits(*dropped)
        self._drops_near_duplicates, self._max_per_template = "near-duplicate" in dropped_for, max_per_template
        self._sides = {side: HashPartitions(folder, _RECORD) for side in ("source", "target")}
        self._near_duplicates, self._frames = NearDuplicateFinder(folder), HashPartitions(folder, _FRAME)
        self._pairs = 0  # added

    def close(self) -> None:
        self._near_duplicates.close()
        for records in (*self._sides.values(), self._frames):
            records.close()

    def add(self, chunk: Chunk, result: ChunkResult) -> None:
        kept = (result.masks & self._dropped) == 0
        usable = np.flatnonzero(kept)
        for side, records in self._sides.items():
            records.add(result.hashes[side][usable], result.hashes["pair"][usable], usable + chunk.offset)
        self._near_duplicates.add(result, kept, chunk.offset, chunk.criteria.direction)
        framed = np.flatnonzero(kept & (result.frames > 0))
        self._frames.add(result.frames[framed], framed + chunk.offset)
        self._pairs += len(kept)

    def find(self, max_groups: int, scores: NDArray[np.float32] | None = None) -> Iterator[Repetition]:
        """Yield duplicates, sentences with many translations, near duplicates, and templates.

        With scores (N,) of all pairs, the best of many sources, near duplicates or pairs of a template breaks no rule.
        """
        left_out = np.zeros(self._pairs, bool)
        for sorted_records in map(_SortedRecords, self._sides["source"]):
            duplicates = sorted_records.duplicates(max_groups)
            left_out[duplicates.pairs] = True
            yield duplicates
            yield sorted_records.variants("many-targets", max_groups)
        for sorted_records in map(_SortedRecords, self._sides["target"]):
            yield sorted_records.variants("many-sources", max_groups, scores)
        rank = np.arange(self._pairs)
        if scores is not None:
            rank[np.lexsort((rank, -np.nan_to_num(scores, nan=-np.inf)))] = rank.copy()  # best score first, then order
        near = sorted(self._near_duplicates.find(rank, left_out, scores is not None), key=itemgetter(1))
        later = np.array([pair for _, pair in near], np.uint64)
        yield Repetition("near-duplicate", later, [Group((b,), [a, b], 2) for a, b in near[:max_groups]])
        left_out[later] |= self._drops_near_duplicates
        for records in self._frames:
            yield self._families(records, rank, left_out, max_groups)

    def _families(
        self, records: NDArray[np.void], rank: NDArray[np.int64], left_out: NDArray[np.bool_], max_groups: int
    ) -> Repetition:
        """Return the pairs of templates, all but those that may stay."""
        records = records[~left_out[records["index"]]]
        records = records[np.lexsort((rank[records["index"]], records["hash"]))]
        _, starts, sizes = np.unique(records["hash"], return_index=True, return_counts=True)
        position = np.arange(len(records)) - np.repeat(starts, sizes)
        broken = (np.repeat(sizes, sizes) >= MIN_FAMILY) & (position >= self._max_per_template)
        largest = [family for family in np.argsort(-sizes)[:max_groups].tolist() if sizes[family] >= MIN_FAMILY]
        groups = []
        for start, size in zip(starts[largest].tolist(), sizes[largest].tolist(), strict=True):
            pairs = records["index"][start : start + size][:: max(size // _SHOWN, 1)][:_SHOWN].tolist()
            groups.append(Group((-size, pairs[0]), pairs, size))
        return Repetition("template", records["index"][broken], groups)


class _SortedRecords:
    """Records sorted by hash, then by pair, then by index."""

    def __init__(self, records: NDArray[np.void]) -> None:
        order = np.lexsort((records["index"], records["pair"], records["hash"]))
        hashes, pairs, self._index = (records[name][order] for name in ("hash", "pair", "index"))
        self._new_hash, self._new_pair = np.ones(len(order), bool), np.ones(len(order), bool)
        self._new_hash[1:] = hashes[1:] != hashes[:-1]
        self._new_pair[1:] = pairs[1:] != pairs[:-1]  # pairs of different sentences differ

    def duplicates(self, max_groups: int) -> Repetition:
        """Return all but the first of equal pairs."""
        starts = np.flatnonzero(self._new_pair)
        firsts = np.repeat(self._index[starts], np.diff(starts, append=len(self._index)))
        firsts, later = firsts[~self._new_pair], self._index[~self._new_pair]
        shown = np.argsort(later)[:max_groups]
        both = zip(firsts[shown].tolist(), later[shown].tolist(), strict=True)
        return Repetition("duplicate", later, [Group((b,), [a, b], 2) for a, b in both])

    def variants(self, rule: str, max_groups: int, scores: NDArray[np.float32] | None = None) -> Repetition:
        """Return all pairs of a sentence with many different translations; with scores (N,), all but the best."""
        bounds = np.flatnonzero(np.append(self._new_hash, True))
        sentence = np.cumsum(self._new_hash) - 1
        different = np.bincount(sentence, weights=self._new_pair).astype(np.int64)
        groups = []
        for group in np.argsort(-different, kind="stable")[:max_groups].tolist():
            members, size = slice(bounds[group], bounds[group + 1]), int(different[group])
            if size >= _MIN_VARIANTS:
                pairs = np.sort(self._index[members][self._new_pair[members]])[:_SHOWN].tolist()
                groups.append(Group((-size, pairs[0]), pairs, size))
        broken = different[sentence] >= _MIN_VARIANTS
        if scores is not None and len(sentence):
            values = np.nan_to_num(scores[self._index], nan=-np.inf)
            broken &= (values < np.maximum.reduceat(values, bounds[:-1])[sentence]) | (values == -np.inf)
        return Repetition(rule, self._index[broken], groups)


def add_repetitions(
    statistics: Sequence[BitextStatistics],
    findings: Findings,
    finder: RepetitionFinder,
    masks: Masks,
    scores: PairScores | None,
) -> None:
    """Add repeated pairs and sentences of the training text to `findings` and to the rule bits of its pairs (N,).

    With scores, the best of near duplicates and the best source of a target are not added. The text is read again for
    the examples.
    """
    groups = defaultdict[str, list[Group]](list)  # to show, by rule
    for repetition in finder.find(findings.max_examples, None if scores is None else scores.values):
        rule = repetition.rule
        masks[repetition.pairs] |= bits(rule)
        groups[rule] = sorted(groups[rule] + repetition.groups)[: findings.max_examples]
    shown = [(rule, group) for rule, ranked in groups.items() for group in ranked]
    locations = _locate([stats.bitext for stats in statistics], {pair for _, group in shown for pair in group.pairs})
    for rule, group in shown:
        sides = tuple(chain.from_iterable(locations[pair] for pair in group.pairs))
        note = f"{group.size:,} different" if rule not in ("duplicate", "near-duplicate") else ""
        if rule == "template":
            frames = (common_frame([place.text for place in sides[side::2]]) for side in (0, 1))
            note, sides = f"{group.size:,} pairs: {' / '.join(frames)}", sides[:4]
        findings.show(rule, Example("train", sides, note))


def _locate(bitexts: Sequence[Bitext], wanted: set[int]) -> dict[int, list[Location]]:
    """Return the two sides of training pairs by their index in the whole training text.

    Raises InputError if the text no longer has them.
    """
    located: dict[int, list[Location]] = {}
    training = chain.from_iterable(read_bitext(bitext) for bitext in bitexts if bitext.split == "train")
    for index, pair in enumerate(islice(training, max(wanted, default=-1) + 1)):
        if index in wanted:
            sides = zip(pair.files, pair.cleaned(), strict=True)
            located[index] = [Location(file, pair.line, excerpt(text)) for file, text in sides]
    if len(located) < len(wanted):
        raise InputError("data.train: the text changed while it was read", "run the command again")
    return located
