"""Compressed files, told by their names and read as if they were not."""

import contextlib
import gzip
import importlib
import lzma
import sys
import zlib
from collections.abc import Iterator
from io import BufferedReader
from pathlib import Path
from typing import IO, Any

from mt.errors import InputError

COMPRESSED = {".gz": "gzip", ".xz": "xz", ".zst": "Zstandard"}


@contextlib.contextmanager
def open_bytes(path: Path) -> Iterator[IO[bytes] | BufferedReader]:
    """Opens a file for reading, decompressed where its name says so.

    Raises:
        InputError: while it is read, the compressed data turns out damaged or cut off.
    """
    kind = path.suffix.lower()
    if kind not in COMPRESSED:
        with path.open("rb") as plain:
            yield plain
        return
    library: Any = {".gz": gzip, ".xz": lzma}.get(kind) or _zstd()
    errors = {".gz": (gzip.BadGzipFile, zlib.error), ".xz": (lzma.LZMAError,)}.get(kind) or (_zstd().ZstdError,)
    try:
        with library.open(path, "rb") as stream:
            yield stream
    except (*errors, EOFError) as error:
        raise InputError(f"{path}: not a whole {COMPRESSED[kind]} file ({error})") from None


def refuse_compressed(output: Path) -> None:
    """Raises `InputError` for a name that promises compression: nothing here is written compressed."""
    if (ending := output.suffix.lower()) in COMPRESSED:
        raise InputError(f"{output}: cannot be written compressed", f"leave out {ending}, and compress it afterwards")


def _zstd() -> Any:
    return importlib.import_module("compression.zstd" if sys.version_info >= (3, 14) else "backports.zstd")
