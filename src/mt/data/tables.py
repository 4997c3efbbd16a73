"""Rows of TSV, CSV, JSON-lines, Parquet and Excel files.

The text formats are read here, through the strict line reader, and not with `datasets`: that library guesses types
(dates, numbers, "NA"), treats `*` in a file name as a pattern, and uses the network.
"""

import csv
import json
import re
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from mt.config import TableFile
from mt.errors import InputError, first_line, is_out_of_memory, require_package
from mt.text.archives import refuse_unsafe_zip
from mt.text.lines import IssueHandler, TextIssue, explain_read_errors, read_lines

Row = tuple[int, dict[str, Any]]

COLUMNS_HINT = "name the columns with source_column and target_column; header: false counts them"

_MAX_SHEET_BYTES = 2_000_000_000  # of all parts, unpacked
_MAX_TEXTS = 200_000_000  # bytes of the shared texts, which openpyxl keeps in memory
_MAX_ROWS = 2**20  # of Excel itself
_MAX_CELL = 2**24  # characters of a CSV file's cell, of 4 bytes each
_BATCH_ROWS = 1000  # of Parquet, held in memory twice
_OLD_EXCEL = b"\xd0\xcf\x11\xe0"  # the container of .xls and of encrypted workbooks


def table_rows(path: Path, source: TableFile, columns: tuple[str, str], on_issue: IssueHandler) -> Iterator[Row]:
    """Yield the line and the cells of each row; only the wanted columns of a Parquet file are decoded.

    `source` says how the table is written; `on_issue` handles rows that are skipped. Raises InputError if the file
    is missing or damaged.
    """
    if not path.is_file():
        raise InputError(f"{path}: no such file")
    if source.kind == ".parquet":
        return _parquet_rows(path, columns, on_issue)
    if source.kind == ".jsonl":
        return _jsonl_rows(path, on_issue)
    return _name_cells(read_cells(path, source, on_issue), source.header, columns, path, on_issue)


def read_cells(path: Path, source: TableFile, on_issue: IssueHandler) -> Iterator[tuple[int, list[Any]]]:
    """Yield the line and the cells of each row of a TSV, CSV or Excel file."""
    if source.kind == ".xlsx":
        return _sheet_cells(path, source.sheet)
    return (_quoted_cells if source.is_quoted else _plain_cells)(path, source.separator, on_issue)


def no_column(column: str, columns: Iterable[str]) -> str:
    """Describe a missing column."""
    return f"no column '{column}', only {', '.join(map(str, columns))}"


def row_issue(name: object, unit: str, number: int, problem: str, hint: str = "") -> TextIssue:
    """Describe a row that is skipped; `unit` stands between the file's name and the row's number."""
    return TextIssue("row", str(name), number, f"{name}{unit}{number}: {problem}", hint)


def _name_cells(
    lines: Iterator[tuple[int, list[Any]]], header: bool, wanted: tuple[str, str], path: Path, on_issue: IssueHandler
) -> Iterator[Row]:
    """Yield the cells of each row by column; a row with too many, or without a wanted one, is skipped."""
    columns: list[str] = []
    for number, cells in lines:
        if not columns:
            columns = [*map(str, cells)] if header else [str(column) for column, _ in enumerate(cells, 1)]
            _refuse_repeated([name for name in columns if name in wanted], f"{path}:{number}")
            if header:
                continue
        if len(cells) > len(columns):
            problem = f"{len(cells)} cells, but the first line has {len(columns)} columns"
            on_issue(row_issue(path, ":", number, problem, "look for a separator inside a sentence"))
        elif missing := [name for name in wanted if name in columns[len(cells) :]]:
            problem = f"ends before column {missing[0]!r}"
            on_issue(row_issue(path, ":", number, problem, "look for a missing separator"))
        else:
            yield number, dict(zip(columns, cells, strict=False))


def _refuse_repeated(columns: Sequence[str], name: str) -> None:
    if repeated := [column for column in columns if columns.count(column) > 1]:
        raise InputError(f"{name}: two columns are named {repeated[0]!r}", "rename one of them")


def _plain_cells(path: Path, delimiter: str, on_issue: IssueHandler) -> Iterator[tuple[int, list[str]]]:
    """Yield the cells of each line; quotes have no meaning."""
    for number, line in enumerate(read_lines(path, on_issue), 1):
        if line or number == 1:
            yield number, line.split(delimiter)


def _quoted_cells(path: Path, delimiter: str, on_issue: IssueHandler) -> Iterator[tuple[int, list[str]]]:
    """Yield cells by RFC 4180: a cell in double quotes may contain delimiters, doubled quotes and line breaks."""
    csv.field_size_limit(_MAX_CELL)
    rows = csv.reader((line + "\n" for line in read_lines(path, on_issue)), delimiter=delimiter, strict=True)
    start = 1  # of a row, which an unclosed quote makes long
    try:
        for cells in rows:
            if cells:
                yield start, cells
            start = rows.line_num + 1
    except csv.Error as error:
        problem, hint = f"not valid CSV: {error}", "close the quote; quoting: false reads quotes as text"
        if "new-line character" in str(error):
            problem, hint = "a carriage return that ends no line", "save the table with line ends of LF or CR LF"
        raise InputError(f"{path}:{start}: {problem}", hint) from None


