"""Lines in and lines out."""

import contextlib
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from io import BufferedReader, FileIO
from itertools import islice
from pathlib import Path

from mt.errors import InputError
from mt.storage.output_path import is_device, refuse_inputs, require_writable

LINES_AT_ONCE = 4000  # of a file: sorted by length they make good batches, and output still flows


def check_input(path: Path | None) -> None:
    """Reads a file to its end, so that a line that is no UTF-8 is told before hours of work and not after.

    Raises:
        InputError: it is missing, or a line of it is not UTF-8. Of a pipe it is told when it comes.
    """
    if path is not None and str(path) != "-" and not is_device(path):
        from mt.text.lines import read_lines

        for _ in read_lines(path):
            pass


def input_lines(text: Sequence[str], path: Path | None, at_once: int = LINES_AT_ONCE) -> Iterator[list[str]]:
    """Batches of lines, as large as is at hand; of a file `at_once`."""
    from mt.text.lines import read_available, read_lines

    if text:
        yield [checked(line, f"argument {number}").replace("\n", " ") for number, line in enumerate(text, 1)]
    elif path is not None and str(path) != "-":
        lines = read_lines(path)
        yield from iter(lambda: list(islice(lines, at_once)), [])
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
            yield [checked(input(), "this line")]
        except UnicodeDecodeError:
            raise InputError("this line: not valid UTF-8") from None
        except EOFError:
            print(file=sys.stderr)
            return


def checked(line: str, name: str) -> str:
    """The system hands over bytes that are no UTF-8 as lone surrogates."""
    try:
        line.encode()
    except UnicodeEncodeError:
        raise InputError(f"{name}: not valid UTF-8") from None
    return line


def check_output(path: Path | None, *inputs: Path | None) -> None:
    """Refuses an output that could not be written in the end, or not under this name.

    Raises:
        InputError: it is a folder or one of the inputs, or its name promises compression.
        MachineError: there is no permission to write it.
    """
    if path is None or str(path) == "-":
        return
    from mt.text.compressed import refuse_compressed

    require_writable(path, "--output")
    refuse_compressed(path)
    refuse_inputs([path], inputs)


@contextlib.contextmanager
def writer(path: Path | None) -> Iterator[Callable[[str], None]]:
    """Writes lines to a file that appears when whole, or to stdout at once."""
    if path is None or str(path) == "-":
        yield print_result
        return
    from mt.storage import atomic

    with atomic.new_file(path) as write:
        yield lambda line: write(f"{line}\n".encode())


def print_result(text: str, code: int = 0) -> None:
    """Prints to stdout at once; ends quietly, with an exit code, where the reader (`| head`) has seen enough."""
    try:
        print(text, flush=True)
    except BrokenPipeError:
        # Python flushes stdout again at exit; there it must find somewhere to go.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(code)
