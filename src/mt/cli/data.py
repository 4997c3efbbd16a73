"""`mt data check`, `mt data score`, `mt data clean`, `mt data align` and `mt data align-words`."""

import json
from pathlib import Path
from typing import Any

import click

from mt.cli import options
from mt.cli.options import number_option, path_type
from mt.cli.text import check_output, print_result
from mt.console import log, quoted
from mt.errors import InputError, contradict
from mt.extras.doctor.rules import DROPPABLE
from mt.storage import atomic
from mt.storage.output_path import refuse_inputs, require_writable

_reason_type = click.Choice(DROPPABLE)


def _shares(context: click.Context, parameter: click.Parameter, words: tuple[str, ...]) -> dict[int, float] | None:
    """Read shares, each for all sources or for one: 0.8, or 2:0.5."""
    shares: dict[int, float] = {}
    for word in words:
        number, _, share = word.rpartition(":")
        try:
            shares[int(number) if number else 0] = float(share)
        except ValueError:
            raise click.BadParameter(f"'{word}': give a share such as 0.8, or 2:0.5 for the second source") from None
    return shares or None


@click.group()
def data() -> None:
    """Examine and clean the corpora that a configuration names."""


@data.command()
@options.config_options
@options.set_option
@click.option("--examples", type=click.IntRange(0, 1000), default=3, show_default=True, help="Shown of each finding.")
@options.json_option
@click.option("--html", type=path_type, help="Write a web page, too: one self-contained file.")
@click.option("--scores", type=path_type, help="Output of `mt data score`, for the page's map.")
@options.common_options
def check(config: Path, html: Path | None, scores: Path | None, **given: Any) -> int:
    """Report problems in training, validation and test text before training.

    CONFIG is the YAML configuration of a training. Exit code 2 means that a training would refuse the text.

    Example: mt data check mine.yaml --html mine.html
    """
    from mt.api.corpora import in_words
    from mt.config import load_config
    from mt.data.prepare import drop_missing_sources
    from mt.extras.doctor import actions, bitexts, pair_scores, text_report
    from mt.extras.doctor.check import check_corpus

    if html is not None:
        require_writable(html, "--html")
    settings = drop_missing_sources(load_config(config, given["overrides"]))
    inputs = [config, *(path for bitext in bitexts.bitexts_of(settings.data) for path in bitext.inputs())]
    if scores is not None:
        inputs += [scores / pair_scores.TABLE, scores / pair_scores.SUMMARY]
    refuse_inputs([html], inputs)
    judged = None if scores is None else pair_scores.load_scores(scores)
    report = check_corpus(settings, given["runs"], given["examples"], scores=judged)
    arguments = in_words(config, given["overrides"])
    if html is not None:
        from mt.extras.doctor.html_report import html_report

        atomic.write_text(html, html_report(report, arguments))
    code = 2 if report.refused else 0
    if given["as_json"]:
        print_result(json.dumps(text_report.as_json(report, arguments), indent=2, ensure_ascii=False), code)
    else:
        print_result(text_report.text_report(report, arguments), code)
    for action in actions.judge(report, arguments).actions[:1]:
        log.info("next: %s", action.command)
    return code


@data.command()
@options.config_options
@click.option("--output", type=path_type, required=True, help="The folder to write: new, or an earlier cleaning.")
@click.option("--keep", multiple=True, type=_reason_type, metavar="REASON", help="Keep such pairs; may be repeated.")
@click.option("--drop", multiple=True, type=_reason_type, metavar="REASON", help="Drop such pairs; may be repeated.")
@click.option("--max-per-template", type=click.IntRange(1), metavar="N", help="Keep N pairs of each template.")
@click.option("--scores", type=path_type, help="Output of `mt data score`: drop pairs with low scores.")
@number_option("--min-score", help="Lowest score to keep; default: what the scores suggest.")
@click.option(
    "--keep-share",
    multiple=True,
    callback=_shares,
    metavar="[N:]SHARE",
    help="Share to keep, best first, of all sources or of number N in the table of `mt data score`.",
)
@click.option("--by", help="Column of the scores to select by: score (the default), dual, contrast, lexicon, ...")
@click.option("--repair", is_flag=True, help="Fix sentences, and put lines back in step, before judging.")
@options.set_option
@options.common_options
def clean(config: Path, **given: Any) -> None:
    """Write the training text without the pairs that `mt data check` objects to.

    OUTPUT gets two files for each training source, and dropped/REASON.tsv with the dropped pairs. A REASON is the
    name of a finding. With --repair, repaired/REPAIR.tsv has the fixed pairs before and after. Validation and test
    text is not changed.

    With --scores, pairs with low scores are dropped, too.

    Example: mt data clean mine.yaml --output cleaned --drop language --keep identical
    """
    from mt.api.corpora import clean_corpus, in_words
    from mt.data.cleaning import cleaning_table

    cleaned = clean_corpus(config, **given)
    print_result(cleaning_table(cleaned.counts))
    if cleaned.repaired:
        print_result("repaired: " + ", ".join(f"{name} {count:,}" for name, count in cleaned.repaired.items()))
    print_result(f"\nuse it with\n{cleaned.snippet()}")
    if not _is_copy(config):
        arguments = in_words(config, given["overrides"])
        log.info("next: put these sources into %s as data.train, and mt train --config %s", config, arguments)


