"""Questions that `mt init` asks on a terminal."""

from pathlib import Path

import click


def ask_minutes() -> float | None:
    """Ask for the time of the training; None: no limit."""
    question = "Minutes that training may take (at least 1; 0: no limit)"
    minutes = -1.0
    while not (minutes == 0 or minutes >= 1):  # nan, too, is asked for again
        minutes = float(click.prompt(question, 0, type=click.FloatRange(0, 10_000_000), err=True))
    return minutes or None


def ask_texts(question: str, optional: bool = False) -> tuple[str, ...]:
    """Ask for two texts, or one file or folder of both, until they exist; the answer to an optional one may be none."""
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
