"""Lines in and lines out."""

import contextlib
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from io import BufferedReader, FileIO
from itertools import islice
from pathlib import Path

from mt.errors import InputError

LINES_AT_ONCE = 4000  # of a file: sorted by length they make good batches, and output still flows


def input_lines(text: Sequence[str], path: Path | None) -> Iterator[list[str]]:
    """Batches of lines, as large as is at hand."""
    from mt.data.lines import read_available, read_lines

    if text:
        yield [_checked(line, f"argument {number}").replace("\n", " ") for number, line in enumerate(text, 1)]
    elif path is not None and str(path) != "-":
        lines = read_lines(path)
        yield from iter(lambda: list(islice(lines, LINES_AT_ONCE)), [])
    elif sys.stdin.isatty():
        yield from _prompt()
    else:
        with contextlib.suppress(OSError):
            # The other end of a pipe may have left it so; then what has not come yet would look like the end.
            os.set_blocking(sys.stdin.fileno(), True)
        yield from read_available(BufferedReader(FileIO(sys.stdin.fileno(), closefd=False)), "stdin")


def _prompt() -> Iterator[list[str]]:
    while True:
        try:
            print("> ", end="", file=sys.stderr, flush=True)
            yield [_checked(input(), "this line")]
        except UnicodeDecodeError:
            raise InputError("this line: not valid UTF-8") from None
        except EOFError:
            print(file=sys.stderr)
            return


def _checked(line: str, name: str) -> str:
    """The system hands over bytes that are no UTF-8 as lone surrogates."""
    try:
        line.encode()
    except UnicodeEncodeError:
        raise InputError(f"{name}: not valid UTF-8") from None
    return line


def check_output(path: Path | None) -> None:
    """Refuses an output that could not be written in the end, or not under this name.

    Raises:
        InputError: it is a folder, or its name promises compression.
        MachineError: there is no permission to write it.
    """
    if path is None or str(path) == "-":
        return
    from mt.compressed import refuse_compressed
    from mt.outputs import require_writable

    require_writable(path, "--output")
    refuse_compressed(path)


class writer:  # noqa: N801 (reads as the context manager it is)
    """Writes lines to a file that appears when whole, or to stdout at once."""

    def __init__(self, path: Path | None) -> None:
        self._path = None if path is None or str(path) == "-" else path
        self._lines: list[str] = []

    def __enter__(self) -> Callable[[str], None]:
        return self._lines.append if self._path else print_result

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self._path and kind is None:
            from mt import storage

            storage.write_text(self._path, "".join(line + "\n" for line in self._lines))


def print_result(text: str, code: int = 0) -> None:
    """Prints to stdout at once; ends quietly, with an exit code, where the reader (`| head`) has seen enough."""
    try:
        print(text, flush=True)
    except BrokenPipeError:
        # Python flushes stdout again at exit; there it must find somewhere to go.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(code)
