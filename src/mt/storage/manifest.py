"""Manifests: size and SHA-256 of every file in a folder."""

import contextlib
import errno
import hashlib
import json
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mt.errors import MachineError
from mt.storage.run_dir import MANIFEST

_LARGEST = 2**24  # bytes of a manifest; one of ours has a few thousand
# Errors that say a file is not there. Any other (permissions, a failing disk) says nothing about its content.
_MISSING = {errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG}


class DamagedError(Exception):
    """A folder does not agree with its manifest; the message names the first file that differs."""


@contextlib.contextmanager
def _reading(path: Path, name: str) -> Iterator[None]:
    """Tells a missing file, which is damage, from one that cannot be read now."""
    try:
        yield
    except OSError as error:
        if error.errno in _MISSING:
            raise DamagedError(f"{name} is missing") from None
        raise MachineError(
            f"{path}: cannot be read: {error.strerror or error}",
            "check its permissions and the disk, then run the same command",
        ) from None


def read_manifest(folder: Path) -> dict[str, Any]:
    """Reads a folder's manifest without checking the files.

    Raises:
        DamagedError: it is missing or no manifest.
        MachineError: it cannot be read.
    """
    path = folder / MANIFEST
    try:
        with _reading(path, MANIFEST):
            # A device or a pipe under this name would never end.
            if not stat.S_ISREG((about := path.stat()).st_mode) or about.st_size > _LARGEST:
                raise TypeError
            manifest = json.loads(path.read_bytes())
        entries = manifest["files"].values()
        if not all(isinstance(e["bytes"], int) and isinstance(e["sha256"], str) for e in entries):
            raise TypeError
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        raise DamagedError(f"{MANIFEST} is not a manifest") from None
    return dict(manifest)


def verify(folder: Path, *parts: Path) -> dict[str, Any]:
    """Checks the files of a folder against its manifest and returns the manifest.

    Args:
        folder: what to check.
        parts: files and folders in it; where none is given, everything is checked.

    Raises:
        DamagedError: a file is missing, has another size or other content.
        MachineError: a file cannot be read.
    """
    manifest = read_manifest(folder)
    for name, expected in manifest["files"].items():
        path = folder / name
        leads_out = ".." in path.parts or not path.is_relative_to(folder)  # an absolute name does
        if parts and not leads_out and not any(path.is_relative_to(part) for part in parts):
            continue
        with _reading(path, f"{name!r:.100}"):
            if not _is_file_inside(folder, path):
                raise DamagedError(f"{name!r:.100} is missing")
            if path.stat().st_size != expected["bytes"]:
                raise DamagedError(f"{name} has {path.stat().st_size} bytes instead of {expected['bytes']}")
            if sha256(path) != expected["sha256"]:
                raise DamagedError(f"{name} was altered (its sha256 differs from the manifest)")
    return manifest


def _is_file_inside(folder: Path, path: Path) -> bool:
    """A manifest's names are data from outside: none may lead out of the folder, not even through a link."""
    try:
        inside = path.resolve() == folder.resolve() / path.relative_to(folder)
        return inside and stat.S_ISREG(path.stat().st_mode)
    except (ValueError, RuntimeError):  # ValueError: an absolute name, or a NUL in it; RuntimeError: a loop
        return False


def sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
