"""Line reading: bytes split on LF only, strict UTF-8.

`str.splitlines` and text-mode `open` also split on U+2028, U+0085 or a lone CR; one such character in one of two files
shifts every pair after it.
"""

import os
import re
import unicodedata
from codecs import BOM_UTF8, BOM_UTF16_BE, BOM_UTF16_LE
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from io import BufferedReader
from itertools import chain, groupby, islice, zip_longest
from pathlib import Path
from sys import getsizeof
from typing import IO, TypeVar

from mt.errors import InputError
from mt.text.compressed import open_bytes
from mt.text.words import INVISIBLE

T = TypeVar("T")

_MAX_LINE = 2**24  # bytes
_MAX_BLOCK = 2**23  # bytes; reached by 4,000 lines of 2,000 letters
_READ = 2**16 * min(16, os.cpu_count() or 1)  # bytes; for each core some hundred lines, which make good batches
_LINE_BREAK = re.compile("\r\n|\r|\n")
_INVISIBLE = re.compile(f"[{INVISIBLE}]")
# Beside a mark or digit one non-breaking space stays: French text has it there.
_WHITE = re.compile(r"\s{2,}|[^\S \xa0\u202f]|(?<=[^\W\d_])[\xa0\u202f](?=[^\W\d_])")
_MANY_MARKS = re.compile(r"\W{100,}")  # marks are no word characters
_ARCHIVES = {b"\x1f\x8b": "gzip", b"PK\x03\x04": "zip", b"BZh": "bzip2", b"\xfd7zXZ": "xz", b"\x28\xb5\x2f\xfd": "zstd"}


@dataclass(frozen=True)
class TextIssue:
    """A defect for which a text is refused, though reading can continue after it."""

    kind: str  # `encoding` of a line, `lines` (of two files, in number), `empty` (one of two files), `row` of a table
    file: str  # its name in messages
    line: int  # counted from 1; 0 is the whole file
    message: str
    hint: str = ""


IssueHandler = Callable[[TextIssue], None]


def raise_issue(issue: TextIssue) -> None:
    """Raise an issue as `InputError`: the handler of readers that accept no defect."""
    raise InputError(issue.message, issue.hint) from None


def nfc(text: str) -> str:
    """Return a text in Unicode normal form C, in which tokenizers see it and texts are compared."""
    if text.isascii():
        return text
    return unicodedata.normalize("NFC", _MANY_MARKS.sub(_sort_marks, text) if len(text) > 1000 else text)


def _sort_marks(match: re.Match[str]) -> str:
    """Put combining marks into their canonical order, for which `unicodedata` takes quadratic time."""
    characters = chain.from_iterable(unicodedata.normalize("NFD", character) for character in match[0])
    runs = groupby(characters, key=lambda character: unicodedata.combining(character) > 0)
    return "".join(chain.from_iterable(sorted(run, key=unicodedata.combining) for _, run in runs))


def raw_lines(stream: IO[bytes]) -> Iterator[bytes]:
    """Return the lines of a binary stream; one that is too long for `decode_lines` comes in pieces, to save memory."""
    return iter(partial(stream.readline, _MAX_LINE), b"")


def decode_lines(
    stream: Iterable[bytes], name: str, before: int = 0, on_issue: IssueHandler = raise_issue
) -> Iterator[str]:
    """Decode raw lines; the LF, a CR before it, and a byte order mark at the start of the file are removed.

    `before` lines of the stream, which messages call `name`, were read earlier. `on_issue` handles lines that are not
    UTF-8; if it returns, the line is decoded with U+FFFD. Raises InputError if a line is too long.
    """
    file_start = b""
    for number, raw in enumerate(stream, before + 1):
        if len(raw) >= _MAX_LINE:  # a zip stream may read a little more
            raise InputError(f"{name}:{number}: a line of more than {_MAX_LINE // 2**20} MB", "this is not text")
        line = raw.removesuffix(b"\n").removesuffix(b"\r")
        if number == 1:
            file_start = line[:6]
            line = line.removeprefix(BOM_UTF8)
        try:
            text = line.decode("utf-8")
        except UnicodeDecodeError as error:
            problem = f"not valid UTF-8 (byte 0x{line[error.start]:02x} at column {error.start + 1})"
            on_issue(TextIssue("encoding", name, number, f"{name}:{number}: {problem}", _encoding_hint(file_start)))
            text = line.decode("utf-8", "replace")
        yield text


def _encoding_hint(file_start: bytes) -> str:
    archive = next((kind for magic, kind in _ARCHIVES.items() if file_start.startswith(magic)), None)
    if archive is not None:
        return f"this looks like a {archive} file: unpack it, or name it .gz, .xz or .zst if it is one of these"
    encoding = "utf-16" if file_start.startswith((BOM_UTF16_LE, BOM_UTF16_BE)) else "latin1"
    return f"convert the file to UTF-8, for example with `iconv -f {encoding} -t utf-8`"


