"""Where sentence pairs come from: plain files, tables, hub data sets, the built-in phrasebook."""

import csv
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from mt.config import Builtin, DataConfig, HubDataset, PairFiles, Source, TableFile
from mt.console import log
from mt.data import phrasebook
from mt.errors import InputError, MachineError, is_disk_full, is_out_of_memory
from mt.text.compressed import COMPRESSED
from mt.text.lines import Fault, Report, read_lines, read_parallel, refuse

Pair = tuple[str, str]
Numbered = tuple[int, str, str]
Row = tuple[int, dict[str, Any]]

_LINE_END = re.compile("\r?\n")
_SURROGATE = re.compile("[\ud800-\udfff]")
_COLUMNS = "name the columns with source_column and target_column; header: false counts those of a .tsv or .csv"


def read_pairs(source: Source, data: DataConfig) -> Iterator[Pair]:
    """Yields the (source, target) sentences of a source.

    Outer white space is removed and a line break inside a sentence becomes a space, so that every sentence is one line.

    Raises:
        InputError: a file is missing, damaged or ill-shaped; the message names it.
    """
    for _, src, tgt in read_numbered(source, data):
        yield one_line(src), one_line(tgt)


def one_line(text: str) -> str:
    """What training reads of a sentence."""
    text = text.strip()
    return _LINE_END.sub(" ", text) if "\n" in text else text


def read_numbered(source: Source, data: DataConfig, report: Report = refuse) -> Iterator[Numbered]:
    """Yields (line, source, target) of a source, the sentences as they are written.

    Args:
        source: where from.
        data: the configuration it is part of.
        report: is told of lines that are not UTF-8, rows that are left out and files of different length.

    Raises:
        InputError: nothing more can be read.
    """
    if isinstance(source, PairFiles):
        paths = (Path(data.root) / source.source, Path(data.root) / source.target)
        return ((line, src, tgt) for line, (src, tgt) in enumerate(read_parallel(*paths, report), 1))
    if isinstance(source, Builtin):
        return ((line, src, tgt) for line, (src, tgt) in enumerate(_read_builtin(source, data), 1))
    if isinstance(source, TableFile):
        path = Path(data.root) / source.file
        return _read_rows(_table_rows(path, source, data, report), source, data, str(path), report)
    return _read_rows(enumerate(_hub_rows(source), 1), source, data, f"{source.hub} ({source.split})", report)


def _read_builtin(source: Builtin, data: DataConfig) -> Iterator[Pair]:
    target_lang = data.language_of(source)
    if (data.source_lang, target_lang) not in {("en", "it"), ("it", "en")}:
        raise InputError(
            f"data: the built-in phrasebook is English-Italian, not {data.source_lang}-{target_lang}",
            "set data.source_lang and data.target_lang to en and it",
        )
    pairs = phrasebook.sentence_pairs(source.split)
    yield from pairs if data.source_lang == "en" else ((it, en) for en, it in pairs)


def _table_rows(path: Path, source: TableFile, data: DataConfig, report: Report) -> Iterator[Row]:
    """Streams the rows of a TSV, CSV, JSON-lines or Parquet file; of the last, columns nobody wants are not decoded.

    The text formats are read here, through the strict line reader, and not with `datasets`: that library guesses types
    (dates, numbers, "NA"), takes `*` in a file name for a pattern, and looks for a network.
    """
    if not path.is_file():
        raise InputError(f"{path}: no such file")
    kind = next((suffix.lower() for suffix in reversed(path.suffixes) if suffix.lower() not in COMPRESSED), "")
    if kind == ".parquet":
        return _parquet_rows(path, data.columns_of(source), report)
    if kind == ".jsonl":
        return _jsonl_rows(path, report)
    readers = {".tsv": _tsv_cells, ".csv": _csv_cells}
    if kind not in readers:
        raise InputError(f"{path}: unknown kind of table '{kind}'", f"known are {', '.join(readers)}, .jsonl, .parquet")
    return _cell_rows(readers[kind](path, report), source.header, data.columns_of(source), path, report)


def _cell_rows(
    lines: Iterator[tuple[int, list[str]]], header: bool, wanted: tuple[str, str], path: Path, report: Report
) -> Iterator[Row]:
    """Cells by column name. A row with too many, or that ends before a column that is wanted, is left out.

    Args:
        lines: where each row begins, and its cells.
        header: the first line names the columns; otherwise it is a row, and the columns are 1, 2 and so on.
    """
    columns: list[str] = []
    for number, cells in lines:
        if not columns:
            columns = cells if header else [str(place) for place, _ in enumerate(cells, 1)]
            _refuse_repeated([name for name in columns if name in wanted], f"{path}:{number}")
            if header:
                continue
        if len(cells) > len(columns):
            message = f"{path}:{number}: {len(cells)} cells, but the first line has {len(columns)} columns"
            report(Fault("row", str(path), number, message, "look for a separator inside of a sentence"))
        elif missing := [name for name in wanted if name in columns[len(cells) :]]:
            message = f"{path}:{number}: ends before column {missing[0]!r}"
            report(Fault("row", str(path), number, message, "look for a separator that is missing"))
        else:
            yield number, dict(zip(columns, cells, strict=False))


def _tsv_cells(path: Path, report: Report) -> Iterator[tuple[int, list[str]]]:
    """Cells between tabs, nothing quoted."""
    for number, line in enumerate(read_lines(path, report), 1):
        if line or number == 1:
            yield number, line.split("\t")


