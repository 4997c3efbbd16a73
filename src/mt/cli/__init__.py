"""The command line: modules of commands, which parse, call and print.

They import nothing heavy at the top: a command imports what it needs when it runs.
"""

import contextlib
import errno
import os
import signal
import sys
import threading
import traceback
from importlib import import_module
from pathlib import Path

import click

from mt import __version__
from mt.console import harmless, set_up_logging
from mt.errors import InputError, MachineError, MtError, is_disk_full, is_out_of_memory

# Module and function of each command, in the order of `mt --help`
_COMMANDS = {
    "demo": "train:demo",
    "init": "init:init",
    "data": "data:data",
    "train": "train:train",
    "translate": "translate:translate",
    "eval": "evaluate:evaluate_command",
    "compare": "compare:compare",
    "score": "evaluate:score",
    "distill": "synthesis:distill",
    "backtranslate": "synthesis:backtranslate",
    "pipeline": "train:pipeline",
    "runs": "runs:runs_command",
    "report": "runs:report",
    "import": "conversion:import_command",
    "export": "conversion:export_command",
    "serve": "serve:serve",
    "completion": "completion:completion",
}


class _Commands(click.Group):
    """Commands that are imported when they are used, or listed for help."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return super().get_command(ctx, cmd_name)
        module, _, function = _COMMANDS[cmd_name].partition(":")
        command: click.Command = getattr(import_module(f"mt.cli.{module}"), function)
        # The whole first paragraph in `mt --help`, where click would cut it
        command.short_help = " ".join((command.help or "").split("\n\n")[0].split())
        return command


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, message="mt %(version)s")
def app() -> None:
    """Train a machine-translation Transformer from raw parallel text, and use it.

    Try: mt demo --quick && mt translate "I love you very much"
    """
    set_up_logging()


def main() -> None:
    """Run the command line and exit; every failure becomes one sentence and an exit code."""
    _open_closed_streams()
    if os.environ.pop("MT_ENDS_WITH_PARENT", None):  # a step of a pipeline
        threading.Thread(target=_end_with_parent, daemon=True).start()
    # An exception, so that unfinished output is removed, as at Ctrl-C. `train` and `serve` have handlers of their own.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # as under nohup
        signal.signal(signal.SIGHUP, _hang_up)
    for stream in (sys.stdout, sys.stderr):  # UTF-8 whatever the locale, and the same bytes on Windows
        stream.reconfigure(encoding="utf-8", errors="replace", newline="\n")  # type: ignore[union-attr]
    try:
        _check_seed()
        sys.exit(app.main(standalone_mode=False) or 0)
    except click.Abort:  # Ctrl-C
        sys.exit(130)
    except click.ClickException as error:  # wrong usage
        with contextlib.suppress(OSError):  # stderr may be closed; the exit code still reports the failure
            error.show()
        sys.exit(error.exit_code)
    except Exception as error:
        reported = error if isinstance(error, MtError) else _as_known(error)
        with contextlib.suppress(OSError):
            if "--debug" in sys.argv:
                traceback.print_exc()
            print(harmless(f"mt: {reported}"), file=sys.stderr)
        sys.exit(reported.exit_code)


def _hang_up(*_: object) -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # the kernel and the shell send one each
    sys.exit(129)


def _end_with_parent() -> None:
    """End this process at once, as a kill would, at the end of its input: the pipeline that started it has died."""
    while os.read(0, 4096):
        pass
    os._exit(1)


def _check_seed() -> None:
    """Check the seed of sacreBLEU, which reads it only at the end of a training."""
    seed = os.environ.get("SACREBLEU_SEED")
    if seed is not None and not (seed.isdecimal() and int(seed) > 0):
        raise InputError(
            f"SACREBLEU_SEED: {seed!r:.40} is not a whole number above 0", "unset this environment variable"
        )


def _open_closed_streams() -> None:
    """Open the null device for each standard stream that was closed (`<&-`), as no library expects that."""
    null = Path(os.devnull)
    sys.stdin = sys.stdin or null.open(encoding="utf-8")
    sys.stdout = sys.stdout or null.open("w", encoding="utf-8")
    sys.stderr = sys.stderr or null.open("w", encoding="utf-8")


def _as_known(error: Exception) -> MtError:
    if is_out_of_memory(error):
        hint = "lower training.max_tokens, decoding.batch_tokens or the beam, or close other programs"
        return MachineError("out of memory", hint)
    if isinstance(error, OSError):
        name = f"{error.filename}: " if error.filename else ""
        if error.errno == errno.ENAMETOOLONG:
            return InputError(f"{name}the name is too long for a file")
        # The error may be of a temporary file, without a name.
        hint = "free some space, also in the folder of temporary files (TMPDIR)" if is_disk_full(error) else ""
        return MachineError(f"{name}{error.strerror or error}", hint)
    return MtError(f"this is a bug: {type(error).__name__}: {error}", "please report it; --debug shows where")