@contextmanager
def explain_read_errors(path: Path, hint: str = "") -> Iterator[None]:
    """Turn errors of reading a file into `InputError`; the hint is for a missing file."""
    try:
        yield
    except FileNotFoundError:
        raise InputError(f"{path}: no such file", hint) from None
    except IsADirectoryError:
        raise InputError(f"{path}: this is a folder, not a file") from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from None


def read_lines(path: Path, on_issue: IssueHandler = raise_issue) -> Iterator[str]:
    """Yield the lines of a text file, decompressed if its name ends in `.gz`, `.xz` or `.zst`.

    Raises InputError if the file is missing, unreadable, damaged or not UTF-8.
    """
    with explain_read_errors(path), open_bytes(path) as stream:
        yield from decode_lines(raw_lines(stream), str(path), on_issue=on_issue)


def count_lines(path: Path) -> int:
    """Count the lines of a text file; raises as `read_lines` does, but the text need not be UTF-8."""
    with explain_read_errors(path), open_bytes(path) as stream:
        return sum(1 for _ in raw_lines(stream))


def take_block(lines: Iterator[T], most: int) -> list[T]:
    """Take `most` lines or tuples of lines, or fewer if they are long, so that the block fits in memory."""
    block, size = list[T](), 0
    for line in islice(lines, most):
        block.append(line)
        size += sum(map(getsizeof, line)) if isinstance(line, tuple) else getsizeof(line)
        if size > _MAX_BLOCK:
            break
    return block


def refuse_pipe(path: Path) -> None:
    """Raise `InputError` for a pipe, which cannot be read twice."""
    if path.exists() and not path.is_file() and not path.is_dir():
        raise InputError(f"{path}: a pipe, not a file", "write the text to a file first; it is read more than once")


@dataclass(frozen=True)
class TextFile:
    """The lines of a file, or every n-th of them (n is `stride`); each iteration reads the file again."""

    path: Path
    stride: int = 1

    def __iter__(self) -> Iterator[str]:
        return islice(read_lines(self.path), 0, None, self.stride)


def read_parallel(source: Path, target: Path, on_issue: IssueHandler = raise_issue) -> Iterator[tuple[str, str]]:
    """Yield the line pairs of two files.

    Raises InputError if a file cannot be read, or they have different numbers of lines; the message names both.
    """
    return pair_lines(read_lines(source, on_issue), read_lines(target, on_issue), (str(source), str(target)), on_issue)


def pair_lines(
    source_lines: Iterator[str], target_lines: Iterator[str], names: tuple[str, str], on_issue: IssueHandler
) -> Iterator[tuple[str, str]]:
    """Yield the line pairs of two texts; it is an issue, which cites their names, if their lengths differ."""
    for pairs, (src, tgt) in enumerate(zip_longest(source_lines, target_lines)):
        if src is None or tgt is None:
            n_source = pairs if src is None else pairs + 1 + sum(1 for _ in source_lines)
            n_target = pairs if tgt is None else pairs + 1 + sum(1 for _ in target_lines)
            if not pairs:
                (empty, other), lines = names if src is None else names[::-1], n_source or n_target
                message = f"{empty}: this text is empty, but {other} has {lines} line{'s' * (lines > 1)}"
                on_issue(TextIssue("empty", empty, 0, message, "restore it, or leave out both"))
                return
            message = f"{names[0]} has {n_source} lines but {names[1]} has {n_target}"
            hint = "line n of one must be the translation of line n of the other; `mt data check` finds where they part"
            on_issue(TextIssue("lines", names[0], 0, message, hint))
            return
        yield src, tgt


def read_available(stream: BufferedReader, name: str) -> Iterator[list[str]]:
    """Yield lines in groups of as many as have arrived, so that a pipe is answered line by line.

    Raises InputError if a line is not valid UTF-8, after the valid lines before it have been yielded.
    """
    with suppress(ImportError, AttributeError, OSError):  # only pipes of Linux can be enlarged
        import fcntl

        fcntl.fcntl(stream, fcntl.F_SETPIPE_SZ, _READ)
    number = 0
    for raw in _arriving(stream):
        lines: list[str] = []
        try:
            lines.extend(decode_lines(raw, name, number))
        except InputError:
            if lines:
                yield lines
            raise
        yield lines
        number += len(raw)


def _arriving(stream: BufferedReader) -> Iterator[list[bytes]]:
    pending = bytearray()  # an unfinished line
    while chunk := stream.read1(_READ):
        first, *others = chunk.split(b"\n")
        pending += first
        if others or len(pending) >= _MAX_LINE:  # which `decode_lines` refuses
            yield [bytes(pending), *others[:-1]]
            pending = bytearray().join(others[-1:])
    if pending:
        yield [bytes(pending)]


def without_line_breaks(text: str) -> str:
    """Replace line breaks, which training text does not have, by spaces."""
    return _LINE_BREAK.sub(" ", text) if "\n" in text or "\r" in text else text


def with_plain_spaces(text: str) -> str:
    """Return a text with single spaces between its words, and without invisible characters, as training text is.

    It is to be in a language that writes spaces; others may separate words by characters without width.
    """
    return _WHITE.sub(" ", _INVISIBLE.sub("", text))
