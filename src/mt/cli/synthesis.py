"""`mt distill` and `mt backtranslate`: training text that a model writes."""

from typing import Any

import click

from mt.cli import options
from mt.cli.options import path_type
from mt.cli.text import check_output, print_result
from mt.errors import InputError, contradict
from mt.text.languages import BACK_TRANSLATION_TAG

_file_options = options.option_group(
    click.option("--input", "source", type=path_type, required=True, help="The text to translate."),
    click.option("--output", type=path_type, required=True, help="The file to write, aligned by line."),
    options.force_option,
    click.option("--greedy", is_flag=True, help="Greedy search: a beam of one, and much faster."),
)


@click.command()
@_file_options
@click.option("--closest-to", "references", type=path_type, help="References: of the n best, take the most similar.")
@click.option("--n-best", type=click.IntRange(1, 1000), help="With --closest-to: how many; default: the whole beam.")
@options.model_options
def distill(**given: Any) -> None:
    """Translate training text with a teacher, for a student (Kim and Rush 2016); the same command resumes.

    The translations are often easier to learn than the references. List both as sources of a configuration:
    train: [{source: train.en, target: train.de}, {source: train.en, target: train.distilled.de, synthetic: true}]

    With --closest-to, each line gets the one of the teacher's n best translations that is most similar to the
    reference, by sentence BLEU ("sequence-level interpolation" in their paper).

    Example: mt distill --model runs/teacher --input train.en --output train.distilled.de
    """
    if given["references"] is None and given["n_best"] is not None:
        raise InputError("--n-best belongs to --closest-to", "add --closest-to FILE, or leave it out")
    contradict(given["greedy"] and given["references"] is not None, "--greedy", "--closest-to")
    _synthesize(given)


@click.command()
@_file_options
@click.option(
    "--tag", default=BACK_TRANSLATION_TAG, show_default=True, help="Tag before every translation; '' for none."
)
@options.model_options
def backtranslate(**given: Any) -> None:
    """Translate monolingual target text back with a model of the opposite direction; the same command resumes.

    The result is the source side of pairs: train: [..., {source: mono.bt.en, target: mono.de, synthetic: true}]. The
    tag lets a model distinguish it from human text (Caswell et al. 2019). --sample makes more varied sources than
    search does (Edunov et al. 2018).

    Example: mt backtranslate --model runs/de-en --input mono.de --output mono.bt.en --sample
    """
    _synthesize(given)


def _synthesize(given: dict[str, Any]) -> None:
    request = options.pop_search(given, given.get("n_best") or 1)
    # Unfinished work is in a hidden file: an interrupted command resumes without --force.
    check_output(given["output"], given["source"], given.get("references"), force=given.pop("force"))
    from mt.api.synthesis import synthesize

    lines = synthesize(**given, request=request)
    print_result(f"{given['output']}: {lines:,} lines")
