"""The command line: parse, call, print. The only place that prints results, reads the environment, and exits.

A command's module imports nothing heavy; what it needs it imports when it runs.
"""

import contextlib
import os
import signal
import sys
import traceback
from pathlib import Path

import click

from mt.cli.compare import compare
from mt.cli.completion import completion
from mt.cli.data import data
from mt.cli.evaluate import evaluate_command
from mt.cli.export import export
from mt.cli.init import init
from mt.cli.report import report
from mt.cli.score import score
from mt.cli.serve import serve
from mt.cli.synthesis import backtranslate, distill
from mt.cli.train import train
from mt.cli.translate import translate
from mt.console import harmless, set_up_logging
from mt.errors import InputError, MachineError, MtError, is_out_of_memory


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def app() -> None:
    """Train a machine-translation Transformer from raw parallel text, and use it.

    Try: mt train --config configs/demo.yaml && mt translate "I love you very much"
    """


_COMMANDS = (
    *(init, data, train, translate, evaluate_command, compare, score, distill, backtranslate, report, export, serve),
)
for _command in (*_COMMANDS, completion):
    app.add_command(_command)


def main() -> None:
    """Runs the command line; every failure becomes one sentence and an exit code."""
    set_up_logging()
    _open_closed_streams()
    # What is half made is cleared away, as at Ctrl-C. Training and serving end in ways of their own.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    # Text is UTF-8 whatever the locale, as everywhere else in this project.
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(encoding="utf-8", errors="replace")  # type: ignore[union-attr]
    try:
        _check_seed()
        sys.exit(app.main(standalone_mode=False) or 0)
    except click.Abort:  # Ctrl-C
        sys.exit(130)
    except click.ClickException as error:  # wrong usage
        error.show()
        sys.exit(error.exit_code)
    except Exception as error:
        if "--debug" in sys.argv:
            traceback.print_exc()
        known = error if isinstance(error, MtError) else _as_known(error)
        with contextlib.suppress(OSError):  # nobody reads it; the exit code still says it
            print(harmless(f"mt: {known}"), file=sys.stderr)
        sys.exit(known.exit_code)


def _check_seed() -> None:
    """sacreBLEU reads its seed from the environment, at the end of a training for the first time."""
    seed = os.environ.get("SACREBLEU_SEED")
    if seed is not None and not (seed.isdecimal() and int(seed) > 0):
        raise InputError(
            f"SACREBLEU_SEED: {seed!r:.40} is no whole number above 0", "unset this variable of the environment"
        )


def _open_closed_streams() -> None:
    """Puts an empty device where a standard stream was closed (`<&-`); nothing else looks for that."""
    nothing = Path(os.devnull)
    sys.stdin = sys.stdin or nothing.open(encoding="utf-8")
    sys.stdout = sys.stdout or nothing.open("w", encoding="utf-8")
    sys.stderr = sys.stderr or nothing.open("w", encoding="utf-8")


def _as_known(error: Exception) -> MtError:
    if is_out_of_memory(error):
        hint = "lower training.max_tokens, decoding.batch_tokens or the beam, or close other programs"
        return MachineError("out of memory", hint)
    if isinstance(error, OSError):
        name = f"{error.filename}: " if error.filename else ""
        return MachineError(f"{name}{error.strerror or error}")
    return MtError(f"this is a bug: {type(error).__name__}: {error}", "please report it; --debug shows where")
