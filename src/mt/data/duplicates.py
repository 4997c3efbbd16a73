"""Duplicate detection among many hashes in bounded memory, by partitioning them into files.

Equal hashes are in the same partition, and each partition is small enough to be sorted in memory.
"""

import tempfile
from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

_AT_ONCE = 2**20
_PARTITIONS = 64  # open files; two sets of partitions are well within the 256 that some systems allow
_RECORD = np.dtype([("hash", np.uint64), ("index", np.uint64)])


class DuplicateFinder:
    """A collector of 64-bit hashes that finds the repeated ones; `close` removes its temporary files.

    Args:
        folder: holds unnamed temporary files once the hashes are many.
        at_once: number of hashes in memory.
    """

    def __init__(self, folder: Path, at_once: int = _AT_ONCE) -> None:
        self._at_once = at_once
        self._hashes = array("Q")
        self._partitions = HashPartitions(folder, _RECORD, at_once)
        self._flushed = 0

    def close(self) -> None:
        self._partitions.close()

    def add(self, value: int) -> None:
        self._hashes.append(value)
        if len(self._hashes) == self._at_once:
            self._flush()

    def repeated(self) -> "IndexSet":
        """Return the indices, counted from 0 in the order added, of hashes that occurred earlier."""
        self._flush()
        indices = IndexSet(self._flushed)
        for records in self._partitions:
            order = np.argsort(records["hash"], kind="stable")  # equal hashes stay in the order added
            hashes = records["hash"][order]
            indices.update(records["index"][order][1:][hashes[1:] == hashes[:-1]])
        return indices

    def _flush(self) -> None:
        records = np.empty(len(self._hashes), _RECORD)
        records["hash"] = np.asarray(self._hashes)
        records["index"] = np.arange(self._flushed, self._flushed + len(records))
        self._partitions.add(records)
        self._flushed += len(records)
        self._hashes = array("Q")


class HashPartitions:
    """A store of records with a uint64 field `hash`. Iterating gives partitions; equal hashes share one, in order.

    Args:
        folder: holds unnamed temporary files once the records are many.
        dtype: of a record.
        at_once: number of records in memory.
    """

    def __init__(self, folder: Path, dtype: np.dtype[Any], at_once: int = _AT_ONCE) -> None:
        self._folder, self._dtype, self._at_once = folder, dtype, at_once
        self._pending: list[NDArray[Any]] = []
        self._files: list[BinaryIO] = []

    def close(self) -> None:
        for file in self._files:
            file.close()

    def add(self, records: NDArray[Any]) -> None:
        self._pending.append(records)
        if sum(map(len, self._pending)) >= self._at_once:
            self._write()

    def __iter__(self) -> Iterator[NDArray[Any]]:
        if not self._files:
            yield self._concatenated()
            return
        self._write()
        for file in self._files:
            file.seek(0)
            yield np.frombuffer(file.read(), self._dtype)

    def _concatenated(self) -> NDArray[Any]:
        return np.concatenate([np.empty(0, self._dtype), *self._pending])

    def _write(self) -> None:
        if not self._files:
            self._files = [tempfile.TemporaryFile(dir=self._folder) for _ in range(_PARTITIONS)]  # noqa: SIM115
        records = self._concatenated()
        partitions = (records["hash"] >> np.uint64(58)).astype(np.int64)
        order = np.argsort(partitions, kind="stable")
        bounds = np.searchsorted(partitions[order], np.arange(_PARTITIONS + 1))
        records = records[order]
        for number, file in enumerate(self._files):
            file.write(records[bounds[number] : bounds[number + 1]].tobytes())
        self._pending = []


class IndexSet:
    """A set of indices below `size`, one bit each."""

    def __init__(self, size: int) -> None:
        self._bits = np.zeros(-(-size // 8), dtype=np.uint8)
        self.count = 0

    def update(self, indices: NDArray[np.uint64]) -> None:
        """Add distinct indices that are not in the set yet."""
        bytes_, bits = (indices >> np.uint64(3)).astype(np.int64), (indices & np.uint64(7)).astype(np.uint8)
        np.bitwise_or.at(self._bits, bytes_, 1 << bits)
        self.count += len(indices)

    def __contains__(self, index: int) -> bool:
        return bool(self._bits[index >> 3] >> (index & 7) & 1)
