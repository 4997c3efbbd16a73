"""The only reader of plain text: bytes split on LF only, strict UTF-8.

`str.splitlines` and text-mode `open` also split on U+2028, U+0085 or a lone CR; one such character in one of two files
shifts every pair after it.
"""

import unicodedata
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from io import BufferedReader
from itertools import islice, zip_longest
from pathlib import Path

from mt.errors import InputError
from mt.text.compressed import open_bytes

_BOM = b"\xef\xbb\xbf"
_PACKED = {b"\x1f\x8b": "gzip", b"PK\x03\x04": "zip", b"BZh": "bzip2", b"\xfd7zXZ": "xz", b"\x28\xb5\x2f\xfd": "zstd"}
_UTF_16 = (b"\xff\xfe", b"\xfe\xff")  # how such a file begins


@dataclass(frozen=True)
class Fault:
    """Something in a text for which it is refused, though a reader could go on after it.

    Attributes:
        kind: `encoding` of a line, `lines` (two files differ in their number), or `row` of a table.
        file: its name in messages.
        line: where, counted from 1; 0 is all of it.
    """

    kind: str
    file: str
    line: int
    message: str
    hint: str = ""


Report = Callable[[Fault], None]


def refuse(fault: Fault) -> None:
    """What becomes of a fault unless somebody collects them.

    Raises:
        InputError: always.
    """
    raise InputError(fault.message, fault.hint) from None


def nfc(text: str) -> str:
    """Return a text in Unicode's normal form C, which tokenizers see: texts are compared in it."""
    return text if text.isascii() else unicodedata.normalize("NFC", text)


def decode_lines(stream: Iterable[bytes], name: str, before: int = 0, report: Report = refuse) -> Iterator[str]:
    """Decodes a stream of raw lines; the LF, a CR before it, and a byte order mark at the start are removed.

    Args:
        stream: raw lines, as iterating over a binary file gives them.
        name: what to call the stream in messages.
        before: how many lines of it were read earlier.
        report: is told of lines that are not UTF-8; where it goes on, they come with U+FFFD in them.

    Raises:
        InputError: a line is not valid UTF-8; the message names file and line.
    """
    beginning = b""
    for number, raw in enumerate(stream, before + 1):
        line = raw.removesuffix(b"\n").removesuffix(b"\r")
        if number == 1:
            beginning = line[:6]
            line = line.removeprefix(_BOM)
        try:
            text = line.decode("utf-8")
        except UnicodeDecodeError as error:
            where = f"byte 0x{line[error.start]:02x} at column {error.start + 1}"
            hint = _to_utf_8(beginning)
            report(Fault("encoding", name, number, f"{name}:{number}: not valid UTF-8 ({where})", hint))
            text = line.decode("utf-8", "replace")
        yield text


def _to_utf_8(beginning: bytes) -> str:
    """What to do about a file that is not UTF-8, as far as its first bytes tell."""
    packed = next((kind for start, kind in _PACKED.items() if beginning.startswith(start)), None)
    if packed is not None:
        return f"this looks like a {packed} file: unpack it; .gz, .xz and .zst are read as they are, under such names"
    encoding = "utf-16" if beginning.startswith(_UTF_16) else "latin1"
    return f"convert the file to UTF-8, for example with `iconv -f {encoding} -t utf-8`"


def read_lines(path: Path, report: Report = refuse) -> Iterator[str]:
    """Yields the lines of a text file; `.gz`, `.xz` and `.zst` are read as they are.

    Args:
        path: the file.
        report: as for `decode_lines`.

    Raises:
        InputError: the file is missing, unreadable, damaged, or not UTF-8.
    """
    try:
        with open_bytes(path) as stream:
            yield from decode_lines(stream, str(path), report=report)
    except FileNotFoundError:
        raise InputError(f"{path}: no such file") from None
    except IsADirectoryError:
        raise InputError(f"{path}: this is a folder, not a text file") from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from None


def refuse_pipe(path: Path) -> None:
    """Raises `InputError` for what cannot be read twice."""
    if path.exists() and not path.is_file() and not path.is_dir():
        raise InputError(f"{path}: a pipe, not a file", "write the text to a file first; it is read more than once")


@dataclass(frozen=True)
class TextFile:
    """The lines of a file, or every so-manieth of them, readable any number of times."""

    path: Path
    every: int = 1

    def __iter__(self) -> Iterator[str]:
        return islice(read_lines(self.path), 0, None, self.every)


def read_parallel(source: Path, target: Path, report: Report = refuse) -> Iterator[tuple[str, str]]:
    """Yields the line pairs of two files.

    Args:
        source: one of them.
        target: the other.
        report: is told of lines that are not UTF-8, and where one file has more lines than the other.

    Raises:
        InputError: the files have different numbers of lines; the message names both.
    """
    source_lines, target_lines = read_lines(source, report), read_lines(target, report)
    for pairs, (src, tgt) in enumerate(zip_longest(source_lines, target_lines)):
        if src is None or tgt is None:
            n_source = pairs if src is None else pairs + 1 + sum(1 for _ in source_lines)
            n_target = pairs if tgt is None else pairs + 1 + sum(1 for _ in target_lines)
            message = f"{source} has {n_source} lines but {target} has {n_target}"
            hint = "line n of one file must be the translation of line n of the other"
            report(Fault("lines", str(source), 0, message, hint))
            return
        yield src, tgt


def read_available(stream: BufferedReader, name: str) -> Iterator[list[str]]:
    """Yields lines in groups, each as many as have arrived: a pipe of one line is answered before the next comes.

    Raises:
        InputError: a line is not valid UTF-8.
    """
    rest: list[bytes] = []  # of a line that has not ended; joined once, since it may be long
    number = 0
    while chunk := stream.read1(1 << 16):
        first, *others = chunk.split(b"\n")
        rest.append(first)
        if others:
            whole = [b"".join(rest), *others[:-1]]
            rest = [others[-1]]
            yield from _group(whole, name, number)
            number += len(whole)
    if last := b"".join(rest):
        yield from _group([last], name, number)


def _group(raw: list[bytes], name: str, before: int) -> Iterator[list[str]]:
    """The lines together; those before one that is not UTF-8 come before that is told."""
    lines: list[str] = []
    try:
        lines.extend(decode_lines(raw, name, before))
    except InputError:
        if lines:
            yield lines
        raise
    yield lines
