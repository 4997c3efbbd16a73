"""`mt completion`, and completions of runs, configurations, languages and fixed values by the Tab key.

Completion has to be fast, so it imports nothing heavy, and silent: on any error it offers nothing.
"""

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import click
from click.shell_completion import CompletionItem

from mt.cli.text import print_result
from mt.errors import MtError
from mt.storage.find_model import find_model
from mt.storage.run_dir import RunDir

Complete = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print the script that makes a shell complete mt's commands, options, runs and configurations.

    \b
    bash: echo 'eval "$(mt completion bash)"' >> ~/.bashrc
    zsh:  echo 'eval "$(mt completion zsh)"' >> ~/.zshrc
    fish: mt completion fish > ~/.config/fish/completions/mt.fish
    """
    from click.shell_completion import get_completion_class

    shell_class = get_completion_class(shell)
    assert shell_class is not None, "click has all three"
    print_result(shell_class(context.find_root().command, {}, "mt", "_MT_COMPLETE").source())


def _runs_or(kind: str) -> Complete:
    """Return a completion of run folders, newest first, or else of any `dir` or `file`."""

    def complete(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
        runs, paths = Path(context.params.get("runs") or "runs"), []
        with contextlib.suppress(OSError):
            named = [path for path in runs.iterdir() if str(path).startswith(incomplete)]
            paths = [path for path in named if os.access(RunDir(path).config, os.R_OK)]  # others may be unreadable
            paths.sort(key=lambda path: -path.stat().st_mtime)
        return [CompletionItem(str(path)) for path in paths] or [CompletionItem(incomplete, type=kind)]

    return complete


run_folders, runs_or_files = _runs_or("dir"), _runs_or("file")


def configurations(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete YAML files in the folder typed so far, or here and in configs/, or else any file."""
    folders = [incomplete[: incomplete.rindex("/") + 1]] if "/" in incomplete else ["", "configs/"]
    names = [name for folder in folders for name in _yaml_files(folder) if name.startswith(incomplete)]
    return [CompletionItem(name) for name in names] or [CompletionItem(incomplete, type="file")]


def _yaml_files(folder: str) -> Iterator[str]:
    with contextlib.suppress(OSError):
        for path in sorted(Path(folder or ".").iterdir()):
            if path.suffix in (".yaml", ".yml"):
                yield f"{folder}{path.name}"


def languages(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete the languages of the model in --model, or of the newest run's."""
    from mt.decoding.settings import TranslationSettings

    with contextlib.suppress(MtError, OSError):
        model = context.params.get("model")
        folder = find_model(model[0] if isinstance(model, tuple) else model, Path(context.params.get("runs") or "runs"))
        settings = TranslationSettings.read(folder.settings)
        codes = settings.target_langs if parameter.name == "to" else settings.source_langs
        return [CompletionItem(code) for code in codes if code.startswith(incomplete)]
    return []


def one_of(*values: str, comma_separated: bool = False) -> Complete:
    """Return a completion of fixed values, or of a comma-separated list of distinct ones."""

    def complete(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
        before, comma, typed = incomplete.rpartition(",") if comma_separated else ("", "", incomplete)
        unused = [value for value in values if value not in before.split(",")]
        return [CompletionItem(f"{before}{comma}{value}") for value in unused if value.startswith(typed)]

    return complete
