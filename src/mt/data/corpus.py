"""Where sentence pairs come from: plain files, tables, hub data sets, the built-in phrasebook."""

import csv
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mt.compressed import COMPRESSED
from mt.config import Builtin, DataConfig, HubDataset, PairFiles, Source, TableFile
from mt.console import log
from mt.data.lines import read_lines, read_parallel
from mt.errors import InputError

Pair = tuple[str, str]


def read_pairs(source: Source, data: DataConfig) -> Iterator[Pair]:
    """Yields the (source, target) sentences of a source.

    Outer white space is removed and a line break inside a sentence becomes a space, so that every sentence is one line.

    Raises:
        InputError: a file is missing, damaged or ill-shaped; the message names it.
    """
    for src, tgt in _read_one(source, data):
        yield _one_line(src), _one_line(tgt)


def _one_line(text: str) -> str:
    return text.strip().replace("\n", " ")


def _read_one(source: Source, data: DataConfig) -> Iterator[Pair]:
    if isinstance(source, PairFiles):
        return read_parallel(Path(data.root) / source.source, Path(data.root) / source.target)
    if isinstance(source, Builtin):
        return _read_builtin(source, data)
    if isinstance(source, TableFile):
        path = Path(data.root) / source.file
        return _read_rows(_table_rows(path), source, data, str(path))
    return _read_rows(_hub_rows(source), source, data, f"{source.hub} ({source.split})")


def _read_builtin(source: Builtin, data: DataConfig) -> Iterator[Pair]:
    from mt.data import phrasebook

    target_lang = data.language_of(source)
    if (data.source_lang, target_lang) not in {("en", "it"), ("it", "en")}:
        raise InputError(
            f"data: the built-in phrasebook is English-Italian, not {data.source_lang}-{target_lang}",
            "set data.source_lang and data.target_lang to en and it",
        )
    pairs = phrasebook.sentence_pairs(source.split)
    yield from pairs if data.source_lang == "en" else ((it, en) for en, it in pairs)


def _table_rows(path: Path) -> Iterator[dict[str, Any]]:
    """Streams the rows of a TSV, CSV, JSON-lines or Parquet file.

    The text formats are read here, through the strict line reader, and not with `datasets`: that library guesses types
    (dates, numbers, "NA"), takes `*` in a file name for a pattern, and looks for a network.
    """
    if not path.is_file():
        raise InputError(f"{path}: no such file")
    kind = next((suffix.lower() for suffix in reversed(path.suffixes) if suffix.lower() not in COMPRESSED), "")
    readers = {".tsv": _tsv_rows, ".csv": _csv_rows, ".jsonl": _jsonl_rows, ".parquet": _parquet_rows}
    if kind not in readers:
        raise InputError(f"{path}: unknown kind of table '{kind}'", f"known are {', '.join(readers)}")
    return readers[kind](path)


def _tsv_rows(path: Path) -> Iterator[dict[str, Any]]:
    """Cells between tabs, nothing quoted; the first line names the columns."""
    lines = read_lines(path)
    columns = next(lines, "").split("\t")
    for number, line in enumerate(lines, 2):
        if line:
            yield _named(columns, line.split("\t"), f"{path}:{number}")


def _csv_rows(path: Path) -> Iterator[dict[str, Any]]:
    """RFC 4180: a cell in double quotes may hold commas, quotes (doubled) and line breaks."""
    csv.field_size_limit(2**31 - 1)
    rows = csv.reader((line + "\n" for line in read_lines(path)), strict=True)
    try:
        columns = next(rows, [])
        for row in rows:
            if row:
                yield _named(columns, row, f"{path}:{rows.line_num}")
    except csv.Error as error:
        raise InputError(f"{path}:{rows.line_num}: not valid CSV: {error}") from None


def _named(columns: list[str], cells: list[str], where: str) -> dict[str, Any]:
    """Cells by column name; missing ones are empty."""
    if len(cells) > len(columns):
        raise InputError(
            f"{where}: {len(cells)} cells, but the first line names {len(columns)} columns",
            "look for a separator inside of a sentence",
        )
    return {column: cells[i] if i < len(cells) else "" for i, column in enumerate(columns)}


def _jsonl_rows(path: Path) -> Iterator[dict[str, Any]]:
    for number, line in enumerate(read_lines(path), 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise InputError(f"{path}:{number}: not valid JSON: {error}") from None
        if not isinstance(row, dict):
            raise InputError(f"{path}:{number}: not a JSON object but {line:.60}")
        yield row


def _parquet_rows(path: Path) -> Iterator[dict[str, Any]]:
    import pyarrow
    from pyarrow import parquet

    try:
        with parquet.ParquetFile(path) as file:
            for batch in file.iter_batches():
                yield from batch.to_pylist()
    except (pyarrow.ArrowException, OSError) as error:
        raise InputError(f"{path}: cannot be read as Parquet: {_first_line(error)}") from None


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
        raise InputError(
            f"{source.hub} (config {source.config}, split {source.split}): cannot be loaded: {_first_line(error)}",
            "check the name and the network; a copy in the cache (HF_HOME) works offline",
        ) from None


def _first_line(error: Exception) -> str:
    cause = error.__cause__ or error
    return (str(cause).strip().splitlines() or [type(cause).__name__])[0][:300]


def _read_rows(
    rows: Iterator[dict[str, Any]], columns: TableFile | HubDataset, data: DataConfig, name: str
) -> Iterator[Pair]:
    """Takes the two sentences out of each row: named columns, or the hub's `translation` dictionary."""
    names = (columns.source_column or data.source_lang, columns.target_column or data.language_of(columns))
    for number, row in enumerate(rows, 1):
        nested = row.get("translation")
        cells = nested if isinstance(nested, dict) and not columns.source_column else row
        for column in names:
            if column not in cells:
                raise InputError(
                    f"{name}: row {number} has no column '{column}', only {', '.join(map(str, cells))}",
                    "name the columns with source_column and target_column",
                )
            if not isinstance(cells[column], str | None):
                raise InputError(f"{name}: row {number}: column '{column}' is no text but {cells[column]!r:.60}")
            if any("\ud800" <= character <= "\udfff" for character in cells[column] or ""):
                raise InputError(f"{name}: row {number}: column '{column}' holds half of a surrogate pair")
        yield cells[names[0]] or "", cells[names[1]] or ""
