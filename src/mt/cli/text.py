"""Lines of text in and out: arguments, files, standard streams and a prompt."""

import contextlib
import errno
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from io import BufferedReader, FileIO
from pathlib import Path

from mt.errors import InputError
from mt.storage import atomic
from mt.storage.output_path import is_device, refuse_inputs, require_writable
from mt.text.compressed import refuse_compressed
from mt.text.lines import read_available, read_lines, take_block


def check_input(path: Path | None) -> int | None:
    """Return a file's number of lines, None for other input; report invalid UTF-8 before hours of work.

    Raises:
        InputError: the file is missing, or a line is not UTF-8. The lines of a pipe are checked as they arrive.
    """
    if path is not None and str(path) != "-" and not is_device(path):
        return sum(1 for _ in read_lines(path))
    return None


def input_lines(text: Sequence[str], path: Path | None, block_lines: int) -> Iterator[list[str]]:
    """Yield blocks of lines: all arguments, `block_lines` of a file, or as many as have arrived on stdin."""
    if text:
        yield [require_utf8(line, f"argument {number}").replace("\n", " ") for number, line in enumerate(text, 1)]
    elif path is not None and str(path) != "-":
        lines = read_lines(path)
        yield from iter(lambda: take_block(lines, block_lines), [])
    elif sys.stdin.isatty():
        yield from _prompt()
    else:
        with contextlib.suppress(OSError, AttributeError):  # Windows has it from Python 3.12 on
            # The other end of a pipe may have made it non-blocking, and then a pause would look like the end.
            os.set_blocking(sys.stdin.fileno(), True)
        yield from read_available(BufferedReader(FileIO(sys.stdin.fileno(), closefd=False)), "stdin")


def _prompt() -> Iterator[list[str]]:
    with contextlib.suppress(ImportError):  # Windows has a line editor of its own
        import readline  # noqa: F401  (from now on, input() edits lines and remembers them)
    end_key = "Ctrl-Z and Enter" if os.name == "nt" else "Ctrl-D"
    print(f"one line a sentence; {end_key} ends", file=sys.stderr)
    prompt = "> " if sys.stdout.isatty() else ""  # the line editor would erase a prompt that it did not write
    while True:
        try:
            if not prompt:
                print("> ", end="", file=sys.stderr, flush=True)
            yield [require_utf8(input(prompt), "this line")]
        except UnicodeDecodeError:
            raise InputError("this line: not valid UTF-8") from None
        except EOFError:
            print(file=sys.stderr)
            return


def require_utf8(text: str, name: str) -> str:
    """Return a text from the command line; refuse surrogates, which Python puts for bytes that are not UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InputError(f"{name}: not valid UTF-8") from None
    return text


def check_output(path: Path | None, *inputs: Path | None, force: bool) -> None:
    """Refuse, before the work, an --output that could not be written after it; remove a killed command's partial file.

    Raises:
        InputError: it exists and `force` is off, it is a folder or an input, or its name ends as a compressed file's.
        MachineError: no permission to write it.
    """
    if path is None or str(path) == "-":
        return
    require_writable(path, "--output")
    refuse_compressed(path)
    refuse_inputs([path], inputs)
    if not force and path.is_file() and path.stat().st_size:
        raise InputError(f"--output {path}: this file exists", "name another, or overwrite it with --force")
    atomic.remove_partials_of(path)


@contextlib.contextmanager
def writer(path: Path | None) -> Iterator[Callable[[str], None]]:
    """Yield a function that writes lines to stdout at once, or to a file that appears when complete."""
    if path is None or str(path) == "-":
        yield print_result
        return
    with atomic.new_file(path) as write:
        yield lambda line: write(f"{line}\n".encode())


def print_result(text: str, code: int = 0) -> None:
    """Print to stdout and flush; exit quietly with `code` if the reader (`| head`) has closed the pipe."""
    try:
        print(text, flush=True)
    except OSError as error:
        if not isinstance(error, BrokenPipeError) and (sys.platform, error.errno) != ("win32", errno.EINVAL):
            raise  # on Windows, a closed pipe is an invalid argument
        # Python flushes stdout again at exit, which must not fail.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(code)
