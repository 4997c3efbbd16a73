"""Sentence pairs of every kind of source."""

import os
import re
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any

from mt.config import (
    Builtin,
    DataConfig,
    HubDataset,
    OpusCorpus,
    PairFiles,
    SacrebleuSet,
    Source,
    TableFile,
    TextFolder,
)
from mt.config.sources import BILINGUAL
from mt.console import log
from mt.data import phrasebook
from mt.data.bilingual import bilingual_pairs
from mt.data.named_corpora import opus_archive, sacrebleu_files
from mt.data.paired_texts import LinePair, LineText, paired_texts, read_line_pairs
from mt.data.tables import COLUMNS_HINT, Row, no_column, row_issue, table_rows
from mt.errors import InputError, MachineError, first_line, is_disk_full, is_out_of_memory
from mt.storage.download import offline_switch
from mt.text.archives import ARCHIVES
from mt.text.lines import IssueHandler, raise_issue

Pair = tuple[str, str]
NumberedPair = tuple[int, str, str]

_LINE_END = re.compile("\r?\n")
_SURROGATE = re.compile("[\ud800-\udfff]")


def read_pairs(source: Source, data: DataConfig) -> Iterator[Pair]:
    """Yield the (source, target) sentences of a source, each normalised by `one_line`.

    Raises InputError, which names the file, if one is missing, damaged or malformed.
    """
    for _, src, tgt in read_numbered(source, data):
        yield one_line(src), one_line(tgt)


def one_line(text: str) -> str:
    """Strip a sentence and replace the line breaks in it by spaces."""
    text = text.strip()
    return _LINE_END.sub(" ", text) if "\n" in text else text


def read_numbered(source: Source, data: DataConfig, on_issue: IssueHandler = raise_issue) -> Iterator[NumberedPair]:
    """Yield (line, source, target) of a source, the sentences unchanged.

    `on_issue` handles lines that are not UTF-8, rows that are skipped, and files of different length. Raises InputError
    if the source cannot be read.
    """
    match source:
        case Builtin():
            return _numbered(_read_builtin(source, data))
        case HubDataset():
            rows = enumerate(_hub_rows(source), 1)
            return _select_columns(rows, source, data, f"{source.hub} ({source.split})", on_issue)
        case TableFile() if source.kind not in ARCHIVES:
            path, columns = Path(data.root) / source.file, data.columns_of(source)
            if source.kind in BILINGUAL:
                return bilingual_pairs(path, source.kind, columns, not _is_read_both_ways(source, data))
            return _select_columns(table_rows(path, source, columns, on_issue), source, data, str(path), on_issue)
    return chain.from_iterable(_numbered(read_line_pairs(pair, on_issue)) for pair in line_texts(source, data))


def _is_read_both_ways(source: TableFile, data: DataConfig) -> bool:
    """Return True if another source reads the same file in the opposite direction."""
    opposite = data.languages_of(source)[::-1]
    splits = (split for split in (data.train, data.valid, data.test) if isinstance(split, tuple))
    others = (other for other in chain(*splits) if isinstance(other, TableFile) and other.file == source.file)
    return any(data.languages_of(other) == opposite for other in others)


def line_texts(source: Source, data: DataConfig) -> list[LinePair]:
    """Return the (source, target) texts of a line-based source; none for other sources.

    Raises InputError if a folder or an archive cannot be read, or has no such texts.
    """
    root, languages = Path(data.root), data.languages_of(source)
    match source:
        case PairFiles():
            return [(LineText(root / source.source), LineText(root / source.target))]
        case SacrebleuSet():
            first, second = sacrebleu_files(source.sacrebleu, languages)
            return [(LineText(first), LineText(second))]
        case TextFolder():
            return paired_texts(root / source.folder, languages, source.stem)
        case OpusCorpus():
            return paired_texts(opus_archive(source.opus, source.version, languages)[0], languages)
        case TableFile() if source.kind in ARCHIVES:
            return paired_texts(root / source.file, data.columns_of(source), source.stem)
    return []


def _numbered(pairs: Iterable[Pair]) -> Iterator[NumberedPair]:
    return ((line, src, tgt) for line, (src, tgt) in enumerate(pairs, 1))


def _read_builtin(source: Builtin, data: DataConfig) -> Iterator[Pair]:
    source_lang, target_lang = data.languages_of(source)
    if (source_lang, target_lang) not in {("en", "it"), ("it", "en")}:
        raise InputError(
            f"data: the built-in phrasebook is English-Italian, not {source_lang}-{target_lang}",
            "set data.source_lang and data.target_lang to en and it",
        )
    pairs = phrasebook.sentence_pairs(source.split)
    yield from pairs if source_lang == "en" else ((it, en) for en, it in pairs)


def _hub_rows(source: HubDataset) -> Iterator[dict[str, Any]]:
    """Yield the rows of a Hugging Face data set; the library honours `HF_HOME`."""
    if offline_switch():
        os.environ["HF_HUB_OFFLINE"] = "1"  # the library reads it when it is imported
    from datasets import disable_progress_bars, load_dataset

    disable_progress_bars()
    log.info("loading %s (%s) from the Hugging Face hub or its cache", source.hub, source.split)
    try:
        yield from load_dataset(
            source.hub, source.config, split=source.split, revision=source.revision, streaming=source.streaming
        )
    except Exception as error:
        name = f"{source.hub} (config {source.config}, split {source.split})"
        cause: BaseException | None = error
        while cause is not None:
            if is_out_of_memory(cause):
                raise cause from None
            if is_disk_full(cause) or isinstance(cause, PermissionError):
                raise MachineError(
                    f"{name}: the library's cache cannot be written: {first_line(cause)}",
                    "free some space, set HF_HOME to a folder on a larger disk, or set `streaming: true`",
                ) from None
            cause = cause.__cause__ or cause.__context__
        raise InputError(
            f"{name}: cannot be loaded: {first_line(error.__cause__ or error)}",
            "check the name and the network; a copy in the cache (HF_HOME) works offline",
        ) from None


def _select_columns(
    rows: Iterable[Row], source: TableFile | HubDataset, data: DataConfig, name: str, on_issue: IssueHandler
) -> Iterator[NumberedPair]:
    """Select the two sentences of each row: named columns, or the hub's `translation` dictionary."""
    columns = data.columns_of(source)
    # Text tables count lines, of which a CSV row may take several; others count rows.
    unit = ":" if isinstance(source, TableFile) and source.kind not in (".parquet", ".xlsx") else ": row "
    for line, row in rows:
        nested = row.get("translation")
        cells = nested if isinstance(nested, dict) and source.source_column not in row else row
        if problem := next(filter(None, (_cell_problem(cells, column) for column in columns)), ""):
            hint = COLUMNS_HINT if problem.startswith("no column") else ""
            if hint and len(cells) == 1 and ";" in next(iter(cells)):
                hint = "set `delimiter: ;`"
            on_issue(row_issue(name, unit, line, problem, hint))
        else:
            yield line, cells[columns[0]] or "", cells[columns[1]] or ""


def _cell_problem(cells: dict[str, Any], column: str) -> str:
    """Explain why a cell is not a sentence; empty if it is one."""
    if column not in cells:
        if cells.get("translation", "") is None:
            return "'translation' is null"
        return no_column(column, cells)
    if not isinstance(cells[column], str | None):
        return f"column '{column}' is not text but {cells[column]!r:.60}"
    if _SURROGATE.search(cells[column] or ""):
        return f"column '{column}' contains half of a surrogate pair"
    return ""
