"""`mt translate`."""

import json
import os
import sys
from collections.abc import Iterable
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mt.api.search import SearchRequest, Translation
from mt.cli import options
from mt.cli.options import ENGINE_OPTIONS, path_type
from mt.cli.text import check_input, check_output, input_lines, print_result, require_utf8, writer
from mt.console import log, progress, quoted
from mt.decoding.candidates import lines_at_once
from mt.decoding.engine import FLOAT_TYPES
from mt.errors import InputError, contradict
from mt.extras.documents.formats import FORMATS, document_format, names_document
from mt.storage.output_path import refuse_inputs, require_writable
from mt.text.lines import TextFile, refuse_pipe

if TYPE_CHECKING:
    from mt.api.translation import Translator

# Options of `mt translate` that have no meaning for a document.
_LINE_OPTIONS = ("n_best", "alignment", "attention", "by_head", "prefix", "prefix_file")
_LINES_FOR_BAR = 100  # fewer are translated before a progress bar would be of use
_USABLE_BLEU = 5  # a model below it has learned next to nothing
_FORMATS = click.Choice(["text", "jsonl", *FORMATS])


@click.command()
@click.argument("text", nargs=-1)
@click.option("--input", "input_", type=path_type, help="Read lines from this file; - is stdin.")
@click.option("--output", type=path_type, help="Write to this file; - is stdout.")
@options.force_option
@click.option("--greedy", is_flag=True, help="Greedy search: a beam of one.")
@click.option("--n-best", type=click.IntRange(min=1), default=1, help="Translations a line, best first.")
@click.option("--format", "format_", type=_FORMATS, help="text, jsonl with scores, or a document's kind.")
@click.option("--prefix", default="", help="The translation begins with this text, which may end inside a word.")
@click.option("--prefix-file", type=path_type, help="With --input: a prefix for each line; an empty one asks nothing.")
@click.option("--columns", metavar="FROM:TO", help="Of a .csv or .tsv: the column to translate, and the one to fill.")
@click.option("--alignment", is_flag=True, help="Add the word alignment in Marian's format: ' ||| 0-0 1-2'.")
@click.option("--attention", type=path_type, help="Draw the attention weights: a .png, .svg or .html file.")
@click.option("--by-head", is_flag=True, help="With --attention: every layer and head instead of their mean.")
@options.glossary_options
@click.option("--no-repeat-ngram-size", type=click.IntRange(0, 1000), help="No N tokens twice; default: the model's.")
@options.mbr_options
@options.model_options
def translate(text: tuple[str, ...], input_: Path | None, output: Path | None, **given: Any) -> None:
    """Translate arguments, a file, or standard input line by line: N lines in, N lines out, in order.

    A document (.docx, .odt, .pptx, .epub, .html, .md, .srt, .vtt, .po, .xliff, .tmx, .csv) keeps its form and is
    written to --output: mt translate manual.docx --output handbuch.docx

    Example: mt translate "I love you very much"
    """
    named = Path(text[0]) if len(text) == 1 and _is_file(text[0]) else None
    document = input_ if named is None else named
    _refuse_names(text, named)
    kind = _document_kind(document, given["format_"])
    if kind is not None and document is not None and not (text and input_):
        _translate_document(document, kind, output, given)
        return
    if given["columns"]:
        raise InputError("--columns is for .csv and .tsv files", "leave it out")
    if named is not None:
        hint = f"did you mean --input {quoted(text[0])}? To translate its name, pipe it in"
        raise InputError(f"{text[0]} is a file", hint)
    contradict(bool(text and input_), "--input", "text arguments")
    input_file = input_ if text or (input_ and str(input_) != "-") else Path("/dev/stdin")
    inputs = (input_file, given["glossary"], given["prefix_file"])
    check_output(output, *inputs, force=given["force"])
    request = options.pop_search(given, given["n_best"])
    attention_file = given["attention"]
    if given["alignment"] or attention_file is not None:
        _require_attention(given, text)
        refuse_inputs([attention_file], inputs)
        if output is not None and output == attention_file:
            raise InputError(f"--attention {attention_file}: --output is the same file", "name another")
    if given["by_head"] and attention_file is None:
        raise InputError("--by-head belongs to --attention", "add --attention FILE, or leave it out")
    weights = _write_translations(text, input_, output, request, given)
    if attention_file is not None:
        from mt.extras.reporting.attention_map import draw

        draw(attention_file, weights, given["by_head"])


