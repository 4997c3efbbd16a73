"""CSV and TSV tables: one column is translated into another; rows that do not change keep their bytes."""

import csv
import io
import re
from pathlib import Path
from typing import Any

from mt.errors import InputError
from mt.extras.documents.segments import Segment, columns_of

_MARK = re.compile(r"\ufeff?(?:sep=([^\w\s\"]|\t)\r?\n)?", re.IGNORECASE)  # `sep=;` is for Excel


class Table:
    """A table, and the columns to read and to fill; each line of a cell is translated alone."""

    def __init__(self, content: str, kind: str, columns: str | None, place: str) -> None:
        """Read a table; `columns` is SOURCE or SOURCE:TARGET, names of the header or numbers from 1.

        Raises:
            InputError: `columns` is missing or names no column, a quotation does not end, or a row of a CSV file is
                longer than the first one.
        """
        mark = _MARK.match(content)
        assert mark is not None
        self._mark, text = mark[0], content[mark.end() :]
        head = re.sub(r'"[^"]*(?:"|$)', "", text.split("\n", 1)[0])  # without what is quoted
        guess = "\t" if kind == "tsv" else max(",;\t|", key=head.count)
        if "\0" in text:
            raise InputError(f"{place}: holds NUL bytes, so it is no table", "check its kind")
        self._dialect, self._records, self._rows = _parsed(text, kind, mark[1] or guess, place)
        header = self._rows[0] if self._rows else []
        wide = next((n for n, row in enumerate(self._rows, 1) if any(map(str.strip, row[len(header) :]))), None)
        if kind == "csv" and wide is not None:
            message = f"{place}: row {wide} has more cells than the first one"
            raise InputError(message, "put cells that hold the delimiter in quotation marks")
        if columns is None:
            if len(header) != 1:
                names = ", ".join(header)[:200]
                hint = f"give --columns SOURCE:TARGET, by name or number; the first row is: {names}"
                raise InputError(f"{place}: which of its {len(header)} columns is to be translated?", hint)
            columns = "1:2"
        column, first = self._choose_columns(columns, header, place)
        self._numbers = [  # of the rows with a source and, if in another column, no target
            number
            for number, row in enumerate(self._rows[first:], first)
            if _has_text(row, column) and (self._target == column or not _has_text(row, self._target))
        ]
        self.segments = [Segment(tuple(columns_of(self._rows[n][column])), f"row {n + 1}") for n in self._numbers]

    def _choose_columns(self, columns: str, header: list[str], place: str) -> tuple[int, int]:
        """Choose the column to fill; return the one to read and the first row after the header, both from 0."""
        source, _, target = columns.partition(":")
        has_header = any(name in header for name in (source, target) if name)
        column = _column(source, header, place)
        # The name of the target column, if it is a new one
        self._name = target if target and not target.isdecimal() and target not in header else None
        self._target = _column(target, [*header, self._name or ""], place) if target else column
        return column, int(has_header or self._name is not None)

    def written(self, translations: list[tuple[str, ...] | None]) -> bytes:
        """Return the table with translations."""
        records = list(self._records)
        if self._name is not None:
            records[0] = self._record(0, self._name)
        for number, new in zip(self._numbers, translations, strict=True):
            if new is not None:
                records[number] = self._record(number, "".join(new))
        return "".join([self._mark, *records]).encode()

    def _record(self, number: int, text: str) -> str:
        """Return a row with a new target cell, quoted in the style that the row has."""
        old, record = self._rows[number], self._records[number]
        if old[self._target : self._target + 1] == [text]:
            return record
        bare = record.rstrip("\r\n")
        delimiter: str = self._dialect["delimiter"]
        quoted = {"quoting": csv.QUOTE_ALL, **self._dialect}
        style = quoted if _format_row(old, quoted) == bare else self._dialect
        cell = f"[^{re.escape(delimiter)}]*"
        if "quoting" not in self._dialect:
            cell = f'"(?:[^"]|"")*"|{cell}'
        cells = re.findall(f"(?:^|{re.escape(delimiter)})({cell})", bare)
        cells += [""] * (self._target + 1 - len(cells))
        cells[self._target] = _format_row([text], style)
        return delimiter.join(cells) + record[len(bare) :]


def _parsed(text: str, kind: str, delimiter: str, place: str) -> tuple[dict[str, Any], list[str], list[list[str]]]:
    """Return how the csv module reads a table, and its rows as text and as cells.

    Quotation marks in a TSV file belong to the text, unless some begin a cell and all are closed.
    """
    quoted: dict[str, Any] = {"delimiter": delimiter}
    plain = {**quoted, "quoting": csv.QUOTE_NONE, "quotechar": None}
    try:
        if kind == "csv" or re.search(rf'(?:\A|[{re.escape(delimiter)}\r\n])"', text):
            return quoted, *_rows(text, {**quoted, "strict": True})
    except csv.Error as error:
        if kind == "csv":
            raise InputError(f"{place}: {error}", "close the quotation marks, and double those in a cell") from None
    return plain, *_rows(text, plain)


def _rows(text: str, dialect: dict[str, Any]) -> tuple[list[str], list[list[str]]]:
    """Return the rows of a table as text and as cells."""
    csv.field_size_limit(2**31 - 1)
    lines = io.StringIO(text, newline="").readlines()
    reader = csv.reader(lines, **dialect)
    records, rows, end = [], [], 0
    for row in reader:
        records.append("".join(lines[end : reader.line_num]))
        rows.append(row)
        end = reader.line_num
    return records, rows


def _format_row(row: list[str], dialect: dict[str, Any]) -> str:
    output = io.StringIO(newline="")
    csv.writer(output, lineterminator="\r\n", **dialect).writerow(row)  # quotes cells that contain \r or \n
    return output.getvalue().removesuffix("\r\n")


def _has_text(row: list[str], column: int) -> bool:
    return len(row) > column and bool(row[column].strip())


def _column(name: str, header: list[str], place: str) -> int:
    if name in header:
        return header.index(name)
    if name.isdecimal() and 0 < int(name) <= len(header):
        return int(name) - 1
    raise InputError(f"--columns: {Path(place).name} has no column {name!r}", f"it has {', '.join(header)[:200]}")
