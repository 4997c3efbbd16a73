"""Where a user wants a file: what can be there, and whether it could be written."""

import os
from pathlib import Path

from mt.errors import InputError, MachineError


def is_device(path: Path) -> bool:
    """True for a device or a pipe, such as /dev/null or /dev/stdout: one writes into it, and does not replace it."""
    return path.exists() and not path.is_file() and not path.is_dir()


def require_writable(path: Path, option: str) -> None:
    """Refuses, before long work, a file that could not be written after it.

    Raises:
        InputError: it is a folder, or `-`, by which users mean the standard output.
        MachineError: this user may not write there.
    """
    if str(path) == "-":
        raise InputError(f"{option} -: this goes to a file, not to the standard output", "name a file")
    if path.is_dir():
        raise InputError(f"{option} {path}: this is a folder, not a file", "name a file")
    place = path
    if not is_device(path):  # a file is replaced, which its folder must allow
        place = next(one for one in Path(os.path.realpath(path)).parents if one.exists())
        if not place.is_dir():
            raise InputError(f"{option} {path}: {place} is a file, not a folder", "name another file")
    if not os.access(place, os.W_OK):
        raise MachineError(f"{option} {path}: cannot write here: no permission to write {place}")