@data.command()
@options.config_options
@click.option("--forward", multiple=True, type=path_type, help="Model from source to target language.")
@click.option("--backward", multiple=True, type=path_type, help="Model from target to source language.")
@click.option("--train", "trains", is_flag=True, help="Train two small models on the clean part first.")
@click.option("--embeddings", type=path_type, help="Model of sentence-transformers, whose similarity also counts.")
@click.option("--output", type=path_type, required=True, help="The folder to write; the same command resumes.")
@options.set_option
@options.device_option
@options.common_options
def score(config: Path, output: Path, trains: bool, **given: Any) -> None:
    """Score every training pair by models of both directions: is the target a translation of the source?

    OUTPUT gets scores.tsv: for each pair a score (0 is a pair put together at random, higher is better), dual
    conditional cross-entropy (Junczys-Dowmunt 2018), contrast, lexicon coverage, length ratio and the confidence in
    both languages. Several target languages need models for each: the options may be repeated.

    Example: mt data score mine.yaml --train --output scores
    """
    from mt.api.corpora import in_words, score_corpus
    from mt.extras.doctor.html_report import scores_page
    from mt.extras.doctor.pair_scores import load_scores, score_table

    models = {side: given.pop(side) for side in ("forward", "backward")}
    contradict(trains and any(models.values()), "--train", "--forward and --backward")
    if not trains and not all(models.values()):
        raise InputError("--forward or --backward is missing", "give a model of each direction, or --train")
    summary = score_corpus(config, output, **given, **({} if trains else models))
    atomic.write_text(output / "scores.html", scores_page(load_scores(output)))
    print_result(score_table(summary))
    if not _is_copy(config):
        arguments = in_words(config, given["overrides"])
        log.info("next: mt data clean %s --scores %s --output cleaned", arguments, quoted(str(output)))


def _is_copy(config: Path) -> bool:
    """Return True for a configuration that a pipeline wrote for one of its steps, which no one is to edit."""
    return config.parent.name == ".pipeline"


@data.command()
@click.argument("source", type=path_type)
@click.argument("target", type=path_type)
@click.option("--output", type=path_type, required=True, help="The .tsv file to write: source, target and score.")
@number_option(
    "--min-score", help="Leave out pairs with less evidence, in nats; above 0, a pair is likelier than none."
)
@options.force_option
@options.debug_option
def align(source: Path, target: Path, output: Path, min_score: float | None, force: bool) -> None:
    """Pair the sentences of two texts whose lines do not correspond, such as a book in two languages.

    SOURCE and TARGET have a sentence a line, in the same order; some may be merged, split or missing in the other.
    Sentences without a partner are left out.

    Example: mt data align book.en book.fr --output book.tsv
    """
    from mt.config.loading import as_yaml
    from mt.extras.doctor.align_files import align_files

    check_output(output, source, target, force=force)
    if output.suffix != ".tsv":
        raise InputError(f"--output {output}: not the name of a .tsv file", "let it end in .tsv")
    print_result(align_files(source, target, output, min_score))
    source_of_pairs = {"file": str(output), "source_column": "source", "target_column": "target"}
    log.info("next: data.train: %s", as_yaml(source_of_pairs))


@data.command("align-words")
@click.argument("source", type=path_type)
@click.argument("target", type=path_type)
@click.option("--output", type=path_type, required=True, help="The file to write: a line of links for each pair.")
@options.force_option
@options.debug_option
def align_words(source: Path, target: Path, output: Path, force: bool) -> None:
    """Align the words of two texts whose lines are translations of each other.

    OUTPUT has the links of line n in line n, in Pharaoh's format: `0-0 1-2` are the first words of both sides, and the
    source's second with the target's third. Words are what white space separates.

    Example: mt data align-words train.en train.de --output train.links
    """
    from mt.extras.doctor.align_files import write_word_links

    require_writable(output, "--output")
    check_output(output, source, target, force=force)
    print_result(write_word_links(source, target, output))