def _jsonl_rows(path: Path, on_issue: IssueHandler) -> Iterator[Row]:
    for number, line in enumerate(read_lines(path, on_issue), 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
            problem = "" if isinstance(row, dict) else f"not a JSON object but {line:.60}"
        except (ValueError, RecursionError) as error:
            problem = f"not valid JSON: {error}"
        if problem:
            on_issue(row_issue(path, ":", number, problem))
        else:
            yield number, row


def _parquet_rows(path: Path, wanted: tuple[str, str], on_issue: IssueHandler) -> Iterator[Row]:
    import pyarrow
    from pyarrow import parquet

    number = 0
    try:
        with parquet.ParquetFile(path) as file:
            names = file.schema_arrow.names
            missing = next((name for name in wanted if name not in names), None)
            if missing is not None and "translation" not in names:
                raise InputError(f"{path}: {no_column(missing, names)}", COLUMNS_HINT)
            fields = [field for field in file.schema_arrow if field.name in ("translation", *wanted)]
            for group in (fields, *(field.flatten() for field in fields)):
                _refuse_repeated([field.name for field in group], str(path))
            for batch in file.iter_batches(_BATCH_ROWS, columns=[field.name for field in fields]):
                try:
                    yield from enumerate(batch.to_pylist(), number + 1)
                except UnicodeDecodeError:  # the library accepts any bytes as text
                    yield from _valid_rows(batch, path, number, on_issue)
                number += batch.num_rows
    except (pyarrow.ArrowException, OSError) as error:
        raise InputError(f"{path}: cannot be read as Parquet: {first_line(error)}") from None


def _valid_rows(batch: Any, path: Path, before: int, on_issue: IssueHandler) -> Iterator[Row]:
    """Yield the rows of a Parquet batch that are UTF-8, decoding one at a time."""
    for number in range(before + 1, before + batch.num_rows + 1):
        try:
            (row,) = batch.slice(number - before - 1, 1).to_pylist()
        except UnicodeDecodeError:
            on_issue(row_issue(path, ": row ", number, "not valid UTF-8"))
        else:
            yield number, row


def _sheet_cells(path: Path, sheet: str | None) -> Iterator[tuple[int, list[Any]]]:
    """Yield the number and the cells of each row that is not empty, up to the last column of the first row.

    `sheet` names a sheet, None takes the first. Numbers are read as text and formulas as their results. Dates are left
    as they are, which is not text.
    """
    require_package("openpyxl", f"{path}: reading .xlsx files")
    import openpyxl

    try:
        with explain_read_errors(path):
            _refuse_unsafe(path)
        with closing(openpyxl.load_workbook(path, read_only=True, data_only=True, keep_links=False)) as workbook:
            names = [worksheet.title for worksheet in workbook.worksheets]
            if not names or sheet not in (None, *names):
                raise InputError(f"{path}: no sheet {sheet!r}, only {', '.join(names)}", "name one of these as `sheet`")
            rows = workbook[sheet or names[0]].iter_rows(values_only=True)
            width = 0
            for number, values in enumerate(rows, 1):
                if number > _MAX_ROWS:
                    message = f"{path}: more than {_MAX_ROWS:,} rows, which Excel does not have"
                    raise InputError(message, "save it again")
                cells = list(map(_cell, values))
                while len(cells) > width and cells[-1] == "":
                    cells.pop()
                width = width or len(cells)
                if any(cells):
                    yield number, cells + [""] * (width - len(cells))
    except Exception as error:  # the library raises whatever its parts do, OSError for a file of another program
        if isinstance(error, InputError) or getattr(error, "errno", None) or is_out_of_memory(error):
            raise
        message = f"{path}: damaged, or not an .xlsx file ({first_line(error, 200)})"
        raise InputError(message, "save it again in its program") from None


def _refuse_unsafe(path: Path) -> None:
    with path.open("rb") as file:
        if file.read(4) == _OLD_EXCEL:
            message = f"{path}: protected by a password, or an old .xls under another name"
            raise InputError(message, "save it as .xlsx without a password")
        with zipfile.ZipFile(file) as archive:
            refuse_unsafe_zip(archive, str(path), _MAX_SHEET_BYTES)
            for info in archive.infolist():
                if info.filename.endswith("sharedStrings.xml") and info.file_size > _MAX_TEXTS:
                    raise InputError(f"{path}: more than {_MAX_TEXTS // 10**6} MB of text", "save it as .tsv")
                with archive.open(info) as part:
                    if re.search(rb"<!(DOCTYPE|ENTITY)", part.read(2**16).replace(b"\0", b"")):
                        raise InputError(f"{path}: declares entities of its own", "save it again in Excel")


def _cell(value: Any) -> Any:
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, str):  # Excel escapes control characters, such as the CR of a line break
        return re.sub("_x00(5[Ff]|[01][0-9A-Fa-f])_", lambda code: chr(int(code[1], 16)), value)
    return "" if value is None else str(value) if isinstance(value, int | float) else value
