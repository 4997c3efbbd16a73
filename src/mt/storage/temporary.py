"""Folders that are written under another name until they are whole, each by one process."""

import contextlib
import os
import shutil
from pathlib import Path

from mt.errors import InputError


def take(aside: Path, final: Path) -> int:
    """Makes such a folder anew, without what a killed process left in it.

    Args:
        aside: where it is written.
        final: where it will be, for the message.

    Returns:
        a descriptor that keeps other processes away until it is closed.

    Raises:
        InputError: another process writes it.
    """
    try:
        clear(aside)
        aside.mkdir(parents=True)
        return _hold(aside)
    except BlockingIOError:
        raise InputError(f"{final}: another process is writing this folder", "wait for it, or name another") from None


def clear(aside: Path) -> None:
    """Removes such a folder that a killed process left.

    Raises:
        BlockingIOError: a process is writing it.
    """
    with contextlib.suppress(FileNotFoundError):
        left_over = _hold(aside)
        shutil.rmtree(aside, ignore_errors=True)
        os.close(left_over)


def _hold(aside: Path) -> int:
    from filelock import lock_descriptor  # it takes a while to import, and a reader locks nothing

    descriptor = os.open(aside, os.O_RDONLY)
    if not lock_descriptor(descriptor, blocking=False):
        os.close(descriptor)
        raise BlockingIOError
    return descriptor