def _document_kind(path: Path | None, format_: str | None) -> str | None:
    """Return the kind of a document; None for lines of text, by its name or by --format."""
    if format_ in ("text", "jsonl") or (not format_ and (path is None or str(path) == "-" or not path.is_file())):
        return None
    if path is None or str(path) == "-":
        message = f"--format {format_} is for a document in a file, not for standard input or text arguments"
        raise InputError(message, "give --input FILE and --output FILE")
    return document_format(path, format_)


def _is_file(name: str) -> bool:
    """Return True for the name of a file, False for a text, which may be too long for a name."""
    return os.access(name, os.F_OK) and Path(name).is_file()


def _refuse_names(text: tuple[str, ...], document: Path | None) -> None:
    """Refuse names of documents among the texts to translate, where they are not the one document."""
    for word in text if document is None else ():
        if names_document(word):
            exists = _is_file(word)
            hint = "translate one document at a time" if exists else "to translate the name itself, pipe it in"
            raise InputError(f"{word}: {'a document, not a text' if exists else 'no such file'}", hint)


def _translate_document(path: Path, kind: str, output: Path | None, given: dict[str, Any]) -> None:
    """Translate a document into --output, and print what was done."""
    request = options.pop_search(given)
    if output is None or str(output) == "-":
        hint = "add --output FILE, or translate its lines as they are with --format text"
        raise InputError(f"{path}: a document needs a file to be written to", hint)
    used = {**given, "n_best": given["n_best"] > 1}
    for name in _LINE_OPTIONS:
        if used[name]:
            raise InputError(f"{options.spelled(name)} is for lines of text, not for documents", "leave it out")
    check_output(output, path, given["glossary"], force=given["force"])
    translator = _load(given, request)
    chosen = {name: given[name] for name in ("columns", "to", "source_lang")}
    with progress(unit="sentence", desc="translating") as bar:

        def show(done: int, total: int) -> None:
            bar.total, bar.n = total, done
            bar.refresh()

        done = translator.translate_document(path, output, format_=kind, **chosen, progress=show, request=request)
    for place, reason in done.kept:
        log.warning("%s: %s: stays as it was: %s", path, place, reason)
    kept = f", {len(done.kept):,} kept" if done.kept else ""
    print_result(f"{output}: {done.segments - len(done.kept):,} segments translated{kept}")