def _csv_cells(path: Path, report: Report) -> Iterator[tuple[int, list[str]]]:
    """RFC 4180: a cell in double quotes may hold commas, quotes (doubled) and line breaks."""
    csv.field_size_limit(2**31 - 1)
    rows = csv.reader((line + "\n" for line in read_lines(path, report)), strict=True)
    begins = 1  # the first line of a row, which a quote that nobody closed makes long
    try:
        for cells in rows:
            if cells:
                yield begins, cells
            begins = rows.line_num + 1
    except csv.Error as error:
        raise InputError(f"{path}:{begins}: not valid CSV: {error}") from None


def _jsonl_rows(path: Path, report: Report) -> Iterator[Row]:
    for number, line in enumerate(read_lines(path, report), 1):
        if not line.strip():
            continue
        problem = ""
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            problem = f"not valid JSON: {error}"
        else:
            if isinstance(row, dict):
                yield number, row
            else:
                problem = f"not a JSON object but {line:.60}"
        if problem:
            report(Fault("row", str(path), number, f"{path}:{number}: {problem}"))


def _parquet_rows(path: Path, wanted: tuple[str, str], report: Report) -> Iterator[Row]:
    import pyarrow
    from pyarrow import parquet

    number = 0
    try:
        with parquet.ParquetFile(path) as file:
            there = file.schema_arrow.names
            missing = next((name for name in wanted if name not in there), None)
            if missing is not None and "translation" not in there:
                raise InputError(f"{path}: {_no_column(missing, there)}", _COLUMNS)
            read = [field for field in file.schema_arrow if field.name in ("translation", *wanted)]
            for fields in (read, *(field.flatten() for field in read)):
                _refuse_repeated([field.name for field in fields], str(path))
            for batch in file.iter_batches(columns=[field.name for field in read]):
                try:
                    yield from enumerate(batch.to_pylist(), number + 1)
                except UnicodeDecodeError:  # the library takes any bytes for text
                    yield from _one_by_one(batch, path, number, report)
                number += batch.num_rows
    except (pyarrow.ArrowException, OSError) as error:
        raise InputError(f"{path}: cannot be read as Parquet: {_first_line(error)}") from None


def _refuse_repeated(columns: Sequence[str], where: str) -> None:
    if repeated := [name for name in columns if columns.count(name) > 1]:
        raise InputError(f"{where}: two columns are called {repeated[0]!r}", "rename one of them")


def _one_by_one(batch: Any, path: Path, before: int, report: Report) -> Iterator[Row]:
    for place in range(batch.num_rows):
        number = before + place + 1
        try:
            (row,) = batch.slice(place, 1).to_pylist()
        except UnicodeDecodeError:
            report(Fault("row", str(path), number, f"{path}: row {number}: not valid UTF-8"))
        else:
            yield number, row


def _hub_rows(source: HubDataset) -> Iterator[dict[str, Any]]:
    """The rows of a Hugging Face data set; `HF_HOME` and `HF_HUB_OFFLINE` are honoured by the library."""
    from datasets import disable_progress_bars, load_dataset

    disable_progress_bars()
    log.info("loading %s (%s) from the Hugging Face hub or its cache", source.hub, source.split)
    try:
        yield from load_dataset(
            source.hub, source.config, split=source.split, revision=source.revision, streaming=source.streaming
        )
    except Exception as error:
        name = f"{source.hub} (config {source.config}, split {source.split})"
        for cause in _causes(error):
            if is_out_of_memory(cause):
                raise cause from None
            if is_disk_full(cause):
                raise MachineError(
                    f"{name}: no space left on the disk for the library's cache",
                    "free some space, set HF_HOME to a folder on a larger disk, or set `streaming: true`",
                ) from None
        raise InputError(
            f"{name}: cannot be loaded: {_first_line(error)}",
            "check the name and the network; a copy in the cache (HF_HOME) works offline",
        ) from None


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _first_line(error: Exception) -> str:
    cause = error.__cause__ or error
    return (str(cause).strip().splitlines() or [type(cause).__name__])[0][:300]


def _read_rows(
    rows: Iterable[Row], columns: TableFile | HubDataset, data: DataConfig, name: str, report: Report
) -> Iterator[Numbered]:
    """Takes the two sentences out of each row: named columns, or the hub's `translation` dictionary."""
    names = data.columns_of(columns)
    # A file of text has lines, of which a row of CSV may take several; elsewhere rows are counted.
    unit = ":" if isinstance(columns, TableFile) and not name.lower().endswith(".parquet") else ": row "
    for line, row in rows:
        nested = row.get("translation")
        cells = nested if isinstance(nested, dict) and not columns.source_column else row
        if problem := next(filter(None, (_problem(cells, column) for column in names)), ""):
            hint = "" if all(column in cells for column in names) else _COLUMNS
            report(Fault("row", name, line, f"{name}{unit}{line}: {problem}", hint))
        else:
            yield line, cells[names[0]] or "", cells[names[1]] or ""


def _problem(cells: dict[str, Any], column: str) -> str:
    """Why a cell cannot be a sentence; empty where it can."""
    if column not in cells:
        return _no_column(column, cells)
    if not isinstance(cells[column], str | None):
        return f"column '{column}' is no text but {cells[column]!r:.60}"
    if _SURROGATE.search(cells[column] or ""):
        return f"column '{column}' holds half of a surrogate pair"
    return ""


def _no_column(column: str, there: Iterable[str]) -> str:
    return f"no column '{column}', only {', '.join(map(str, there))}"
