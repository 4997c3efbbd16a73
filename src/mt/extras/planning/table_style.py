"""Style of a delimited table: delimiter, quotes and header, as its rows suggest."""

import csv
import io
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import chain, islice
from pathlib import Path
from typing import Literal

from mt.config.base import DELIMITER
from mt.errors import InputError
from mt.extras.planning.init_options import Decide, Given, Source
from mt.text.languages import LANGUAGE_NAMES, base_language
from mt.text.lines import read_lines

NAMED_ROLES = (("source", "src"), ("target", "tgt", "trg"))  # names of columns

_SAMPLE = 1000  # rows
_REGULAR = 0.9  # share of the rows with the same number of cells
_DELIMITERS = {"tab": "\t", "comma": ",", "semicolon": ";", "bar": "|"}
_CODES = {name.lower(): code for code, name in LANGUAGE_NAMES.items()}


def language_code(name: str) -> str | None:
    """Return the language that a column is named after: en for en, EN-us and English."""
    text = name.strip().lower()
    if text in _CODES:
        return _CODES[text]
    is_code = re.fullmatch("[a-z]{2}([-_][a-z0-9]+)?", text) and base_language(text) in LANGUAGE_NAMES
    return text[:2] if is_code and text not in ("id", "no") else None  # more likely a number than a language


def table_style(name: str, kind: str, given: Given, decide: Decide) -> Source:
    """Find the delimiter and the quoting of a table; leave out those that are usual for its kind."""
    csv.field_size_limit(2**31 - 1)
    usual = "\t" if kind == ".tsv" else ","
    delimiter = given.delimiter or _delimiter(name, usual, decide)
    delimiter = _DELIMITERS.get(delimiter, delimiter)
    if not re.fullmatch(DELIMITER, delimiter):
        raise InputError(f"--delimiter {delimiter}: not one character", f"give it, or {', '.join(_DELIMITERS)}")
    quoting = given.quoting
    if quoting is None:
        quoting = kind == ".csv" or _is_quoted(name, delimiter, decide)
    style: Source = {} if delimiter == usual else {"delimiter": delimiter}
    return style if quoting == (kind == ".csv") else {**style, "quoting": quoting}


def _delimiter(name: str, usual: str, decide: Decide) -> str:
    lines = [line for line in islice(read_lines(Path(name)), _SAMPLE) if line]
    if not lines:
        raise InputError(f"{name}: no line in it", "check the file")
    fitting = [label for label, mark in _DELIMITERS.items() if max(_regularity(lines, mark)) >= _REGULAR]
    if not fitting:  # the reader will name the rows that differ
        return usual
    if len(fitting) == 1 or "tab" in fitting:
        return "tab" if "tab" in fitting else fitting[0]
    return decide(f"{name}: columns may be separated by {' or '.join(fitting)}", "--delimiter", fitting)


def _regularity(lines: list[str], delimiter: str) -> Iterable[float]:
    """Yield the share of rows with the most frequent number of cells, if more than one: unquoted, and quoted."""
    quoted = csv.reader((line.replace("\r", " ") + "\n" for line in lines), delimiter=delimiter)
    for rows in ([line.split(delimiter) for line in lines], list(quoted)):
        width, number = Counter(map(len, rows)).most_common(1)[0]
        yield number / len(rows) if width > 1 else 0.0


def _is_quoted(name: str, delimiter: str, decide: Decide) -> bool:
    """Report whether a table is quoted as Excel does it: cells with a quote or a delimiter, or all cells."""
    raw: list[str] = []  # lines of the current row

    def lines() -> Iterator[str]:
        for line in read_lines(Path(name)):
            line = line.replace("\r", " ")  # csv would take it for a line end
            raw.append(line)
            if len(raw) > _SAMPLE:
                raise csv.Error("a cell without an end")
            yield f"{line}\n"

    unclear = quoted = False
    try:
        for row in csv.reader(lines(), delimiter=delimiter, strict=True):
            text = "\n".join(raw)
            raw.clear()
            if '"' not in text:
                continue
            if not any(cell.startswith('"') for cell in text.split(delimiter)):
                return False  # Excel leaves no quote in a bare cell
            if text in (_written(row, delimiter, csv.QUOTE_MINIMAL), _written(row, delimiter, csv.QUOTE_ALL)):
                quoted = True
            else:
                unclear = True
    except csv.Error:
        return False
    if not unclear:
        return quoted
    question = f"{name}: cells begin with double quotes: are these quotation marks of the table, not of the text?"
    return decide(question, "--quoting or --no-quoting", ["yes", "no"]) == "yes"


def _written(row: list[str], delimiter: str, quoting: Literal[0, 1]) -> str:
    output = io.StringIO(newline="")
    csv.writer(output, delimiter=delimiter, quoting=quoting, lineterminator="").writerow(row)
    return output.getvalue()


def has_header(first: list[str], name: str, given: Given, decide: Decide) -> bool:
    """Report whether the first row names the columns: languages or roles do, a sentence does not."""
    if given.header is not None:
        return given.header
    if sum(language_code(cell) is not None or cell.lower() in chain(*NAMED_ROLES) for cell in first) >= 2:
        return True
    if any(len(cell.split()) > 3 or cell.rstrip().endswith((".", "!", "?", "。")) for cell in first):
        return False
    question = f"{name}: does the first row ({', '.join(first)[:100]}) name the columns?"
    return decide(question, "--header or --no-header", ["yes", "no"]) == "yes"
