"""Run lock: one training at a time in a run folder. The kernel frees it when the process dies.

Both the folder and a file in it are locked. The folder stays locked when somebody deletes the file; but on a network
file system only locks of files reach other machines.
"""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from filelock import lock_descriptor

from mt.errors import InputError
from mt.storage import atomic


def refuse_locked(path: Path) -> None:
    """Raise what `exclusive` would raise, without writing anything."""
    with contextlib.ExitStack() as held, atomic.explained(path):
        for each in (path.parent, path):
            if each.exists():
                _lock(path, _opened(held, each, os.O_RDONLY))


@contextlib.contextmanager
def exclusive(path: Path) -> Iterator[None]:
    """Hold the lock of a run folder, so that two trainers never write into one run.

    Args:
        path: the lock file in the folder; it names the process that holds the lock.

    Raises:
        InputError: another process holds it.
    """
    with contextlib.ExitStack() as held:
        with atomic.explained(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            _lock(path, _opened(held, path.parent, os.O_RDONLY))
            file = _opened(held, path, os.O_RDWR | os.O_CREAT)
            _lock(path, file)
            atomic.failpoint("write", path)
            os.truncate(file, 0)
            os.write(file, str(os.getpid()).encode())
        yield


def _opened(held: contextlib.ExitStack, path: Path, flags: int) -> int:
    descriptor = os.open(path, flags, 0o666)
    held.callback(os.close, descriptor)
    return descriptor


def _lock(path: Path, descriptor: int) -> None:
    if lock_descriptor(descriptor, blocking=False):
        return
    try:
        holder = path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        holder = ""
    raise InputError(
        f"{path.parent}: another training (process {holder or 'unknown'}) is working in this run folder",
        "wait for it, stop it, or choose another name in the configuration",
    )
