"""Input of `mt init`: options for texts, which take one name or two, and questions on a terminal."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from mt.data.paired_texts import names_in
from mt.errors import InputError

_TEXTS = ("--train", "--valid", "--test", "--general")


def as_texts(context: click.Context, parameter: click.Parameter, value: Any) -> Any:
    """Split what `InitCommand` has joined: one file or folder of both languages, or a text and its translation."""
    given = value if parameter.multiple else [] if value is None else [value]
    texts = [tuple(joined.split("\0")) for joined in given]
    for names in texts:
        if len(names) > 2 or not all(names):
            raise click.BadParameter("give a text and its translation, or one file or folder of both")
    return texts if parameter.multiple else next(iter(texts), None)


class InitCommand(click.Command):
    """A command whose options in `_TEXTS` take all words up to the next option; click's take a fixed number."""

    def parse_args(self, context: click.Context, arguments: list[str]) -> list[str]:
        joined: list[str] = []
        takes_words, separator = False, ""
        for word in arguments:
            option = word.partition("=")[0]
            if takes_words and not word.startswith("-"):
                joined[-1] += separator + word
                separator = "\0"
                continue
            takes_words, separator = option in _TEXTS, "" if option == word else "\0"
            if takes_words and option != "--train" and any(other.partition("=")[0] == option for other in joined):
                raise click.UsageError(f"{option} can be given only once")
            joined.append(f"{word}=" if takes_words and option == word else word)
        return super().parse_args(context, joined)


def files_of(names: Sequence[str]) -> Iterator[Path]:
    """Yield files, and those in folders."""
    for path in map(Path, names):
        yield from (path / name for name in names_in(path)) if path.is_dir() else (path,)


def refuse_unused_style(given: Mapping[str, Any], names: Sequence[str]) -> None:
    """Refuse options for the format of tables if none of the files is such a table."""
    from mt.config.sources import STYLES, TABLES, file_kind

    for key, kinds in {"columns": TABLES, **STYLES}.items():
        if given[key] is not None and not any(file_kind(name) in kinds for name in names):
            option = f"--no-{key}" if given[key] is False else f"--{key}"
            raise InputError(f"{option} is for {', '.join(kinds)} files, and none is given", "leave it out")


def ask_minutes() -> float | None:
    """Ask for the time of the training; None: no limit."""
    question = "Minutes that training may take (at least 1; 0: no limit)"
    minutes = -1.0
    while not (minutes == 0 or minutes >= 1):  # also asks again after nan
        minutes = float(click.prompt(question, 0, type=click.FloatRange(0, 10_000_000), err=True))
    return minutes or None


def ask_texts(question: str, optional: bool = False) -> tuple[str, ...]:
    """Ask for two texts, or one file or folder of both, until they exist; an `optional` text may be left empty."""
    from mt.config.sources import file_kind

    first = _ask_file(question.format("in the source language, or with both"), optional)
    if not first or Path(first).is_dir() or file_kind(first):
        return (first,) if first else ()
    return first, _ask_file(question.format("its translation"), other=first)


def _ask_file(question: str, optional: bool = False, other: str = "") -> str:
    def existing(answer: str) -> str:
        if answer and not Path(answer).exists():
            raise click.UsageError(f"{answer}: no such file")
        if answer and answer == other:
            raise click.UsageError(f"{answer}: that is the file in the source language")
        return answer

    return str(click.prompt(question, "" if optional else None, value_proc=existing, show_default=False, err=True))


def ask_value(key: str, question: str, default: str | None) -> str:
    """Ask until the answer is valid for a key of the configuration."""

    def valid(answer: str) -> str:
        from mt.extras.planning.init_options import option_error

        if problem := option_error(key, answer):
            raise click.UsageError(f"{answer}: {problem}")
        return answer

    return str(click.prompt(question, default, value_proc=valid, err=True))
