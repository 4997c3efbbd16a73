"""Pairs in common with other text, and repeated pairs and sentences, found by their hashes."""

from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mt.data.duplicates import HashPartitions
from mt.extras.doctor.chunks import HASHES, Chunk, ChunkResult
from mt.extras.doctor.rules import BIT

_MIN_VARIANTS = 4  # different translations of one sentence that are reported
_SHOWN = 4  # of them in an example

_RECORD = np.dtype([("hash", np.uint64), ("pair", np.uint64), ("index", np.uint64)])
_REPETITIONS = ("duplicate", "many-targets", "many-sources")
_DROPPED_FIRST = BIT["encoding"] | BIT["empty"] | BIT["ratio"]  # as in training, before duplicates are looked for


class HeldOutIndex:
    """The pairs of the validation or test text; it takes some 100 bytes a pair."""

    def __init__(self) -> None:
        self._hashes = np.zeros(0, HASHES)
        self._chunks: list[tuple[int, str, list[int]]] = []  # pairs before, file, lines
        self._order: dict[str, NDArray[np.int64]] = {}

    def add(self, chunk: Chunk, result: ChunkResult) -> None:
        self._chunks.append((len(self._hashes), chunk.files[0], chunk.lines))
        usable = result.hashes.copy()
        usable[(result.masks & np.uint64(_DROPPED_FIRST)) > 0] = 0
        self._hashes = np.concatenate([self._hashes, usable])
        self._order = {}

    def find_leaks(self, chunk: Chunk, result: ChunkResult) -> None:
        """Add the pairs of a chunk that are in this index to its result, each by its closest match only."""
        hashes = result.hashes
        candidates = (result.masks & np.uint64(_DROPPED_FIRST | BIT["leak"])) == 0
        exact = self._lookup("pair", hashes["pair"], candidates & (hashes["letters"] != 0))
        candidates &= exact < 0
        near = self._lookup("letters", hashes["letters"], candidates)
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
            result.masks[leaked] |= np.uint64(BIT[rule])
            for index in leaked[: chunk.max_examples].tolist():
                note = f"{relation} in {self._location(int(matches[index]))}"
                result.examples.add(rule, chunk.example(index, note))

    def _lookup(self, name: str, wanted: NDArray[np.uint64], mask: NDArray[np.bool_]) -> NDArray[np.int64]:
        """Return the index of a pair with each masked hash, or -1."""
        if name not in self._order:
            self._order[name] = np.argsort(self._hashes[name], kind="stable")
        order = self._order[name]
        if not len(order):
            return np.full(len(wanted), -1)
        known = self._hashes[name][order]
        positions = np.minimum(np.searchsorted(known, wanted), len(known) - 1)
        return np.where(mask & (wanted != 0) & (known[positions] == wanted), order[positions], -1)

    def _location(self, index: int) -> str:
        before, file, lines = next(chunk for chunk in reversed(self._chunks) if chunk[0] <= index)
        return f"{file}:{lines[index - before]}"


@dataclass(frozen=True)
class Group:
    """Training pairs that share something."""

    rank: tuple[int, ...]  # groups of the lowest rank are shown
    pairs: list[int]  # indices of up to four of them
    size: int  # number of different pairs


@dataclass(frozen=True)
class Repetition:
    """All training pairs that break one rule of repetition, and groups of them to show."""

    rule: str
    pairs: NDArray[np.uint64]
    groups: list[Group]


class RepetitionFinder(AbstractContextManager["RepetitionFinder"]):
    """Repeated pairs and sentences of the training text, without pairs that break a rule in `dropped_for`.

    A context, since it keeps files in `folder`.
    """

    def __init__(self, folder: Path, dropped_for: frozenset[str]) -> None:
        dropped = sum(BIT[rule] for rule in dropped_for if rule not in _REPETITIONS)
        self._dropped = np.uint64(_DROPPED_FIRST | dropped)
        self._sides = {side: HashPartitions(folder, _RECORD) for side in ("source", "target")}

    def __exit__(self, *_: object) -> None:
        for records in self._sides.values():
            records.close()

    def add(self, chunk: Chunk, result: ChunkResult) -> None:
        usable = np.flatnonzero((result.masks & self._dropped) == 0)
        for side, records in self._sides.items():
            added = np.empty(len(usable), _RECORD)
            added["hash"] = result.hashes[side][usable]
            added["pair"] = result.hashes["pair"][usable]
            added["index"] = usable + chunk.offset
            records.add(added)

    def find(self, max_groups: int) -> Iterator[Repetition]:
        """Yield duplicates, and sentences with many translations."""
        found: dict[str, list[Repetition]] = {rule: [] for rule in _REPETITIONS}
        for side, rule in (("source", "many-targets"), ("target", "many-sources")):
            for records in self._sides[side]:
                sorted_records = _SortedRecords(records)
                if side == "source":
                    found["duplicate"].append(sorted_records.duplicates(max_groups))
                found[rule].append(sorted_records.variants(rule, max_groups))
        for rule, each in found.items():
            groups = sorted((group for one in each for group in one.groups), key=lambda group: group.rank)
            yield Repetition(rule, np.concatenate([one.pairs for one in each]), groups[:max_groups])


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
        later = np.flatnonzero(~self._new_pair)
        starts = np.flatnonzero(self._new_pair)
        groups = []
        for position in later[np.argsort(self._index[later])][:max_groups].tolist():
            first = starts[np.searchsorted(starts, position) - 1]
            pairs = [int(self._index[first]), int(self._index[position])]
            groups.append(Group((pairs[1],), pairs, 2))
        return Repetition("duplicate", self._index[later], groups)

    def variants(self, rule: str, max_groups: int) -> Repetition:
        """Return all pairs of a sentence with many different translations."""
        sentence = np.cumsum(self._new_hash) - 1
        different = np.bincount(sentence, weights=self._new_pair).astype(np.int64)
        starts = np.flatnonzero(self._new_hash)
        groups = []
        for group in np.argsort(-different, kind="stable")[:max_groups].tolist():
            size = int(different[group])
            if size < _MIN_VARIANTS:
                break
            end = starts[group + 1] if group + 1 < len(starts) else len(self._index)
            members = np.arange(starts[group], end)
            pairs = np.sort(self._index[members[self._new_pair[members]]])[:_SHOWN].tolist()
            groups.append(Group((-size, pairs[0]), pairs, size))
        return Repetition(rule, self._index[different[sentence] >= _MIN_VARIANTS], groups)
