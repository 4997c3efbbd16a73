"""What pairs have in common with other pairs, told by their hashes alone."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np
from numpy.typing import NDArray

from mt.data.duplicates import HashPartitions
from mt.extras.doctor.chunks import HASHES, Chunk, Judged
from mt.extras.doctor.kinds import BIT

MANY = 4  # different translations of one sentence

_SHOWN = 4  # of them in an example

_RECORD = np.dtype([("hash", np.uint64), ("pair", np.uint64), ("index", np.uint64)])
_IN_COMMON = ("duplicate", "many-targets", "many-sources")
_LEFT_OUT = BIT["encoding"] | BIT["empty"] | BIT["ratio"]  # before duplicates are looked for, as in training


class HeldOut:
    """The pairs of the validation or the test text, to find them in other texts. It holds some 100 bytes a pair."""

    def __init__(self) -> None:
        self._hashes = np.zeros(0, HASHES)
        self._places: list[tuple[int, str, list[int]]] = []  # how many come before, file, lines
        self._order: dict[str, NDArray[np.int64]] = {}

    def add(self, chunk: Chunk, judged: Judged) -> None:
        self._places.append((len(self._hashes), chunk.files[0], chunk.lines))
        usable = judged.hashes.copy()
        usable[(judged.masks & np.uint64(_LEFT_OUT)) > 0] = 0
        self._hashes = np.concatenate([self._hashes, usable])
        self._order = {}

    def find(self, chunk: Chunk, judged: Judged) -> None:
        """Adds to what was found in a chunk which of its pairs are here too, each in the closest way only."""
        hashes = judged.hashes
        left = (judged.masks & np.uint64(_LEFT_OUT | BIT["leak"])) == 0
        exact = self._lookup("pair", hashes["pair"], left & (hashes["letters"] != 0))
        left &= exact < 0
        near = self._lookup("letters", hashes["letters"], left)
        left &= near < 0
        source = self._lookup("src_letters", hashes["src_letters"], left)
        target = self._lookup("tgt_letters", hashes["tgt_letters"], left & (source < 0))
        for kind, places, what in (
            ("leak", exact, "as"),
            ("near-leak", near, "almost as"),
            ("side-leak", source, "source as"),
            ("side-leak", target, "target as"),
        ):
            found = np.flatnonzero(places >= 0)
            judged.masks[found] |= np.uint64(BIT[kind])
            for number in found[: chunk.examples].tolist():
                note = f"{what} in {self._where(int(places[number]))}"
                judged.examples.add(kind, chunk.example(number, note))

    def _lookup(self, name: str, wanted: NDArray[np.uint64], among: NDArray[np.bool_]) -> NDArray[np.int64]:
        """Where each hash is here; -1 for none."""
        if name not in self._order:
            self._order[name] = np.argsort(self._hashes[name], kind="stable")
        order = self._order[name]
        if not len(order):
            return np.full(len(wanted), -1)
        known = self._hashes[name][order]
        places = np.minimum(np.searchsorted(known, wanted), len(known) - 1)
        return np.where(among & (wanted != 0) & (known[places] == wanted), order[places], -1)

    def _where(self, place: int) -> str:
        before, file, lines = next(one for one in reversed(self._places) if one[0] <= place)
        return f"{file}:{lines[place - before]}"


@dataclass(frozen=True)
class Group:
    """A few of the training pairs that have something in common, by their places in the text.

    Attributes:
        rank: groups with the lowest are shown.
        pairs: the first of them, at most four.
        size: how many different ones there are.
    """

    rank: tuple[int, ...]
    pairs: list[int]
    size: int


@dataclass(frozen=True)
class Common:
    """Training pairs that have something in common with others, and examples."""

    kind: str
    pairs: NDArray[np.uint64]
    groups: list[Group]


class Repeats:
    """Finds repetitions in the training text; as a context, since it keeps files in a folder.

    Args:
        folder: where.
        dropped_for: kinds of finding whose pairs are not looked at, since they will go.
    """

    def __init__(self, folder: Path, dropped_for: frozenset[str] = frozenset()) -> None:
        going = sum(BIT[kind] for kind in dropped_for if kind not in _IN_COMMON)
        self._left_out = np.uint64(_LEFT_OUT | going)
        self._sides = {side: HashPartitions(folder, _RECORD) for side in ("source", "target")}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for records in self._sides.values():
            records.close()

    def add(self, chunk: Chunk, judged: Judged) -> None:
        usable = np.flatnonzero((judged.masks & self._left_out) == 0)
        for side, records in self._sides.items():
            added = np.empty(len(usable), _RECORD)
            added["hash"] = judged.hashes[side][usable]
            added["pair"] = judged.hashes["pair"][usable]
            added["index"] = usable + chunk.first
            records.add(added)

    def found(self, examples: int) -> Iterator[Common]:
        """Pairs that occurred before, and sentences with many translations.

        Args:
            examples: groups to show of each kind.
        """
        parts: dict[str, list[Common]] = {kind: [] for kind in _IN_COMMON}
        for side, kind in (("source", "many-targets"), ("target", "many-sources")):
            for records in self._sides[side]:
                sorted_records = _Sorted(records)
                if side == "source":
                    parts["duplicate"].append(sorted_records.repeated(examples))
                parts[kind].append(sorted_records.various(kind, examples))
        for kind, each in parts.items():
            groups = sorted((group for part in each for group in part.groups), key=lambda group: group.rank)
            yield Common(kind, np.concatenate([part.pairs for part in each]), groups[:examples])


class _Sorted:
    """HashPartitions by hash, then by pair, then in the order they came."""

    def __init__(self, records: NDArray[np.void]) -> None:
        order = np.lexsort((records["index"], records["pair"], records["hash"]))
        hashes, pairs, self._index = (records[name][order] for name in ("hash", "pair", "index"))
        new_hash, new_pair = np.ones(len(order), bool), np.ones(len(order), bool)
        new_hash[1:] = hashes[1:] != hashes[:-1]
        new_pair[1:] = pairs[1:] != pairs[:-1]  # pairs of different sentences are different, too
        self._new_hash, self._new_pair = new_hash, new_pair

    def repeated(self, examples: int) -> Common:
        """All but the first of equal pairs."""
        later = np.flatnonzero(~self._new_pair)
        starts = np.flatnonzero(self._new_pair)
        groups = []
        for place in later[np.argsort(self._index[later])][:examples].tolist():
            first = starts[np.searchsorted(starts, place) - 1]
            pairs = [int(self._index[first]), int(self._index[place])]
            groups.append(Group((pairs[1],), pairs, 2))
        return Common("duplicate", self._index[later], groups)

    def various(self, kind: str, examples: int) -> Common:
        """All pairs of a sentence with many different translations."""
        number = np.cumsum(self._new_hash) - 1
        different = np.bincount(number, weights=self._new_pair).astype(np.int64)
        starts = np.flatnonzero(self._new_hash)
        groups = []
        for group in np.argsort(-different, kind="stable")[:examples].tolist():
            size = int(different[group])
            if size < MANY:
                break
            end = starts[group + 1] if group + 1 < len(starts) else len(self._index)
            members = np.arange(starts[group], end)
            pairs = np.sort(self._index[members[self._new_pair[members]]])[:_SHOWN].tolist()
            groups.append(Group((-size, pairs[0]), pairs, size))
        return Common(kind, self._index[(different >= MANY)[number]] if len(number) else self._index, groups)
