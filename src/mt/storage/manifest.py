"""Manifests: size and SHA-256 of every file in a folder, and the key of the inputs that it was made from."""

import contextlib
import errno
import json
import stat
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from mt.errors import MachineError
from mt.storage.run_dir import MANIFEST, VOCABULARY_MAP

_MAX_BYTES = 2**24  # of a manifest; real ones have some thousands
# Errors of a missing file. Others (permissions, a failing disk) say nothing about its content.
_MISSING = {errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG}


class DamagedError(Exception):
    """A folder does not agree with its manifest; the message names the first file that differs."""


@contextlib.contextmanager
def _reading(path: Path, name: str) -> Iterator[None]:
    """Distinguish a missing file, which is damage, from one that cannot be read now."""
    try:
        yield
    except OSError as error:
        if error.errno in _MISSING:
            raise DamagedError(f"{name} is missing") from None
        hint = "check its permissions and the disk, then run the same command"
        raise MachineError(f"{path}: cannot be read: {error.strerror or error}", hint) from None


def read_manifest(folder: Path) -> dict[str, Any]:
    """Read a folder's manifest without checking the files.

    Raises:
        DamagedError: it is missing or malformed.
        MachineError: it cannot be read.
    """
    path = folder / MANIFEST
    try:
        with _reading(path, MANIFEST):
            # Reading a device or a pipe might never end.
            if not stat.S_ISREG((status := path.stat()).st_mode) or status.st_size > _MAX_BYTES:
                raise TypeError
            manifest = json.loads(path.read_bytes())
        entries = manifest["files"].values()
        if not all(isinstance(e["bytes"], int) and isinstance(e["sha256"], str) for e in entries):
            raise TypeError
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        raise DamagedError(f"{MANIFEST} is not a manifest") from None
    return dict(manifest)


def recorded_choice(path: Path, *keys: str) -> dict[str, Any]:
    """Return a choice that a run recorded, with these keys; empty if there is none.

    Raises:
        MachineError: the file is damaged. To ignore it could end a resume with other weights.
    """
    if not path.exists():
        return {}
    try:
        record = json.loads(path.read_bytes())
        return {key: record[key] for key in keys}
    except (ValueError, TypeError, LookupError, RecursionError):
        hint = "restore it; if you remove it, its choice is made again and may end with other weights"
        raise MachineError(f"{path}: damaged, so this run cannot be resumed exactly", hint) from None


def learned_files(files: Mapping[str, Any]) -> dict[str, Any]:
    """Select a manifest's weights and tokenizers; other files, such as measured speeds, change without training."""
    return {name: f for name, f in files.items() if name.endswith(".safetensors") or name.startswith("tokenizer/")}


def translating_files(files: Mapping[str, Any]) -> dict[str, Any]:
    """Select what translations depend on: weights, tokenizers, shortlists, and what preprocessing has learned."""
    others = ("casing.txt", "spelling.txt", VOCABULARY_MAP)
    return learned_files(files) | {name: f for name, f in files.items() if name.endswith(others)}


def verify(folder: Path, *parts: Path) -> dict[str, Any]:
    """Check the files of a folder, or those in some parts of it, against its manifest and return the manifest.

    Raises:
        DamagedError: a file is missing, or differs in size or content.
        MachineError: a file cannot be read.
    """
    manifest = read_manifest(folder)
    for name, expected in manifest["files"].items():
        path = folder / name
        escapes = ".." in path.parts or not path.is_relative_to(folder)  # as an absolute name does
        if parts and not escapes and not any(path.is_relative_to(part) for part in parts):
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
    """Reject names that lead out of the folder, even through a link: a manifest may come from anywhere."""
    try:
        inside = path.resolve() == folder.resolve() / path.relative_to(folder)
        return inside and stat.S_ISREG(path.stat().st_mode)
    except (ValueError, RuntimeError):  # an absolute name or a NUL; a loop of links
        return False


def sha256(path: Path) -> str:
    import hashlib  # not above: `mt --help` would load OpenSSL

    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def folder_digests(folder: Path, digest: Callable[[Path], str] = sha256) -> dict[str, str]:
    """Return the digests of a folder's files by their names, without hidden ones."""
    names = (path.relative_to(folder) for path in folder.rglob("*") if path.is_file())
    visible = (name for name in names if not any(part.startswith(".") for part in name.parts))
    return {name.as_posix(): digest(folder / name) for name in visible}


def stage_key(*inputs: Any) -> str:
    """Hash the inputs of a stage of the pipeline, whose output is reused while the key is the same."""
    import hashlib

    return hashlib.sha256(json.dumps(inputs, sort_keys=True, default=str).encode()).hexdigest()


def is_done(folder: Path, key: str) -> bool:
    """Return True if the output of a stage is undamaged and was made from the same inputs."""
    try:
        return bool(verify(folder).get("key") == key)
    except DamagedError:
        return False
