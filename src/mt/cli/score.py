"""`mt score`."""

import json
import math
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import click

from mt.cli.completing import run_folders
from mt.cli.options import debug_option, find_models, path_type, runs_option, to_option
from mt.cli.text import LINES_AT_ONCE, check_output, writer
from mt.console import log, set_up_logging
from mt.errors import InputError

if TYPE_CHECKING:
    from mt.decoding.scoring import Scored


@click.command()
@click.option("--source", type=path_type, required=True, help="The text.")
@click.option("--target", type=path_type, required=True, help="Its translation, aligned by line.")
@click.option("--output", type=path_type, help="Write to this file; - is stdout.")
@click.option("--format", "format_", default="text", help="text, or jsonl with the lines themselves.")
@to_option
@click.option(
    "--model",
    type=path_type,
    shell_complete=run_folders,
    help="A run folder, a model folder or a checkpoint. Default: the newest finished run.",
)
@click.option("--device", default="auto", help="auto, cpu, cuda or mps.")
@runs_option
@debug_option
def score(
    source: Path,
    target: Path,
    output: Path | None,
    format_: str,
    to: str | None,
    model: Path | None,
    device: str,
    runs: Path,
    debug: bool,
) -> None:
    """Tell how likely a model takes given translations to be: to filter a corpus, or to rank what others wrote.

    Each line gives the log-probability of its translation (the natural logarithm, the end counted), a tab, and its
    tokens; the more negative, the less likely. The perplexity of all goes to stderr.

    Example: mt score --source test.en --target test.de
    """
    set_up_logging()
    if format_ not in ("text", "jsonl"):
        raise InputError(f"--format: '{format_}' is neither text nor jsonl")
    check_output(output, source, target)
    from mt.bundle.load_translator import open_model
    from mt.decoding.engine import EngineChoice
    from mt.decoding.scoring import PairScorer
    from mt.text.lines import read_parallel, refuse_pipe

    for path in (source, target):
        refuse_pipe(path)
    for _ in read_parallel(source, target):  # files that do not match are told before hours of work, not after
        pass
    [folder] = find_models([] if model is None else [model], runs)
    opened = open_model(folder, EngineChoice(engine="torch", device=device))
    assert opened.model is not None, "torch runs it, and alone"
    translator = opened.translator.to(to)
    scorer = PairScorer(opened.model, opened.tokenizers, translator.tag, opened.settings)
    pairs = read_parallel(source, target)
    total = _Total()
    with writer(output) as write:
        while block := list(islice(pairs, LINES_AT_ONCE)):
            for pair, scored in zip(block, scorer.score(block), strict=True):
                write(_shown(pair, scored, format_))
                total.add(scored)
    total.tell()


@dataclass
class _Total:
    """What is said of all pairs together."""

    log_prob: float = 0.0
    tokens: int = 0
    without: int = 0

    def add(self, scored: "Scored | None") -> None:
        if scored is None:
            self.without += 1
        else:
            self.log_prob += scored.log_prob
            self.tokens += scored.tokens

    def tell(self) -> None:
        if self.without:
            reason = "their source is empty, or they are longer than the model takes"
            log.warning("%d pairs have no score: %s", self.without, reason)
        if self.tokens:
            perplexity = math.exp(min(-self.log_prob / self.tokens, 700))
            log.info("%s tokens: perplexity %.2f", f"{self.tokens:,}", perplexity)


def _shown(pair: tuple[str, str], scored: "Scored | None", format_: str) -> str:
    if format_ == "jsonl":
        found = {"log_prob": None, "tokens": None} if scored is None else scored._asdict()
        return json.dumps({"source": pair[0], "target": pair[1], **found}, ensure_ascii=False)
    return "nan\t0" if scored is None else f"{scored.log_prob:.4f}\t{scored.tokens}"
