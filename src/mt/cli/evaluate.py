"""`mt eval`."""

import json
from pathlib import Path
from typing import Any

import click

from mt.cli.options import (
    ENGINE_OPTIONS,
    engine_choice,
    glossary_options,
    json_option,
    mbr_options,
    metrics_option,
    model_options,
    path_type,
    search_request,
)
from mt.cli.text import print_result
from mt.console import log
from mt.errors import contradict
from mt.storage.output_path import require_writable


@click.command(name="eval")
@click.option("--source", type=path_type, help="Test text; default: the run's test set.")
@click.option("--reference", type=path_type, help="Its translation, aligned by line.")
@json_option
@click.option("--output", type=path_type, help="Folder for hypotheses and scores.")
@metrics_option("bleu", "chrf", "ter", "comet")
@click.option("--comet-model", type=path_type, help="With --metrics comet: the folder of a COMET checkpoint.")
@click.option("--tune-length-penalty", is_flag=True, help="Try length penalties on the validation set; no test set.")
@click.option("--perturb", is_flag=True, help="Score the text in capitals, with typos, URLs to copy, and so on.")
@glossary_options
@mbr_options
@model_options
def evaluate_command(source: Path | None, reference: Path | None, to: str | None, **options: Any) -> None:
    """Score a model on a test set, greedy and beam: BLEU with interval and signature, chrF, TER.

    With --sample or --mbr, their translations are scored, too.

    Example: mt eval --model runs/demo
    """
    if options["output"] is not None:
        require_writable(options["output"] / "file", "--output")
    request = search_request(options)
    from mt.api.evaluation import evaluate, evaluate_robustness, tune_length_penalty
    from mt.api.runs import Run

    models, runs = options["models"], options["runs"]
    text: dict[str, Any] = {"source": source, "reference": reference, "to": to, "source_lang": options["source_lang"]}
    if options["tune_length_penalty"] or options["perturb"]:
        _check_excluded(options)
        if options["perturb"]:
            engine = {name: options[name] for name in ENGINE_OPTIONS}
            scores = evaluate_robustness(models, **text, **engine, runs=runs, request=request)
        else:
            choice = engine_choice(options)
            scores = tune_length_penalty(models, choice, **text, beam_size=request.beam_size, runs=runs)
        print_result(json.dumps(scores.json) if options["as_json"] else scores.table)
        return
    scored = ("metrics", "comet_model", "output", "glossary", "keep", *ENGINE_OPTIONS)
    evaluation = evaluate(models, **text, **{name: options[name] for name in scored}, runs=runs, request=request)
    try:
        # Printed first: an unwritable folder must not cost the scores, nor a closed pipe the files.
        as_json = options["as_json"]
        print_result(json.dumps(evaluation.as_dict(), ensure_ascii=False) if as_json else str(evaluation))
    finally:
        evaluation.write()
    if evaluation.folder is not None:
        if options["output"] is None and evaluation.name == "test":
            for line in Run(evaluation.folder.parent).verdict:
                log.info(line)
        log.info("written: %s; next: mt translate, mt report or mt compare", evaluation.folder / evaluation.name)


def _check_excluded(options: dict[str, Any]) -> None:
    """Refuse options of the usual scores beside those that give a table of their own."""
    tuning, perturb = "--tune-length-penalty", "--perturb"
    contradict(options["tune_length_penalty"] and options["perturb"], tuning, perturb)
    chosen = perturb if options["perturb"] else tuning
    contradict(chosen == tuning and options["length_penalty"] is not None, tuning, "--length-penalty")
    for option in ("sample", "mbr", "output", "metrics", "comet_model", "glossary", "keep"):
        contradict(bool(options[option]), chosen, f"--{option.replace('_', '-')}")