def _write_translations(
    text: tuple[str, ...], input_: Path | None, output: Path | None, request: SearchRequest, given: dict[str, Any]
) -> list[Any]:
    """Translate lines in order, and return the attention weights if they are to be drawn."""
    from mt.api.translation import BLOCK_LINES

    n_lines = check_input(input_)
    prefix = _prefix(given, input_, n_lines)
    one_by_one = len(text) == 1 or (not text and not input_ and sys.stdin.isatty())
    translator = _load(given, request, one_by_one)
    n_best, format_ = given["n_best"], given["format_"] or "text"
    alignment, is_drawn = given["alignment"], given["attention"] is not None
    search: dict[str, Any] = {"to": given["to"], "source_lang": given["source_lang"], "request": request}
    search |= {"scores": format_ == "jsonl" or n_best > 1, "attention": alignment or is_drawn, "prefix": prefix}
    weights: list[Any] = []
    first_line = 1
    if sys.stderr.isatty():
        _introduce(translator)
    total = n_lines if n_lines is not None and n_lines >= _LINES_FOR_BAR and sys.stderr.isatty() else None
    block_lines = BLOCK_LINES if total is None else min(BLOCK_LINES, max(64, total // 50))  # each moves the bar
    blocks: Iterable[Iterable[str]] = input_lines(text, input_, lines_at_once(block_lines, request.n_best))
    if prefix and input_ and n_lines:  # the file as a whole, so that all prefixes are checked before anything runs
        blocks = [TextFile(input_)]
    # Without a bar, tqdm is not imported, which takes as long as a short text.
    bar: Any = nullcontext() if total is None else progress(total=total, unit="line", desc="translating")
    with writer(output) as write, bar:
        for lines in blocks:
            for result in translator.results(lines, n_best, first_line=first_line, **search):
                write(_formatted(result, n_best, format_, alignment))
                weights += result.attention or () if is_drawn else ()
                if total is not None:
                    bar.update()
                first_line += 1
    return weights


def _load(given: dict[str, Any], request: SearchRequest, one_by_one: bool = False) -> "Translator":
    from mt.api.loading import load

    chosen = {name: given[name] for name in (*ENGINE_OPTIONS, "model", "runs", "glossary", "keep")}
    return load(**chosen, one_by_one=one_by_one, sampling=request.sampling is not None)


def _prefix(given: dict[str, Any], input_: Path | None, n_lines: int | None) -> str | TextFile:
    """Return the prefix of all translations, or those of a file, checked to have a line for each line of the input."""
    prefix, path = require_utf8(given["prefix"], "--prefix"), given["prefix_file"]
    if path is None:
        return prefix
    contradict(bool(prefix), "--prefix", "--prefix-file")
    if n_lines is None:
        raise InputError("--prefix-file belongs to --input FILE", "name a file of lines")
    refuse_pipe(path)
    prefixes = TextFile(path)
    if (n_prefixes := sum(1 for _ in prefixes)) != n_lines:
        raise InputError(f"{path} has {n_prefixes} lines, and {input_} {n_lines}", "give one prefix a line")
    return prefixes


def _introduce(translator: "Translator") -> None:
    """Say on a terminal which model answers, and how good it is."""
    best, languages = translator.test_bleu, translator.direction
    score = "never scored" if best is None else f"BLEU {best:.1f} on its test set"
    log.info("%s: %s, %s", translator.path, languages, score)
    if best is not None and best < _USABLE_BLEU:
        log.warning(
            "a model of less than BLEU %d has learned next to nothing; train it longer, or on more text", _USABLE_BLEU
        )


def _require_attention(given: dict[str, Any], text: tuple[str, ...]) -> None:
    """Choose torch, the only engine that gives attention weights; refuse options that exclude it."""
    attention_file, compute_type = given["attention"], given["compute_type"]
    option = "--alignment" if attention_file is None else "--attention"
    contradict(given["engine"] == "ctranslate2", option, "--engine ctranslate2")
    contradict(len(given["model"] or ()) > 1, option, "several models")
    contradict(given["n_best"] > 1, option, "--n-best")
    contradict(compute_type not in ("auto", *FLOAT_TYPES), option, f"--compute-type {compute_type}")
    if not given["engine"].startswith("torch"):
        given["engine"] = "torch"
    if attention_file is not None:
        from mt.extras.reporting.attention_map import check_drawable

        check_drawable(attention_file, given["by_head"], text)
        require_writable(attention_file, "--attention")


def _formatted(result: Translation, n_best: int, format_: str, alignment: bool) -> str:
    pairs = " ".join(f"{source}-{target}" for source, target in result.alignment or ()) if alignment else None
    if format_ == "jsonl":
        return _as_json(result, pairs)
    if pairs is not None:
        return f"{result.text} ||| {pairs}".rstrip(" ") if result.source.strip() else ""
    if n_best == 1:
        return result.text
    return "\n".join(f"{rank}\t{c.score:.4f}\t{c.text}" for rank, c in enumerate(result.n_best, 1))


def _as_json(result: Translation, alignment: str | None) -> str:
    n_best = [
        {"text": c.text, "score": c.score, "log_prob": c.log_prob} | ({"completion": c.completion} if c.prefix else {})
        for c in result.n_best
    ]
    record: dict[str, Any] = {
        "source": result.source,
        "translation": result.text,
        **({"prefix": result.n_best[0].prefix, "completion": result.completion} if result.n_best[0].prefix else {}),
        "score": result.score,
        "n_best": n_best,
    }
    if alignment is not None:
        record["alignment"] = alignment
    return json.dumps(record, ensure_ascii=False)
