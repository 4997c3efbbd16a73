"""`mt data check`, `mt data clean` and `mt data align`."""

from pathlib import Path

import click

from mt.cli.options import (
    config_options,
    debug_option,
    force_option,
    json_option,
    path_type,
    runs_option,
    set_option,
)
from mt.cli.text import check_output, print_result
from mt.console import log
from mt.errors import InputError
from mt.extras.doctor.rules import DROPPABLE

_reason_type = click.Choice(DROPPABLE)


@click.group()
def data() -> None:
    """Examine and clean the corpora that a configuration names."""


@data.command()
@config_options
@set_option
@click.option("--examples", type=click.IntRange(0, 1000), default=3, show_default=True, help="Shown of each finding.")
@json_option
@click.option("--html", type=path_type, help="Write a web page, too: one self-contained file.")
@runs_option
@debug_option
def check(config: Path, overrides: tuple[str, ...], examples: int, as_json: bool, html: Path | None, runs: Path) -> int:
    """Report problems in training, validation and test text before training.

    CONFIG is the YAML configuration of a training. Exit code 2 means that a training would refuse the text.

    Example: mt data check mine.yaml --html mine.html
    """
    import json
    from shlex import quote

    from mt.config import load_config
    from mt.data.prepare import drop_missing_sources
    from mt.extras.doctor.bitexts import bitexts_of
    from mt.extras.doctor.check import check_corpus
    from mt.extras.doctor.text_report import as_json as json_report
    from mt.extras.doctor.text_report import text_report
    from mt.storage import atomic
    from mt.storage.output_path import refuse_inputs, require_writable

    if html is not None:
        require_writable(html, "--html")
    settings = drop_missing_sources(load_config(config, overrides))
    refuse_inputs([html], [config, *(Path(name) for bitext in bitexts_of(settings.data) for name in bitext.files)])
    report = check_corpus(settings, runs, examples)
    if html is not None:
        from mt.extras.doctor.html_report import html_report

        atomic.write_text(html, html_report(report))
    code = 2 if report.refused else 0
    document = json.dumps(json_report(report), indent=2, ensure_ascii=False) if as_json else text_report(report)
    print_result(document, code)
    named = f"--config {quote(str(config))}"
    log.info("next: %s", f"correct it, and mt data check {named}" if code else f"mt train {named}")
    return code


@data.command()
@config_options
@click.option("--output", type=path_type, required=True, help="The folder to write: new, or an earlier cleaning.")
@click.option("--keep", multiple=True, type=_reason_type, metavar="REASON", help="Keep such pairs; may be repeated.")
@click.option("--drop", multiple=True, type=_reason_type, metavar="REASON", help="Drop such pairs; may be repeated.")
@click.option("--repair", is_flag=True, help="Fix mojibake, entities and invisible characters before judging.")
@set_option
@runs_option
@debug_option
def clean(
    config: Path,
    output: Path,
    keep: tuple[str, ...],
    drop: tuple[str, ...],
    repair: bool,
    overrides: tuple[str, ...],
    runs: Path,
) -> None:
    """Write the training text without the pairs that `mt data check` objects to.

    OUTPUT gets two files for each training source, and dropped/REASON.tsv with the dropped pairs. A REASON is the
    name of a finding. With --repair, repaired/REPAIR.tsv has the fixed pairs before and after. Validation and test
    text is not changed.

    Example: mt data clean mine.yaml --output cleaned --drop language --keep identical
    """
    from shlex import quote

    from mt.config import load_config
    from mt.data.cleaning import cleaning_table
    from mt.data.prepare import drop_missing_sources
    from mt.extras.doctor.check import check_corpus
    from mt.extras.doctor.clean import check_output as check_folder
    from mt.extras.doctor.clean import dropping_rules, write_clean
    from mt.extras.doctor.repair import require_ftfy

    settings = drop_missing_sources(load_config(config, overrides))
    keeps_duplicates = not settings.data.drop_duplicates and "duplicate" not in drop
    dropped_for = dropping_rules({*keep, "duplicate"} if keeps_duplicates else keep, drop)
    check_folder(output, settings.data, config)
    if repair:
        require_ftfy()
    report = check_corpus(settings, runs, 1, dropped_for, repair)
    cleaned = write_clean(report, output, dropped_for)
    print_result(cleaning_table(cleaned.counts))
    if cleaned.repaired:
        print_result("repaired: " + ", ".join(f"{name} {count:,}" for name, count in cleaned.repaired.items()))
    print_result(f"\nuse it with\n{cleaned.snippet(settings.data.root)}")
    log.info("next: put these sources into %s as data.train, and mt train --config %s", config, quote(str(config)))


@data.command()
@click.argument("source", type=path_type)
@click.argument("target", type=path_type)
@click.option("--output", type=path_type, required=True, help="The .tsv file to write: source, target and score.")
@click.option("--min-score", type=float, help="Leave out pairs of less evidence, in nats; above 0: rather a pair.")
@force_option
@debug_option
def align(source: Path, target: Path, output: Path, min_score: float | None, force: bool) -> None:
    """Pair the sentences of two texts whose lines do not correspond, such as a book in two languages.

    SOURCE and TARGET have a sentence a line, in the same order; some may be merged, split or missing in the other.
    Sentences without a partner are left out.

    Example: mt data align book.en book.fr --output book.tsv
    """
    from mt.extras.doctor.align_files import align_files

    check_output(output, source, target, force=force)
    if output.suffix != ".tsv":
        raise InputError(f"--output {output}: not the name of a .tsv file", "let it end in .tsv")
    summary = align_files(source, target, output, min_score)
    print_result(summary)
    log.info("next: data.train: {file: %s, source_column: source, target_column: target}", output)
