"""Glossaries: terms with their translations, from TSV or TBX files."""

import re
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from copy import copy
from pathlib import Path

from mt.console import log
from mt.data.bilingual import bilingual_pairs, read_units
from mt.data.terms import Terms
from mt.data.tokenizer import normalized
from mt.errors import InputError
from mt.text.lines import read_lines

_HEADERS = ({"source", "src"}, {"target", "trg", "tgt"})


class Glossary:
    """A file of terms, TBX or else TSV (source, tab, target), and patterns (`keep`) of text to keep as it is.

    Without a file (None) there are only the patterns. Raises InputError if the file cannot be read, a term has two
    translations, or a pattern is not a regular expression.
    """

    def __init__(self, path: Path | None, keep: Sequence[str] = ()) -> None:
        self._path, self._directions, self._is_optional = path, dict[tuple[str, str], Terms](), False
        self._keep = [_compiled(pattern) for pattern in keep]
        self._is_tbx = path is not None and path.name.lower().removesuffix(".gz").endswith(".tbx")
        self._entries = {} if path is None or self._is_tbx else _unique(_tsv_rows(path), path)

    def optional(self) -> "Glossary":
        """Return a copy for directions that the user did not name: one without terms is a warning, not an error."""
        glossary = copy(self)
        glossary._directions, glossary._is_optional = {}, True
        return glossary

    def require_languages(self) -> None:
        """Refuse a TSV file with translations: it does not say in which languages they are."""
        if any(target not in ("", source) for source, target in self._entries.items()):
            message = f"{self._path}: a TSV file does not name its languages, and there are several directions"
            raise InputError(message, "write its terms to a .tbx file, or choose a model of one direction")

    def terms(self, source_lang: str, target_lang: str) -> Terms:
        """Return the terms of a direction; a TSV file has the same for all, for a TBX file the source must be known."""
        pair = (source_lang, target_lang)
        if pair not in self._directions:
            path, entries = self._path, self._entries
            if self._is_tbx and path is not None:
                if not source_lang:
                    raise InputError(f"{path}: no source language was chosen for its terms", "choose with --from")
                entries = self._tbx_entries(path, pair)
            self._directions[pair] = Terms(entries, self._keep, pair)
        return self._directions[pair]

    def _tbx_entries(self, path: Path, pair: tuple[str, str]) -> dict[str, str]:
        try:
            rows = list(bilingual_pairs(path, ".tbx", pair))
        except InputError as error:
            if not self._is_optional:
                raise
            deque(read_units(path, ".tbx"), 0)  # raises if the file is at fault, not the languages
            log.warning("%s; translations from %s to %s are without its terms", error.message, *pair)
            return {}
        return _unique(rows, path)


def _compiled(pattern: str) -> re.Pattern[str]:
    try:
        return re.compile(pattern)
    except re.error as error:
        raise InputError(f"--keep {pattern}: not a regular expression ({error})", "escape special characters") from None


def _tsv_rows(path: Path) -> Iterator[tuple[int, str, str]]:
    """Yield line, source and target; further columns, empty lines, comments and a header do not count."""
    lines = ((n, line) for n, line in enumerate(read_lines(path), 1) if line.strip() and not line.startswith("#"))
    for index, (number, line) in enumerate(lines):
        cells = list(map(str.strip, line.split("\t")))
        names = zip(cells, _HEADERS, strict=False)
        if index == 0 and len(cells) > 1 and all(cell.lower() in header for cell, header in names):
            continue
        if len(cells) < 2 or not cells[0]:
            problem = "has no tab" if len(cells) < 2 else "has no source term"
            raise InputError(f"{path}:{number}: {problem}", "write source, tab, target")
        yield number, cells[0], cells[1]


def _unique(rows: Iterable[tuple[int, str, str]], path: Path) -> dict[str, str]:
    """Return the translation of each term; refuse two that differ."""
    entries: dict[str, tuple[int, str]] = {}
    for number, source, target in rows:
        source, target = normalized(source), normalized(target)
        line, other = entries.setdefault(source, (number, target))
        if other != target:
            message = f"{path}:{number}: '{source}' is '{target}' here and '{other}' in line {line}"
            raise InputError(message, "keep one translation")
    return {source: target for source, (_, target) in entries.items()}
