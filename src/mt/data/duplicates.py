"""Duplicate detection among many hashes in bounded memory, by partitioning them into files.

Equal hashes are in the same partition, and each partition is small enough to be sorted in memory.
"""

from array import array
from collections.abc import Iterator
from contextlib import closing
from itertools import islice
from pathlib import Path
from tempfile import SpooledTemporaryFile
from typing import Any

import numpy as np
from numpy.typing import NDArray

_AT_ONCE = 2**20  # records in memory
_PARTITIONS = 32  # open files; the four sets of a corpus check are well within the 256 that some systems allow
_RECORD = np.dtype([("hash", np.uint64), ("index", np.uint64)])


def find_repeated(hashes: Iterator[int], folder: Path) -> NDArray[np.bool_]:
    """Return for each 64-bit hash whether it occurred earlier (N,); `folder` is for the files of `HashPartitions`."""
    total = 0
    with closing(HashPartitions(folder, _RECORD)) as partitions:
        while chunk := array("Q", islice(hashes, _AT_ONCE)):
            partitions.add(np.asarray(chunk), np.arange(total, total + len(chunk)))
            total += len(chunk)
        repeated = np.zeros(total, np.bool_)
        for records in partitions:
            _, first = np.unique(records["hash"], return_index=True)
            repeated[np.delete(records["index"], first)] = True
    return repeated


class HashPartitions:
    """A store of records with a uint64 field `hash`. Iterating gives partitions in ascending order of the hashes.

    Within a partition the records are in the order added, and equal hashes share one. Unnamed temporary files in
    `folder` hold more records than fit into memory.
    """

    def __init__(self, folder: Path, dtype: np.dtype[Any]) -> None:
        self._dtype, in_memory = dtype, _AT_ONCE * dtype.itemsize // _PARTITIONS
        self._files = [SpooledTemporaryFile(in_memory, dir=str(folder)) for _ in range(_PARTITIONS)]  # noqa: SIM115

    def close(self) -> None:
        for file in self._files:
            file.close()

    def add(self, *columns: NDArray[Any]) -> None:
        """Add a record for each item of the columns (N,), which are the fields in their order."""
        records = np.empty(len(columns[0]), self._dtype)
        for name, column in zip(self._dtype.names or (), columns, strict=True):
            records[name] = column
        partitions = (records["hash"] >> np.uint64(59)).astype(np.int64)  # the 5 highest of 64 bits
        order = np.argsort(partitions, kind="stable")
        bounds = np.searchsorted(partitions[order], np.arange(1, _PARTITIONS))
        for file, partition in zip(self._files, np.split(records[order], bounds), strict=True):
            file.write(partition.tobytes())

    def __iter__(self) -> Iterator[NDArray[Any]]:
        for file in self._files:
            file.seek(0)
            yield np.frombuffer(file.read(), self._dtype)
