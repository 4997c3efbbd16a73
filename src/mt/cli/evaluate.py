"""`mt eval` and `mt score`."""

import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mt.cli import options
from mt.cli.options import format_type, path_type
from mt.cli.text import check_output, print_result, writer
from mt.console import log
from mt.errors import contradict
from mt.storage.output_path import require_writable
from mt.text.lines import read_parallel, refuse_pipe

if TYPE_CHECKING:
    from mt.decoding.scoring import Scored

_TUNING = "--tune-length-penalty"


@click.command(name="eval")
@click.option("--source", type=path_type, help="Test text; default: the run's test set.")
@click.option("--reference", type=path_type, help="Its translation, aligned by line.")
@options.json_option
@click.option("--output", type=path_type, help="Folder for hypotheses and scores.")
@options.force_option
@options.metrics_option("bleu", "chrf", "ter", "comet")
@click.option("--comet-model", type=path_type, help="With --metrics comet: the folder of a COMET checkpoint.")
@click.option("--tune-length-penalty", is_flag=True, help="Try length penalties on the validation set; no test set.")
@click.option("--perturb", is_flag=True, help="Score the text in capitals, with typos, URLs to copy, and so on.")
@options.glossary_options
@options.mbr_options
@options.model_options
def evaluate_command(tune_length_penalty: bool, perturb: bool, as_json: bool, **given: Any) -> None:
    """Score a model on a test set, greedy and beam: BLEU with interval and signature, chrF, TER.

    With --sample or --mbr, their translations are scored, too.

    Example: mt eval --model runs/demo
    """
    if given["output"] is not None:
        require_writable(given["output"] / "file", "--output")
    from mt.api import evaluation as api
    from mt.api.runs import Run

    if tune_length_penalty or perturb:
        option, score = ("--perturb", api.evaluate_robustness) if perturb else (_TUNING, api.tune_length_penalty)
        contradict(tune_length_penalty and perturb, _TUNING, "--perturb")
        contradict(tune_length_penalty and given["length_penalty"] is not None, _TUNING, "--length-penalty")
        # Neither function has these options.
        for name in ("sample", "mbr", "output", "force", "metrics", "comet_model", "glossary", "keep"):
            contradict(bool(given.pop(name)), option, options.spelled(name))
        request = options.pop_search(given)
        scores = score(**given, request=request)
        print_result(json.dumps(scores.json) if as_json else scores.table)
        return
    request = options.pop_search(given)
    evaluation = api.evaluate(**given, request=request)
    try:
        # Printed first: an unwritable folder must not cost the scores, nor a closed pipe the files.
        result = evaluation.as_dict()
        print_result(json.dumps(result, ensure_ascii=False) if as_json else str(evaluation))
    finally:
        evaluation.write()
    if evaluation.folder is not None:
        if given["output"] is None and evaluation.name == "test":
            for line in Run(evaluation.folder.parent).verdict:
                log.info(line)
        log.info("written: %s; next: mt translate, mt report or mt compare", evaluation.folder / evaluation.name)


@click.command()
@click.option("--source", type=path_type, required=True, help="The text.")
@click.option("--target", type=path_type, required=True, help="Its translation, aligned by line.")
@click.option("--output", type=path_type, help="Write to this file; - is stdout.")
@click.option("--format", "format_", type=format_type, default="text", help="text, or jsonl with the lines themselves.")
@options.force_option
@options.from_option
@options.to_option
@options.model_option
@options.device_option
@options.common_options
def score(source: Path, target: Path, output: Path | None, format_: str, **given: Any) -> None:
    """Score given translations by their probability under a model: to filter a corpus, or to rank systems.

    Prints for each line the log-probability of its translation (the natural logarithm, the end counted), a tab, and
    the number of its tokens. The perplexity of all lines goes to stderr.

    Example: mt score --source test.en --target test.de
    """
    check_output(output, source, target, force=given["force"])
    from mt.api.loading import load

    for path in (source, target):
        refuse_pipe(path)
    for _ in read_parallel(source, target):  # reports files that do not match before hours of work, not after
        pass
    translator = load(given["model"], engine="torch", device=given["device"], runs=given["runs"])
    pairs, scored_pairs = read_parallel(source, target), read_parallel(source, target)
    scores = translator.score(scored_pairs, to=given["to"], source_lang=given["source_lang"])
    log_prob, tokens, unscored = 0.0, 0, 0
    with writer(output) as write:
        for pair, scored in zip(pairs, scores, strict=True):
            write(_score_line(pair, scored, format_))
            if scored is None:
                unscored += 1
            else:
                log_prob, tokens = log_prob + scored.log_prob, tokens + scored.tokens
    if unscored:
        reason = "their source is empty, or they are longer than the model takes or have characters unknown to it"
        log.warning("%d pairs have no score: %s", unscored, reason)
    if tokens:
        log.info("%s tokens: perplexity %.2f", f"{tokens:,}", math.exp(min(-log_prob / tokens, 700)))


def _score_line(pair: tuple[str, str], scored: "Scored | None", format_: str) -> str:
    if format_ == "jsonl":
        numbers = {"log_prob": None, "tokens": None} if scored is None else scored._asdict()
        return json.dumps({"source": pair[0], "target": pair[1], **numbers}, ensure_ascii=False)
    return "nan\t0" if scored is None else f"{scored.log_prob:.4f}\t{scored.tokens}"
