"""Transparent decompression of .gz, .xz and .zst files."""

import contextlib
import gzip
import importlib
import io
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from mt.errors import InputError

COMPRESSED = {".gz": "gzip", ".xz": "xz", ".zst": "Zstandard"}

LZMA_ERRORS: tuple[type[Exception], ...] = ()
with contextlib.suppress(ImportError):  # a Python that was built without it
    import lzma

    LZMA_ERRORS = (lzma.LZMAError,)

_BLOCK = 2**16  # compressed bytes read at a time


@contextlib.contextmanager
def open_bytes(path: Path) -> Iterator[IO[bytes]]:
    """Open a file for reading, decompressed if its suffix says so.

    Raises InputError while it is read if the compressed data turns out to be damaged or truncated.
    """
    suffix = path.suffix.lower()
    if suffix not in COMPRESSED:
        with path.open("rb") as plain:
            yield plain
        return
    if suffix == ".xz" and not LZMA_ERRORS:
        raise InputError(f"{path}: this Python was built without lzma", "unpack the file, or use another Python")
    zstd: Any = None
    if suffix == ".zst":
        zstd = importlib.import_module("compression.zstd" if sys.version_info >= (3, 14) else "backports.zstd")
    opener: Any = {".gz": gzip.open, ".xz": _open_xz}.get(suffix) or zstd.open
    errors = {".gz": (gzip.BadGzipFile, zlib.error), ".xz": LZMA_ERRORS}.get(suffix) or (zstd.ZstdError,)
    try:
        with opener(path, "rb") as stream:
            yield stream
    except (*errors, EOFError) as error:
        raise InputError(f"{path}: damaged or truncated {COMPRESSED[suffix]} file ({error})") from None


def refuse_compressed(output: Path) -> None:
    """Raise `InputError` for an output name with a compression suffix: output is never compressed."""
    if (suffix := output.suffix.lower()) in COMPRESSED:
        raise InputError(f"{output}: cannot be written compressed", f"leave out {suffix}, and compress it afterwards")


class _XzReader(io.RawIOBase):
    """A reader of all streams of an .xz file; `lzma.open` ends without an error where a later stream is damaged."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._decompressor = lzma.LZMADecompressor()

    def readable(self) -> bool:
        return True

    def close(self) -> None:
        self._file.close()
        super().close()

    def readinto(self, buffer: Any) -> int:
        content = b""
        while not content:
            if self._decompressor.eof:
                block = self._next_stream()
                if not block:
                    return 0
                self._decompressor = lzma.LZMADecompressor()
            else:
                block = self._file.read(_BLOCK) if self._decompressor.needs_input else b""
                if self._decompressor.needs_input and not block:
                    raise EOFError("it ends within a stream")
            content = self._decompressor.decompress(block, len(buffer))
        buffer[: len(content)] = content
        return len(content)

    def _next_stream(self) -> bytes:
        """Return the first bytes after a stream and its padding; empty at the end of the file."""
        block = self._decompressor.unused_data.lstrip(b"\0")
        while not block and (read := self._file.read(_BLOCK)):
            block = read.lstrip(b"\0")
        return block


def _open_xz(path: Path, mode: str) -> IO[bytes]:
    return io.BufferedReader(_XzReader(path.open("rb")))
