"""Terminal output: log lines, progress bars and tables, all on stderr."""

import contextlib
import logging
import os
import re
import shlex
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tqdm import tqdm

log = logging.getLogger("mt")

# Control characters but tab and line feed, other line separators, bidirectional controls, lone surrogates. Spaces and
# joiners of every kind are part of many languages' text.
_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


class _TqdmHandler(logging.Handler):
    """A handler that writes log lines above a running progress bar."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            line = harmless(self.format(record))
            if record.levelno >= logging.WARNING and has_colour(sys.stderr):
                line = f"\x1b[33m{line}\x1b[0m"
        except Exception:  # a malformed log line must not end a training
            return self.handleError(record)
        # Nor must a closed pipe (`| head`) or a full disk under the log.
        with contextlib.suppress(OSError):
            # Without tqdm there is no bar, and importing it takes as long as a short translation.
            if "tqdm" in sys.modules:
                sys.modules["tqdm"].tqdm.write(line, file=sys.stderr)
            else:
                print(line, file=sys.stderr)
            sys.stderr.flush()


def harmless(text: str) -> str:
    """Escape the control characters of foreign text for a terminal."""
    return _CONTROLS.sub(lambda match: f"⟨U+{ord(match[0]):04X}⟩", text)


def quoted(*words: str) -> str:
    """Return the words of a command quoted for this system's shell."""
    return subprocess.list2cmdline(words) if os.name == "nt" else shlex.join(words)


def has_colour(stream: Any) -> bool:
    """Return True for a terminal whose user has not set NO_COLOR (https://no-color.org)."""
    return bool(stream.isatty()) and not os.environ.get("NO_COLOR")


def set_up_logging(verbose: bool = False) -> None:
    handler = _TqdmHandler(logging.DEBUG if verbose else logging.INFO)
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s", "%H:%M:%S"))
    log.handlers[:] = [handler]
    log.setLevel(handler.level)
    log.propagate = False


# The open log files of trainings, which threads may run at once; closing the last one restores the log's settings.
_open_files, _saved_settings, _lock = list[logging.Handler](), contextlib.ExitStack(), threading.Lock()


@contextlib.contextmanager
def logged_to(path: Path) -> Iterator[None]:
    """Append everything that is logged in the `with` block to a file, also debug messages that the terminal lacks.

    A log that cannot be written must not end a training: it is left out with a warning.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handler = logging.FileHandler(path, encoding="utf-8", errors="replace", delay=False)
    except OSError as error:
        log.warning("%s: cannot be written, so there is no log file: %s", path, error.strerror or error)
        yield
        return
    handler.handleError = lambda record: None  # type: ignore[method-assign]  # a full disk is reported elsewhere
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    with _lock:
        if not _open_files:
            _log_all_levels()
        _open_files.append(handler)
        log.addHandler(handler)
    try:
        yield
    finally:
        with _lock:
            _open_files.remove(handler)
            log.removeHandler(handler)
            if not _open_files:
                _saved_settings.close()
        with contextlib.suppress(OSError):  # closing flushes lines that a full disk did not take
            handler.close()


def _log_all_levels() -> None:
    """Lower the log's level to DEBUG; handlers of the root logger get no more records than before."""
    _saved_settings.callback(log.setLevel, log.level)
    if log.propagate:  # records pass to the root logger's handlers whatever its level
        to_root = logging.Handler(log.getEffectiveLevel())
        to_root.emit = logging.getLogger().callHandlers  # type: ignore[method-assign]
        log.addHandler(to_root)
        _saved_settings.callback(log.removeHandler, to_root)
        _saved_settings.callback(setattr, log, "propagate", True)
    log.propagate = False
    log.setLevel(logging.DEBUG)


def progress(**options: Any) -> "tqdm[Any]":
    """Return a tqdm bar on stderr, shown on a terminal only, and only on one that knows its width."""
    from tqdm import tqdm

    shown = log.isEnabledFor(logging.INFO) and _columns(sys.stderr) > 0
    return tqdm(file=sys.stderr, disable=not shown, dynamic_ncols=True, leave=False, **options)


def _columns(stream: Any) -> int:
    """Return the width of a terminal; 0 for other streams, which may be None or have no more than `write`."""
    try:
        return os.get_terminal_size(stream.fileno()).columns if stream.isatty() else 0
    except (AttributeError, OSError, ValueError):  # IDLE's has no file descriptor, and a closed one fails
        return 0


def table(header: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Format a plain text table, first column left-aligned, others right-aligned.

    >>> print(table(["pairs", "count"], [["kept", 7]]))
    pairs  count
    kept       7
    """
    cells = [[str(cell) for cell in row] for row in [header, *rows]]
    widths = [max(len(row[column]) for row in cells) for column in range(len(header))]
    lines = []
    for row in cells:
        others = (cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))
        lines.append("  ".join([row[0].ljust(widths[0]), *others]).rstrip())
    return "\n".join(lines)


def or_dash(value: float | None, form: str = ".1f") -> str:
    """Format a number of a table; one that is missing is `-`."""
    return "-" if value is None else format(value, form)


def shortened(text: str, width: int = 40) -> str:
    """Return a text, cut to at most `width` characters.

    >>> shortened("one two three", 8)
    'one two…'
    """
    return text if len(text) <= width else f"{text[: width - 1].rstrip()}…"


def duration(seconds: float) -> str:
    """Format seconds as `42 s`, `3 min 05 s`, `2 h 07 min`."""
    rounded = round(seconds)
    if rounded < 60:
        return f"{rounded} s"
    if rounded < 3600:
        return f"{rounded // 60} min {rounded % 60:02d} s"
    return f"{rounded // 3600} h {rounded % 3600 // 60:02d} min"
