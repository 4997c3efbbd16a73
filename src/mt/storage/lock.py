"""Locks, such as the run lock: one training at a time in a run folder. The kernel frees them when the process dies.

The folder is locked, too, in case the file is deleted; but only locks of files reach other machines over a network.
"""

import contextlib
import errno
import os
import time
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

from filelock import lock_descriptor

from mt.console import log
from mt.errors import InputError
from mt.storage import atomic

_UNSUPPORTED = {errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOLCK}  # as of Lustre or NFS without locks


def try_lock(descriptor: int) -> bool:
    """Lock an open file or folder; return False if another process holds the lock, True where the disk has no locks."""
    try:
        return lock_descriptor(descriptor, blocking=False)
    except OSError as error:
        if error.errno not in _UNSUPPORTED:
            raise
        _warn_once()
        return True


@cache
def _warn_once() -> None:
    log.warning("this disk has no file locks: do not start two commands that write the same output")


@contextlib.contextmanager
def wait_for_lock(path: Path, reason: str, is_stopped: Callable[[], bool] = lambda: False) -> Iterator[int]:
    """Hold the lock of a file, which stays; wait while another process holds it.

    Args:
        path: the file.
        reason: for the log, if there is a wait.
        is_stopped: asked during a wait, which ends without the lock if it is True.

    Yields:
        the descriptor; processes that inherit it hold the lock, too.
    """
    with contextlib.ExitStack() as held:
        with atomic.explained(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
            held.callback(os.close, descriptor)
            if not try_lock(descriptor):
                log.info("%s; waiting for it", reason)
                while not is_stopped() and not try_lock(descriptor):
                    time.sleep(0.2)
        yield descriptor


def refuse_locked(path: Path) -> None:
    """Raise what `exclusive` would raise, without writing anything."""
    with contextlib.ExitStack() as held, atomic.explained(path):
        for target in (path.parent, path) if atomic.POSIX_FILES else (path,):
            if target.exists():
                # NFS does not lock a file that is open for reading only.
                is_writable = target.is_file() and os.access(target, os.W_OK)
                _lock(held, path, target, os.O_RDWR if is_writable else os.O_RDONLY)


@contextlib.contextmanager
def exclusive(path: Path) -> Iterator[None]:
    """Hold the lock of a run folder through a file in it, which names the process that holds it.

    Raises:
        InputError: another process holds it.
    """
    with contextlib.ExitStack() as held:
        with atomic.explained(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            if atomic.POSIX_FILES:  # elsewhere nobody can delete an open file
                _lock(held, path, path.parent, os.O_RDONLY)
            file = _lock(held, path, path, os.O_RDWR | os.O_CREAT)
            atomic.failpoint("write", path)
            os.truncate(file, 0)
            os.write(file, str(os.getpid()).encode())
        yield


def _lock(held: contextlib.ExitStack, path: Path, target: Path, flags: int) -> int:
    """Lock `target`, the file `path` or its folder, and return the descriptor, which closing `held` closes."""
    descriptor = os.open(target, flags, 0o666)
    held.callback(os.close, descriptor)
    if try_lock(descriptor):
        return descriptor
    try:
        holder = path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        holder = ""
    raise InputError(
        f"{path.parent}: another training (process {holder or 'unknown'}) is working in this run folder",
        "wait for it, stop it, or choose another name in the configuration",
    )
