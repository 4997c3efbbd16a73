"""`mt eval`."""

import json
from typing import Any

import click

from mt.cli import options
from mt.cli.options import ENGINE_OPTIONS, path_type
from mt.cli.text import print_result
from mt.console import log
from mt.errors import contradict
from mt.storage.output_path import require_writable


@click.command(name="eval")
@click.option("--source", type=path_type, help="Test text; default: the run's test set.")
@click.option("--reference", type=path_type, help="Its translation, aligned by line.")
@options.json_option
@click.option("--output", type=path_type, help="Folder for hypotheses and scores.")
@options.metrics_option("bleu", "chrf", "ter", "comet")
@click.option("--comet-model", type=path_type, help="With --metrics comet: the folder of a COMET checkpoint.")
@click.option("--tune-length-penalty", is_flag=True, help="Try length penalties on the validation set; no test set.")
@click.option("--perturb", is_flag=True, help="Score the text in capitals, with typos, URLs to copy, and so on.")
@options.glossary_options
@options.mbr_options
@options.model_options
def evaluate_command(**given: Any) -> None:
    """Score a model on a test set, greedy and beam: BLEU with interval and signature, chrF, TER.

    With --sample or --mbr, their translations are scored, too.

    Example: mt eval --model runs/demo
    """
    if given["output"] is not None:
        require_writable(given["output"] / "file", "--output")
    request = options.search_request(given)
    from mt.api.evaluation import evaluate, evaluate_robustness, tune_length_penalty
    from mt.api.runs import Run

    chosen = {name: given[name] for name in ("source", "reference", "to", "source_lang", "runs", *ENGINE_OPTIONS)}
    if given["tune_length_penalty"] or given["perturb"]:
        _check_excluded(given)
        score: Any = evaluate_robustness if given["perturb"] else tune_length_penalty
        scores = score(given["models"], **chosen, request=request)
        print_result(json.dumps(scores.json) if given["as_json"] else scores.table)
        return
    chosen |= {name: given[name] for name in ("metrics", "comet_model", "output", "glossary", "keep")}
    evaluation = evaluate(given["models"], **chosen, request=request)
    try:
        # Printed first: an unwritable folder must not cost the scores, nor a closed pipe the files.
        result = evaluation.as_dict()
        print_result(json.dumps(result, ensure_ascii=False) if given["as_json"] else str(evaluation))
    finally:
        evaluation.write()
    if evaluation.folder is not None:
        if given["output"] is None and evaluation.name == "test":
            for line in Run(evaluation.folder.parent).verdict:
                log.info(line)
        log.info("written: %s; next: mt translate, mt report or mt compare", evaluation.folder / evaluation.name)


def _check_excluded(given: dict[str, Any]) -> None:
    """Refuse options of the usual scores beside those that give a table of their own."""
    tuning, perturb = "--tune-length-penalty", "--perturb"
    contradict(given["tune_length_penalty"] and given["perturb"], tuning, perturb)
    chosen = perturb if given["perturb"] else tuning
    contradict(chosen == tuning and given["length_penalty"] is not None, tuning, "--length-penalty")
    for option in ("sample", "mbr", "output", "metrics", "comet_model", "glossary", "keep"):
        contradict(bool(given[option]), chosen, f"--{option.replace('_', '-')}")
