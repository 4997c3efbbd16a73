"""`mt score`."""

import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mt.cli import options
from mt.cli.options import format_type, path_type
from mt.cli.text import check_output, writer
from mt.console import log

if TYPE_CHECKING:
    from mt.decoding.scoring import Scored


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
    from mt.text.lines import read_parallel, refuse_pipe

    for path in (source, target):
        refuse_pipe(path)
    for _ in read_parallel(source, target):  # reports files that do not match before hours of work, not after
        pass
    translator = load(given["model"], engine="torch", device=given["device"], runs=given["runs"])
    pairs, again = read_parallel(source, target), read_parallel(source, target)
    scores = translator.score(again, to=given["to"], source_lang=given["source_lang"])
    log_prob, tokens, unscored = 0.0, 0, 0
    with writer(output) as write:
        for pair, scored in zip(pairs, scores, strict=True):
            write(_formatted(pair, scored, format_))
            if scored is None:
                unscored += 1
            else:
                log_prob, tokens = log_prob + scored.log_prob, tokens + scored.tokens
    if unscored:
        reason = "their source is empty, or they are longer than the model takes"
        log.warning("%d pairs have no score: %s", unscored, reason)
    if tokens:
        log.info("%s tokens: perplexity %.2f", f"{tokens:,}", math.exp(min(-log_prob / tokens, 700)))


def _formatted(pair: tuple[str, str], scored: "Scored | None", format_: str) -> str:
    if format_ == "jsonl":
        numbers = {"log_prob": None, "tokens": None} if scored is None else scored._asdict()
        return json.dumps({"source": pair[0], "target": pair[1], **numbers}, ensure_ascii=False)
    return "nan\t0" if scored is None else f"{scored.log_prob:.4f}\t{scored.tokens}"
