"""Who works in a run folder: one process, which the kernel forgets when it dies."""

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from mt import storage
from mt.errors import InputError


def refuse_locked(path: Path) -> None:
    """Raises what `exclusive` would raise, and leaves the file as it is; one that is not there is not locked."""
    if path.is_file():
        with storage.explained(path), path.open("rb") as file:
            _lock(path, file)


@contextlib.contextmanager
def exclusive(path: Path) -> Iterator[None]:
    """Holds a lock file, so that two trainers never write into one run. The kernel frees it when the process dies.

    Raises:
        InputError: another process holds it.
    """
    with storage.explained(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        file = path.open("ab+", buffering=0)
    with file:
        _lock(path, file)
        with storage.explained(path):
            storage.failpoint("write", path)
            file.truncate(0)
            file.write(str(os.getpid()).encode())
        yield


def _lock(path: Path, file: IO[bytes]) -> None:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.seek(0)
        holder = file.read().decode().strip() or "unknown"
        raise InputError(
            f"{path.parent}: another training (process {holder}) is working in this run folder",
            "wait for it, stop it, or choose another name in the configuration",
        ) from None
