"""Which of many hashes came before, in memory that does not grow with their number.

What does not fit is parted by its first byte into files: equal hashes lie in the same one, and one at a time is small
enough to be sorted.
"""

import tempfile
from array import array
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Self

import numpy as np
from numpy.typing import NDArray

_AT_ONCE = 2**20
_PARTS = 64  # open files; two sets of records are well within the 256 that some systems allow
_RECORD = np.dtype([("hash", np.uint64), ("index", np.uint64)])


class Duplicates:
    """Takes 64-bit hashes one by one; as a context, since it keeps files.

    Args:
        folder: where they are put, without names, when they become many.
        at_once: hashes in memory.
    """

    def __init__(self, folder: Path, at_once: int = _AT_ONCE) -> None:
        self._at_once = at_once
        self._hashes = array("Q")
        self._records = Records(folder, _RECORD, at_once)
        self._before = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._records.close()

    def add(self, value: int) -> None:
        self._hashes.append(value)
        if len(self._hashes) == self._at_once:
            self._pass_on()

    def later(self) -> "Marks":
        """The places, counted from 0, of the hashes that had come before."""
        self._pass_on()
        marks = Marks(self._before)
        for records in self._records.parts():
            order = np.argsort(records["hash"], kind="stable")  # equal ones stay in the order they came
            hashes = records["hash"][order]
            marks.set(records["index"][order][1:][hashes[1:] == hashes[:-1]])
        return marks

    def _pass_on(self) -> None:
        records = np.empty(len(self._hashes), _RECORD)
        records["hash"] = np.frombuffer(self._hashes, np.uint64) if self._hashes else 0
        records["index"] = np.arange(self._before, self._before + len(records))
        self._records.add(records)
        self._before += len(records)
        self._hashes = array("Q")


class Records:
    """Takes records that have a field `hash`, and gives them back so that those of one hash are together.

    Args:
        folder: where they are put, without names, when they become many.
        dtype: of a record; `hash` is a uint64.
        at_once: records in memory.
    """

    def __init__(self, folder: Path, dtype: np.dtype[Any], at_once: int = _AT_ONCE) -> None:
        self._folder = folder
        self._dtype = dtype
        self._at_once = at_once
        self._waiting: list[NDArray[Any]] = []
        self._files: list[BinaryIO] = []

    def close(self) -> None:
        for file in self._files:
            file.close()

    def add(self, records: NDArray[Any]) -> None:
        self._waiting.append(records)
        if sum(map(len, self._waiting)) >= self._at_once:
            self._write()

    def parts(self) -> Iterator[NDArray[Any]]:
        """All records, those of one hash in the same part; within it they are in the order they came."""
        if not self._files:
            yield self._joined()
            return
        self._write()
        for file in self._files:
            file.seek(0)
            yield np.frombuffer(file.read(), self._dtype)

    def _joined(self) -> NDArray[Any]:
        return np.concatenate([np.empty(0, self._dtype), *self._waiting])

    def _write(self) -> None:
        if not self._files:
            self._files = [tempfile.TemporaryFile(dir=self._folder) for _ in range(_PARTS)]  # noqa: SIM115
        records = self._joined()
        parts = (records["hash"] >> np.uint64(58)).astype(np.int64)
        order = np.argsort(parts, kind="stable")
        bounds = np.searchsorted(parts[order], np.arange(_PARTS + 1))
        records = records[order]
        for part, file in enumerate(self._files):
            file.write(records[bounds[part] : bounds[part + 1]].tobytes())
        self._waiting = []


class Marks:
    """A set of places, one bit each."""

    def __init__(self, size: int) -> None:
        self._bits = np.zeros(-(-size // 8), dtype=np.uint8)
        self.count = 0

    def set(self, places: NDArray[np.uint64]) -> None:
        """Adds places that are not in it yet."""
        np.bitwise_or.at(
            self._bits, (places >> np.uint64(3)).astype(np.int64), 1 << (places & np.uint64(7)).astype(np.uint8)
        )
        self.count += len(places)

    def __contains__(self, place: int) -> bool:
        return bool(self._bits[place >> 3] >> (place & 7) & 1)
