"""`mt compare`."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from mt.cli import options
from mt.cli.completion import runs_or_files
from mt.cli.options import ENGINE_OPTIONS, path_type
from mt.cli.text import print_result
from mt.console import has_colour
from mt.errors import InputError

_METRICS = ("bleu", "chrf", "ter")
# With fewer no difference can be significant; more add no precision.
_RESAMPLINGS = click.IntRange(20, 1_000_000)


@click.command()
@click.argument("systems", metavar="RUN_A RUN_B [RUN_C ...]", type=path_type, nargs=-1, shell_complete=runs_or_files)
@options.metrics_option(*_METRICS)
@click.option("--source", type=path_type, help="Translate this text with all models, instead of stored translations.")
@click.option("--reference", type=path_type, help="Its translation, aligned by line; enough where all are plain files.")
@click.option("--test-set", default="test", show_default=True, help="Name of the files in the runs' eval/.")
@click.option("--method", help="greedy, beam, ...; default: beam where all runs have it.")
@click.option("--from", "source_lang", metavar="LANG", help="Compare from this language only.")
@click.option("--to", metavar="LANG", help="Compare in this language only.")
@click.option("--sentences", type=click.IntRange(min=0), default=5, show_default=True, help="Shown in each direction.")
@click.option("--samples", type=_RESAMPLINGS, default=1000, show_default=True, help="Bootstrap resamplings.")
@click.option("--trials", type=_RESAMPLINGS, default=10_000, show_default=True, help="Randomisation trials.")
@options.json_option
@options.engine_options
@options.common_options
def compare(
    systems: tuple[Path, ...], metrics: tuple[str, ...], source: Path | None, reference: Path | None, **given: Any
) -> None:
    """Compare systems on one test set: is one significantly better, and in which sentences do they differ?

    Each is a run folder, a model folder, or a file of translations; the first is the baseline.

    Example: mt compare runs/a runs/b
    """
    if len(systems) < 2:
        raise InputError("a comparison needs at least two systems", "mt compare RUN_A RUN_B")
    if source is not None and reference is None:
        raise InputError("--source needs --reference", "give the translation of the source, too")
    if reference is not None and given["test_set"] != "test":
        raise InputError("--test-set is for what runs have in eval/, and --reference brings its own", "leave one out")
    for name in ENGINE_OPTIONS if source is None else ():
        if given[name] not in ("auto", None):
            message = f"{options.spelled(name)} is for translating --source"
            raise InputError(message, "leave it out, or give --source and --reference")
    from mt.extras.comparison.results import compare as compare_translations
    from mt.extras.comparison.results import comparison_json, comparison_text
    from mt.extras.comparison.systems import new_translations, stored_translations

    runs, method, languages = given["runs"], given["method"], (given["source_lang"], given["to"])
    if reference is None:
        comparisons = stored_translations(systems, runs, given["test_set"], method, languages)
    else:
        engine = options.engine_choice(given)
        comparisons = [new_translations(systems, runs, source, reference, method, languages, engine)]
    counts = given["samples"], given["trials"], given["sentences"]
    results = [compare_translations(comparison, metrics or _METRICS, *counts) for comparison in comparisons]
    if given["as_json"]:
        print_result(json.dumps(comparison_json(results), ensure_ascii=False))
    else:
        print_result("\n\n".join(comparison_text(result, _marks()) for result in results))


def _marks() -> tuple[Callable[[str], str], Callable[[str], str]]:
    """Return two functions, which mark the words that only the first or only the second translation has."""
    if has_colour(sys.stdout):
        return lambda text: click.style(text, fg="red"), lambda text: click.style(text, fg="green")
    return lambda text: f"[-{text}-]", lambda text: f"{{+{text}+}}"
