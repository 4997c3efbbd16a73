"""CSV and TSV tables: one column is translated into another; rows that do not change keep their bytes."""

import csv
import io
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mt.errors import InputError
from mt.extras.documents.segments import Segment, columns_of

_MARK = re.compile(r"\ufeff?(?:sep=([^\w\s\"]|\t)\r?\n)?", re.IGNORECASE)  # `sep=;` is for Excel


@dataclass
class Table:
    """A table, and the columns to read and to fill."""

    records: list[str]  # the rows as they stand in the file, with their line ends
    rows: list[list[str]]  # their cells
    dialect: dict[str, Any]  # how the csv module reads them
    column: int  # the source, from 0
    target: int  # the same where a column is translated in place
    name: str | None  # of the target column, if it is a new one
    first: int  # the first row after the header, from 0
    mark: str  # a byte order mark and a line `sep=;` before the first row, if the file has them

    @classmethod
    def read(cls, content: str, kind: str, columns: str | None, place: str) -> "Table":
        """Read a table; `columns` is SOURCE or SOURCE:TARGET, names of the header or numbers from 1.

        Raises:
            InputError: `columns` is missing or names no column, a quotation does not end, or a row of a CSV file is
                longer than the first one.
        """
        mark = _MARK.match(content)
        assert mark is not None
        text = content[mark.end() :]
        head = re.sub(r'"[^"]*(?:"|$)', "", text.split("\n", 1)[0])  # without what is quoted
        guess = "\t" if kind == "tsv" else max(",;\t|", key=head.count)
        dialect: dict[str, Any] = {"delimiter": mark[1] or guess}
        if "\0" in text:
            raise InputError(f"{place}: holds NUL bytes, so it is no table", "check its kind")
        try:
            records, rows = _rows(text, {**dialect, "strict": True})
        except csv.Error as error:
            if kind != "tsv":
                raise InputError(f"{place}: {error}", "close the quotation marks, and double those in a cell") from None
            dialect |= {"quoting": csv.QUOTE_NONE, "quotechar": None}
            records, rows = _rows(text, dialect)
        header = rows[0] if rows else []
        wide = next((n for n, row in enumerate(rows, 1) if any(map(str.strip, row[len(header) :]))), None)
        if kind == "csv" and wide is not None:
            message = f"{place}: row {wide} has more cells than the first one"
            raise InputError(message, "put cells that hold the delimiter in quotation marks")
        if columns is None:
            if len(header) != 1:
                names = ", ".join(header)[:200]
                hint = f"give --columns SOURCE:TARGET, by name or number; the first row is: {names}"
                raise InputError(f"{place}: which of its {len(header)} columns is to be translated?", hint)
            columns = "1:2"
        source, _, target = columns.partition(":")
        has_header = any(name in header for name in (source, target) if name)
        column = _column(source, header, place)
        name = target if target and not target.isdecimal() and target not in header else None
        target_column = _column(target, [*header, name or ""], place) if target else column
        return cls(records, rows, dialect, column, target_column, name, int(has_header or name is not None), mark[0])

    @property
    def segments(self) -> list[Segment]:
        """The cells to translate, each line of a cell alone."""
        numbers = self._translated_rows()
        return [Segment(tuple(columns_of(self.rows[n][self.column])), f"row {n + 1}") for n in numbers]

    def _translated_rows(self) -> list[int]:
        """Return the numbers of the rows to translate: those with a source and, if in another column, no target."""
        in_place, numbered = self.target == self.column, list(enumerate(self.rows))[self.first :]
        with_source = [(number, row) for number, row in numbered if _has_text(row, self.column)]
        return [number for number, row in with_source if in_place or not _has_text(row, self.target)]

    def written(self, translations: list[tuple[str, ...] | None]) -> bytes:
        """Return the table with translations."""
        records = list(self.records)
        if self.name is not None:
            records[0] = self._record(0, self.name)
        for number, new in zip(self._translated_rows(), translations, strict=True):
            if new is not None:
                records[number] = self._record(number, "".join(new))
        return "".join([self.mark, *records]).encode()

    def _record(self, number: int, text: str) -> str:
        """Return a row with a new target cell, quoted in the style that the row has."""
        old, record = self.rows[number], self.records[number]
        row = [*old, *[""] * (self.target + 1 - len(old))]
        row[self.target] = text
        if row == old:
            return record
        bare = record.rstrip("\r\n")
        quoted = {"quoting": csv.QUOTE_ALL, **self.dialect}
        style = quoted if _format_row(old, quoted) == bare else self.dialect
        return _format_row(row, style) + record[len(bare) :]


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
