"""`mt compare`."""

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

import click

from mt.cli.completing import runs_or_files
from mt.cli.options import (
    ENGINE_NAMES,
    debug_option,
    engine_choice,
    engine_options,
    metrics_option,
    path_type,
    runs_option,
)
from mt.cli.text import print_result
from mt.console import set_up_logging
from mt.errors import InputError

_RESAMPLINGS = click.IntRange(2, 1_000_000)  # more say no more, and fill the memory


@click.command()
@click.argument("systems", metavar="RUN_A RUN_B [RUN_C ...]", type=path_type, nargs=-1, shell_complete=runs_or_files)
@metrics_option("bleu", "chrf", "ter")
@click.option("--source", type=path_type, help="Translate this text with all models instead of what runs have stored.")
@click.option("--reference", type=path_type, help="Its translation, aligned by line; enough where all are plain files.")
@click.option("--test-set", default="test", show_default=True, help="Name of the files in the runs' eval/.")
@click.option("--method", help="greedy, beam, ...; default: beam where all runs have it.")
@click.option("--to", metavar="LANG", help="Compare in this language only.")
@click.option("--sentences", type=click.IntRange(min=0), default=5, show_default=True, help="Shown in each direction.")
@click.option("--samples", type=_RESAMPLINGS, default=1000, show_default=True, help="Of bootstrap resampling.")
@click.option("--trials", type=_RESAMPLINGS, default=10_000, show_default=True, help="Of randomisation.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of tables.")
@engine_options
@runs_option
@debug_option
def compare(
    systems: tuple[Path, ...],
    metrics: tuple[str, ...],
    source: Path | None,
    reference: Path | None,
    test_set: str,
    method: str | None,
    to: str | None,
    sentences: int,
    samples: int,
    trials: int,
    as_json: bool,
    runs: Path,
    verbose: bool,
    **given: str,
) -> None:
    """Compare systems on the same test set: is one better, or is it chance? And where do they differ?

    Each is a run folder, a model folder, or a file of translations; the first is what the others are compared with.

    Example: mt compare runs/a runs/b
    """
    set_up_logging(verbose)
    if len(systems) < 2:
        raise InputError("a comparison needs at least two systems", "mt compare RUN_A RUN_B")
    if source is not None and reference is None:
        raise InputError("--source needs --reference", "give the translation of the source, too")
    if reference is not None and test_set != "test":
        raise InputError("--test-set is for what runs have in eval/, and --reference brings its own", "leave one out")
    if source is None:
        _refuse_engine(given)
    from mt.extras.comparison.results import compare as test
    from mt.extras.comparison.results import comparison_json, comparison_text
    from mt.extras.comparison.systems import new_translations, stored_translations

    chosen = metrics or ("bleu", "chrf", "ter")
    if reference is None:
        comparisons = stored_translations(systems, runs, test_set, method, to)
    else:
        choice = engine_choice({**given, "sample": False})
        comparisons = [new_translations(systems, runs, source, reference, method, to, choice)]
    compared = [test(comparison, chosen, samples, trials) for comparison in comparisons]
    if as_json:
        print_result(json.dumps(comparison_json(compared, sentences), ensure_ascii=False))
    else:
        print_result("\n\n".join(comparison_text(one, sentences, _marks()) for one in compared))


def _refuse_engine(given: dict[str, str]) -> None:
    """Where nothing is translated, options on how to translate are a mistake."""
    for name in ENGINE_NAMES:
        if given[name] not in ("auto", None):
            raise InputError(
                f"--{name.replace('_', '-')} is for what --source has translated",
                "leave it out, or give --source and --reference",
            )


def _marks() -> tuple[Callable[[str], str], Callable[[str], str]]:
    """How to mark what one translation has and the other lacks."""
    if sys.stdout.isatty() and not os.environ.get("NO_COLOR"):
        return lambda text: click.style(text, fg="red"), lambda text: click.style(text, fg="green")
    return lambda text: f"[-{text}-]", lambda text: f"{{+{text}+}}"
