"""Documents on the command line of `mt translate`."""

import os
from pathlib import Path
from typing import Any

from mt.cli.options import ENGINE_OPTIONS
from mt.cli.text import check_output, print_result
from mt.console import log, progress
from mt.errors import InputError

# Options of `mt translate` that have no meaning for a document.
_ONLY_LINES = ("n_best", "alignment", "attention", "by_head", "prefix", "prefix_file")


def document_kind(path: Path | None, format_: str | None) -> str | None:
    """Return the kind of a document; None for lines of text, and for what `--format text` declares as such."""
    if format_ in ("text", "jsonl") or (not format_ and (path is None or str(path) == "-" or not path.is_file())):
        return None
    if path is None or str(path) == "-":
        message = f"--format {format_} is for a document in a file, not for standard input or text arguments"
        raise InputError(message, "give --input FILE and --output FILE")
    from mt.extras.documents.formats import document_format

    return document_format(path, format_)


def is_file(name: str) -> bool:
    """Return True for the name of a file, False for a text, which may be too long for a name."""
    return os.access(name, os.F_OK) and Path(name).is_file()


def refuse_names(text: tuple[str, ...], document: Path | None) -> None:
    """Refuse names of documents among the texts to translate, where they are not the one document."""
    from mt.extras.documents.formats import names_document

    for word in text if document is None else ():
        if names_document(word):
            exists = is_file(word)
            hint = "translate one document at a time" if exists else "to translate the name itself, pipe it in"
            raise InputError(f"{word}: {'documents are no text' if exists else 'no such file'}", hint)


def translate_document(path: Path, kind: str, output: Path | None, request: Any, options: dict[str, Any]) -> None:
    """Translate a document into --output, and print what was done."""
    if output is None or str(output) == "-":
        hint = "add --output FILE, or translate its lines as they are with --format text"
        raise InputError(f"{path}: a document needs a file to be written to", hint)
    given = {**options, "n_best": options["n_best"] > 1}
    for name in _ONLY_LINES:
        if given[name]:
            raise InputError(f"--{name.replace('_', '-')} is for lines of text, not for documents", "leave it out")
    check_output(output, path, options["glossary"], force=options["force"])
    from mt.api.loading import load

    engine = {name: options[name] for name in (*ENGINE_OPTIONS, "runs", "glossary", "keep")}
    translator = load(options["models"], **engine, sampling=request.sampling is not None)
    chosen = {name: options[name] for name in ("columns", "to", "source_lang")}
    with progress(unit="sentence", desc="translating") as bar:

        def show(done: int, total: int) -> None:
            bar.total, bar.n = total, done
            bar.refresh()

        done = translator.translate_document(path, output, format_=kind, **chosen, progress=show, request=request)
    for place, reason in done.kept:
        log.warning("%s: %s: stays as it was: %s", path, place, reason)
    kept = f", {len(done.kept):,} kept" if done.kept else ""
    print_result(f"{output}: {done.segments - len(done.kept):,} segments translated{kept}")
