"""What a shell offers at the Tab key, beside the names of commands and options, which click knows.

It has to be quick, so nothing heavy is imported, and silent: whatever goes wrong, it offers nothing.
"""

import contextlib
from collections.abc import Callable
from pathlib import Path

import click
from click.shell_completion import CompletionItem

Complete = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]


def run_folders(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Runs, the newest first; other folders where none begins so."""
    from mt.storage.run_dir import RunDir

    found: list[Path] = []
    with contextlib.suppress(OSError):
        runs = Path(context.params.get("runs") or "runs")
        begun = [path for path in runs.iterdir() if str(path).startswith(incomplete)]
        found = sorted(
            (path for path in begun if RunDir(path).config.is_file()), key=lambda path: -path.stat().st_mtime
        )
    return [CompletionItem(str(path)) for path in found] or [CompletionItem(incomplete, type="dir")]


def runs_or_files(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Runs; files and folders where none begins so."""
    found = run_folders(context, parameter, incomplete)
    return [CompletionItem(incomplete, type="file")] if found[0].type == "dir" else found


def configurations(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """YAML files here, in configs/, or in the folder that is begun; any file where none begins so."""
    begun = incomplete.rpartition("/")[0] + "/" if "/" in incomplete else ""
    names: list[str] = []
    with contextlib.suppress(OSError):
        for folder in (begun, *(["configs/"] if not begun else [])):
            inside = sorted(Path(folder or ".").iterdir()) if Path(folder or ".").is_dir() else []
            names += [f"{folder}{path.name}" for path in inside if path.suffix in (".yaml", ".yml")]
    found = [CompletionItem(name) for name in names if name.startswith(incomplete)]
    return found or [CompletionItem(incomplete, type="file")]


def languages(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The languages that the model translates into: that of --model, or the newest run's."""
    from mt.decoding.settings import TranslationSettings
    from mt.errors import MtError
    from mt.storage.find_model import find_model

    with contextlib.suppress(MtError, OSError):
        given = context.params.get("models") or (context.params.get("model"),)
        folder = find_model(given[0], Path(context.params.get("runs") or "runs"))
        codes = TranslationSettings.read(folder.settings).target_langs
        return [CompletionItem(code) for code in codes if code.startswith(incomplete)]
    return []


def among(*values: str, between_commas: bool = False) -> Complete:
    """Some values; or a list of them, each once."""

    def complete(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
        before, comma, begun = incomplete.rpartition(",") if between_commas else ("", "", incomplete)
        left = [value for value in values if value not in before.split(",")]
        return [CompletionItem(f"{before}{comma}{value}") for value in left if value.startswith(begun)]

    return complete
