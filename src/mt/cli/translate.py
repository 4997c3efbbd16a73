"""`mt translate`."""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mt.cli.options import (
    Decoding,
    contradict,
    debug_option,
    engine_choice,
    engine_options,
    find_models,
    mbr_options,
    models_option,
    path_type,
    runs_option,
    search_options,
    to_option,
)
from mt.cli.text import LINES_AT_ONCE, check_input, check_output, input_lines, writer
from mt.console import set_up_logging
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
@click.option("--format", "format_", default="text", help="text, or jsonl with scores.")
@click.option("--alignment", is_flag=True, help="Add which source word became which: ' ||| 0-0 1-2', as Marian does.")
@click.option("--attention", type=path_type, help="Draw where the model looked: a .png, .svg or .html file.")
@click.option("--by-head", is_flag=True, help="With --attention: every layer and head instead of their mean.")
@to_option
@models_option
@search_options
@mbr_options
@engine_options
@runs_option
@debug_option
def translate(
    text: tuple[str, ...],
    input_: Path | None,
    output: Path | None,
    greedy: bool,
    n_best: int,
    format_: str,
    alignment: bool,
    attention: Path | None,
    by_head: bool,
    to: str | None,
    models: tuple[Path, ...],
    runs: Path,
    verbose: bool,
    **given: Any,
) -> None:
    """Translate arguments, a file, or standard input line by line: N lines in, N lines out, in order.

    Example: mt translate "I love you very much"
    """
    set_up_logging(verbose)
    _check_texts(text, input_, format_)
    given_input = input_ if text or (input_ and str(input_) != "-") else Path("/dev/stdin")
    check_output(output, given_input)
    check_input(input_)
    decoding = Decoding.of(given, greedy, n_best)
    look = alignment or attention is not None
    if look:
        _allow_looking(given, models, n_best, attention, by_head, text)
        refuse_inputs([attention], [given_input])
    elif by_head:
        raise InputError("--by-head belongs to --attention", "add --attention FILE, or leave it out")
    one_by_one = len(text) == 1 or (not text and not input_ and sys.stdin.isatty())
    from mt.bundle.load_translator import open_model
    from mt.decoding.translator import lines_at_once

    first, *others = find_models(models, runs)
    opened = open_model(first, engine_choice(given, one_by_one), others)
    options = decoding.search(opened.settings.search, scores=format_ == "jsonl" or n_best > 1)
    translator = opened.translator.to(to)
    utility = decoding.utility_for(translator.target_lang)
    show = _as_json if format_ == "jsonl" else _as_text
    looked: list[Attention] = []
    with writer(output) as write:
        blocks = input_lines(text, input_, lines_at_once(LINES_AT_ONCE, options.n_best))
        for line, candidates in _translations(translator, options, blocks):
            chosen = _chosen(candidates, utility, n_best, options.sampling is not None)
            attentions = _attention(opened, chosen[0]) if look else None
            write(show(line, chosen, n_best, attentions if alignment else None))
            if attention is not None:
                looked += attentions or []
    if attention is not None:
        from mt.extras.reporting.attention_map import draw

        draw(attention, looked, by_head)


def _translations(
    translator: "Translator", options: "SearchOptions", blocks: "Iterable[list[str]]"
) -> "Iterator[tuple[str, list[Candidate]]]":
    """Each line with its candidates; messages about a line count from the input's first."""
    first_line = 1
    for lines in blocks:
        yield from zip(lines, translator.translate(lines, options, first_line), strict=True)
        first_line += len(lines)


def _check_texts(texts: tuple[str, ...], input_: Path | None, format_: str) -> None:
    if format_ not in ("text", "jsonl"):
        raise InputError(f"--format: '{format_}' is neither text nor jsonl")
    if texts and input_:
        raise InputError("--input and text arguments contradict each other", "give one of them")


def _allow_looking(
    given: dict[str, Any],
    models: tuple[Path, ...],
    n_best: int,
    attention: Path | None,
    by_head: bool,
    texts: tuple[str, ...],
) -> None:
    """Attention is read from the model that translates, and only torch lets one look into it."""
    from mt.decoding.engine import FLOAT_TYPES

    option = "--alignment" if attention is None else "--attention"
    contradict(given["engine"] == "ctranslate2", option, "--engine ctranslate2")
    contradict(len(models) > 1, option, "several models")
    contradict(n_best > 1, option, "--n-best")
    contradict(given["compute_type"] not in ("auto", *FLOAT_TYPES), option, f"--compute-type {given['compute_type']}")
    given["engine"] = "torch"
    if attention is not None:
        from mt.extras.reporting.attention_map import check_drawable

        check_drawable(attention, by_head, texts)
        require_writable(attention, "--attention")


def _attention(opened: "OpenedModel", candidate: "Candidate") -> "list[Attention]":
    from mt.decoding.attention_weights import read_attention

    assert opened.model is not None, "one model, and torch runs it"
    return read_attention(opened.model, opened.tokenizers, candidate)


def _chosen(candidates: "list[Candidate]", utility: str | None, n_best: int, sampled: bool) -> "list[Candidate]":
    from mt.decoding.translator import distinct

    pool = candidates if sampled else distinct(candidates)
    if utility is not None:
        from mt.decoding.reranking import rerank_mbr

        return rerank_mbr(pool, utility)[:n_best]
    # Samples come as they were drawn; everything else is in this order already.
    return sorted(pool, key=lambda candidate: -candidate.score)[:n_best]


def _as_text(line: str, candidates: "list[Candidate]", n_best: int, attentions: "list[Attention] | None" = None) -> str:
    if attentions is not None:
        from mt.decoding.attention_weights import pharaoh

        return f"{candidates[0].text} ||| {pharaoh(attentions)}".rstrip(" ") if line.strip() else ""
    if n_best == 1:
        return candidates[0].text
    return "\n".join(f"{rank}\t{c.score:.4f}\t{c.text}" for rank, c in enumerate(candidates, 1))


def _as_json(line: str, candidates: "list[Candidate]", n_best: int, attentions: "list[Attention] | None" = None) -> str:
    alternatives = [{"text": c.text, "score": c.score, "log_prob": c.log_prob} for c in candidates]
    record: dict[str, Any] = {
        "source": line,
        "translation": candidates[0].text,
        "score": candidates[0].score,
        "n_best": alternatives,
    }
    if attentions is not None:
        from mt.decoding.attention_weights import pharaoh

        record["alignment"] = pharaoh(attentions)
    return json.dumps(record, ensure_ascii=False)
