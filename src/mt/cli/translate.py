"""`mt translate`."""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mt.cli.options import (
    Decoding,
    contradict,
    engine_choice,
    find_models,
    format_type,
    mbr_options,
    model_options,
    path_type,
)
from mt.cli.text import BLOCK_LINES, check_input, check_output, input_lines, writer
from mt.errors import InputError
from mt.storage.output_path import refuse_inputs, require_writable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from mt.bundle.load_translator import OpenedModel
    from mt.decoding.attention_weights import Attention
    from mt.decoding.engine import SearchOptions
    from mt.decoding.translator import Candidate, Translator


@click.command()
@click.argument("text", nargs=-1)
@click.option("--input", "input_", type=path_type, help="Read lines from this file; - is stdin.")
@click.option("--output", type=path_type, help="Write to this file; - is stdout.")
@click.option("--greedy", is_flag=True, help="Greedy search: a beam of one.")
@click.option("--n-best", type=click.IntRange(min=1), default=1, help="Translations a line, best first.")
@click.option("--format", "format_", type=format_type, default="text", help="text, or jsonl with scores.")
@click.option("--alignment", is_flag=True, help="Add the word alignment in Marian's format: ' ||| 0-0 1-2'.")
@click.option("--attention", type=path_type, help="Draw the attention weights: a .png, .svg or .html file.")
@click.option("--by-head", is_flag=True, help="With --attention: every layer and head instead of their mean.")
@mbr_options
@model_options
def translate(
    text: tuple[str, ...], input_: Path | None, output: Path | None, format_: str, n_best: int, **options: Any
) -> None:
    """Translate arguments, a file, or standard input line by line: N lines in, N lines out, in order.

    Example: mt translate "I love you very much"
    """
    if text and input_:
        raise InputError("--input and text arguments contradict each other", "give one of them")
    input_file = input_ if text or (input_ and str(input_) != "-") else Path("/dev/stdin")
    check_output(output, input_file)
    check_input(input_)
    decoding = Decoding.of(options, options["greedy"], n_best)
    alignment, drawing = options["alignment"], options["attention"]
    if alignment or drawing is not None:
        _require_attention(options, n_best, text)
        refuse_inputs([drawing], [input_file])
    elif options["by_head"]:
        raise InputError("--by-head belongs to --attention", "add --attention FILE, or leave it out")
    one_by_one = len(text) == 1 or (not text and not input_ and sys.stdin.isatty())
    from mt.bundle.load_translator import open_model
    from mt.decoding.translator import lines_at_once

    first, *others = find_models(options["models"], options["runs"])
    opened = open_model(first, engine_choice(options, one_by_one), others)
    search = decoding.search(opened.settings.search, scores=format_ == "jsonl" or n_best > 1)
    translator = opened.translator.to(options["to"])
    utility = decoding.utility_for(translator.target_lang)
    drawn: list[Attention] = []
    with writer(output) as write:
        blocks = input_lines(text, input_, lines_at_once(BLOCK_LINES, search.n_best))
        for line, candidates in _translations(translator, search, blocks):
            best = _chosen(candidates, utility, n_best, search.sampling is not None)
            attention = _attention(opened, best[0]) if alignment or drawing is not None else []
            write(_formatted(line, best, n_best, format_, attention if alignment else None))
            drawn += attention if drawing is not None else []
    if drawing is not None:
        from mt.extras.reporting.attention_map import draw

        draw(drawing, drawn, options["by_head"])


def _translations(
    translator: "Translator", search: "SearchOptions", blocks: "Iterable[list[str]]"
) -> "Iterator[tuple[str, list[Candidate]]]":
    """Yield each line with its candidates; warnings count lines from the input's first."""
    first_line = 1
    for lines in blocks:
        yield from zip(lines, translator.translate(lines, search, first_line), strict=True)
        first_line += len(lines)


def _require_attention(options: dict[str, Any], n_best: int, text: tuple[str, ...]) -> None:
    """Choose torch, the only engine that gives attention weights; refuse options that exclude it."""
    from mt.decoding.engine import FLOAT_TYPES

    drawing, compute_type = options["attention"], options["compute_type"]
    option = "--alignment" if drawing is None else "--attention"
    contradict(options["engine"] == "ctranslate2", option, "--engine ctranslate2")
    contradict(len(options["models"]) > 1, option, "several models")
    contradict(n_best > 1, option, "--n-best")
    contradict(compute_type not in ("auto", *FLOAT_TYPES), option, f"--compute-type {compute_type}")
    options["engine"] = "torch"
    if drawing is not None:
        from mt.extras.reporting.attention_map import check_drawable

        check_drawable(drawing, options["by_head"], text)
        require_writable(drawing, "--attention")


def _attention(opened: "OpenedModel", candidate: "Candidate") -> "list[Attention]":
    from mt.decoding.attention_weights import read_attention

    assert opened.model is not None, "a single model on torch"
    return read_attention(opened.model, opened.tokenizers, candidate)


def _chosen(candidates: "list[Candidate]", utility: str | None, n_best: int, sampled: bool) -> "list[Candidate]":
    """Return the n best candidates, by utility or by score, which are distinct unless they were sampled."""
    from mt.decoding.translator import distinct

    pool = candidates if sampled else distinct(candidates)
    if utility is not None:
        from mt.decoding.reranking import rerank_mbr

        return rerank_mbr(pool, utility)[:n_best]
    return sorted(pool, key=lambda candidate: -candidate.score)[:n_best]


def _formatted(
    line: str, candidates: "list[Candidate]", n_best: int, format_: str, attention: "list[Attention] | None"
) -> str:
    alignment = None
    if attention is not None:
        from mt.decoding.attention_weights import pharaoh

        alignment = pharaoh(attention)
    if format_ == "jsonl":
        return _as_json(line, candidates, alignment)
    if alignment is not None:
        return f"{candidates[0].text} ||| {alignment}".rstrip(" ") if line.strip() else ""
    if n_best == 1:
        return candidates[0].text
    return "\n".join(f"{rank}\t{c.score:.4f}\t{c.text}" for rank, c in enumerate(candidates, 1))


def _as_json(line: str, candidates: "list[Candidate]", alignment: str | None) -> str:
    best = candidates[0]
    n_best = [{"text": c.text, "score": c.score, "log_prob": c.log_prob} for c in candidates]
    record: dict[str, Any] = {"source": line, "translation": best.text, "score": best.score, "n_best": n_best}
    if alignment is not None:
        record["alignment"] = alignment
    return json.dumps(record, ensure_ascii=False)
