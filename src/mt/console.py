"""What the user sees while waiting: log lines, progress bars and tables. All of it goes to stderr."""

import contextlib
import logging
import re
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tqdm import tqdm

log = logging.getLogger("mt")

# Control characters but tab and line feed, other ends of lines, changes of the direction of writing, and halves of
# surrogate pairs. Spaces of every kind and joiners stay: they are part of many languages' text.
_COMMANDS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


class _TqdmHandler(logging.Handler):
    """Writes log lines above a running progress bar instead of through it."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            line = harmless(self.format(record))
        except Exception:  # nor must a mistake in the text of a line
            return self.handleError(record)
        # A reader that went away (`| head`) or a full disk under the log must not end a training.
        with contextlib.suppress(OSError):
            # Without tqdm there is no bar; importing it would take as long as a short translation.
            if "tqdm" in sys.modules:
                sys.modules["tqdm"].tqdm.write(line, file=sys.stderr)
            else:
                print(line, file=sys.stderr)
            sys.stderr.flush()


def harmless(text: str) -> str:
    """Somebody else's text for a terminal: what could command it, or turn its lines around, is spelt out."""
    return _COMMANDS.sub(lambda found: f"⟨U+{ord(found[0]):04X}⟩", text)


def set_up_logging(verbose: bool = False) -> None:
    handler = _TqdmHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s", "%H:%M:%S"))
    log.handlers[:] = [handler]
    log.setLevel(logging.DEBUG if verbose else logging.INFO)
    log.propagate = False


def progress(**options: Any) -> "tqdm[Any]":
    """A tqdm bar on stderr that shows itself on a terminal only."""
    from tqdm import tqdm

    shown = sys.stderr.isatty() and log.isEnabledFor(logging.INFO)
    return tqdm(file=sys.stderr, disable=not shown, dynamic_ncols=True, leave=False, **options)


def table(header: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """A plain text table: the first column to the left, the others to the right.

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


def duration(seconds: float) -> str:
    """Seconds as a person says them: `42 s`, `3 min 05 s`, `2 h 07 min`."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"
