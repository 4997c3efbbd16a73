"""Zip and tar archives: names and streams of their files, guarded against damage, passwords and bombs."""

import contextlib
import gzip
import io
import os
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import IO, Any

from mt.errors import InputError
from mt.text.compressed import LZMA_ERRORS
from mt.text.lines import explain_read_errors, raw_lines

ARCHIVES = (".zip", ".tar.gz", ".tgz")

_MAX_RATIO = 200  # of unpacked to packed size: about 5 for text, 50 for repetitive text
_SMALL = 50_000_000  # unpacked bytes that are no bomb at any ratio
_MAX_HEADER = 2**20  # bytes
_MAX_FILES = 100_000
_MANY = 50  # files; from this number on, a zip archive is kept open, and a small tar archive in memory
_DAMAGE: tuple[type[Exception], ...] = (
    zipfile.BadZipFile,
    tarfile.TarError,
    gzip.BadGzipFile,
    zlib.error,
    *LZMA_ERRORS,
    EOFError,
    NotImplementedError,
    UnicodeDecodeError,  # of a name in a zip
)


def refuse_unsafe_zip(archive: zipfile.ZipFile, place: str, max_bytes: int | None = None) -> None:
    """Raise InputError for an archive that is encrypted or unpacks to too much, by the sizes that its files declare.

    The library reads no more than these. `place` is the archive's name in messages; `max_bytes` limits all its files.
    """
    infos = archive.infolist()
    if any(info.flag_bits & 1 for info in infos):
        raise InputError(f"{place}: protected by a password", "save it without one")
    unpacked, packed = sum(info.file_size for info in infos), sum(info.compress_size for info in infos)
    if max_bytes and unpacked > max_bytes:
        raise InputError(f"{place}: unpacks to more than {max_bytes // 1_000_000} MB", "split it")
    if unpacked > max(_SMALL, _MAX_RATIO * packed):
        raise _bomb(place)


def refuse_too_many(files: int, path: Path) -> None:
    """Raise InputError for a folder or an archive of too many files."""
    if files > _MAX_FILES:
        raise InputError(f"{path}: holds more than {_MAX_FILES:,} files", "put the texts alone into it")


def file_names(path: Path) -> list[str]:
    """Return the names of the files in an archive; raise InputError if it is missing, damaged, encrypted or a bomb."""
    with _opened(path) as archive:
        if isinstance(archive, zipfile.ZipFile):
            return [name for name in archive.namelist() if not name.endswith("/")]
        names = []
        for member in archive:
            names += [member.name] if member.isfile() else []
            archive.members = []  # type: ignore[attr-defined]  # the library would keep all in memory
            refuse_too_many(len(names), path)
        while archive.fileobj and archive.fileobj.read(_MAX_HEADER):  # to the end, where gzip checks its checksum
            pass
        return names


def member_lines(path: Path, name: str) -> Iterator[bytes]:
    """Yield the raw lines of one file in an archive; raise InputError if it is damaged.

    Several files can be read side by side.
    """
    with _opened(path) as archive:
        if isinstance(archive, zipfile.ZipFile):
            stream: IO[bytes] | None = archive.open(name)
        elif (content := _small_tar(path, *file_state(path)).get(name)) is not None:
            stream = io.BytesIO(content)
        else:
            stream = archive.extractfile(next(member for member in archive if member.name == name))
        assert stream is not None, "only files are named"
        with stream:
            yield from raw_lines(stream)


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[zipfile.ZipFile | tarfile.TarFile]:
    with explain_read_errors(path):
        try:
            if path.name.lower().endswith(".zip"):
                kept = _kept_zip(path, *file_state(path))
                with contextlib.nullcontext(kept) if kept else zipfile.ZipFile(path) as archive:
                    yield archive
            else:
                with gzip.open(path) as stream, tarfile.open(fileobj=_Bounded(stream, path), mode="r:") as tar:  # type: ignore[call-overload]
                    yield tar
        except _DAMAGE as error:
            raise InputError(f"{path}: damaged, or of another kind ({error})", "download or pack it again") from None


def file_state(path: Path) -> tuple[int, ...]:
    """Return a cache key that changes when a file is replaced or written to, and in a forked process."""
    status = path.stat()
    return os.getpid(), status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


@lru_cache(maxsize=1)
def _kept_zip(path: Path, *state: int) -> zipfile.ZipFile | None:
    """Open an archive of many files and keep it open: reading its directory takes longer than reading one file.

    It closes itself once it has left the cache and no file in it is being read. None for an archive of few files.
    """
    archive = zipfile.ZipFile(path)
    refuse_unsafe_zip(archive, str(path))
    return archive if len(archive.infolist()) >= _MANY else None


@lru_cache(maxsize=1)
def _small_tar(path: Path, *state: int) -> dict[str, bytes]:
    """Return the contents of a small archive of many files, {} for others: reading one file unpacks all before it."""
    contents, size = dict[str, bytes](), 0
    with _opened(path) as archive:
        assert isinstance(archive, tarfile.TarFile)
        for member in filter(tarfile.TarInfo.isfile, archive):
            size += member.size
            if size > _SMALL:
                return {}
            stream = archive.extractfile(member)
            assert stream is not None
            contents.setdefault(member.name, b"".join(raw_lines(stream)))
    return contents if len(contents) >= _MANY else {}


class _Bounded:
    """A decompressed stream for tarfile that refuses bombs: tar headers can claim any size."""

    def __init__(self, stream: Any, path: Path) -> None:
        self.seek, self.tell = stream.seek, stream.tell
        self._stream, self._path = stream, path
        self._limit = max(_SMALL, _MAX_RATIO * path.stat().st_size)

    def read(self, size: int) -> bytes:
        if size > _MAX_HEADER or self.tell() > self._limit:
            raise _bomb(str(self._path))
        return bytes(self._stream.read(size))


def _bomb(place: str) -> InputError:
    return InputError(f"{place}: unpacks to more than {_MAX_RATIO} times its size, which no text does", "pack it again")
