"""Tables of scored pairs: the score itself, and thresholds that select pairs by it.

N pairs, R random pairs
"""

import json
import math
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mt.config import DataConfig
from mt.console import table
from mt.errors import InputError
from mt.extras.doctor.bitexts import bitexts_of
from mt.extras.doctor.characters import visible
from mt.extras.doctor.findings import Chunk, ChunkResult, bits
from mt.extras.doctor.rules import SELECTING
from mt.extras.doctor.scoring import RANDOM_LINE, RAW_COLUMNS
from mt.storage import atomic
from mt.storage.manifest import sha256
from mt.storage.output_path import refuse_inputs, require_writable

RAW, TABLE, SUMMARY = "features.tsv", "scores.tsv", "scores.json"
_MARK = ".mt-data-score"  # an empty file in every folder of scores, finished or not
COLUMNS = (*SELECTING, "forward", "backward", "ratio")

_EVIDENCE = ("forward_contrast", "backward_contrast", "lexicon", "similarity")
_CLEAR = 0.95  # quantile of random pairs above which a pair is clearly better
_FORMAT = 1

Values = NDArray[np.float32]


@dataclass(frozen=True)
class PairScores:
    """Scores of the training text.

    Attributes:
        values: (N,), higher is better, NaN for a pair without a score.
        hashes: (N,), of the pairs as they were scored (`pair_hash`).
        low: (N,), whether a pair is below the threshold of its source.
        threshold: the least value that is not low, if that is one number.
        sources: name and pairs of each source.
        place: the table, for messages.
    """

    values: Values
    hashes: NDArray[np.uint64]
    low: NDArray[np.bool_]
    threshold: float | None
    sources: tuple[tuple[str, int], ...]
    place: str

    def mark(self, chunk: Chunk, result: ChunkResult) -> None:
        """Mark the low pairs of a chunk of the training text; raise InputError if the chunk has other pairs."""
        rows = slice(chunk.offset, chunk.offset + len(chunk.pairs))
        scored, read = self.hashes[rows], result.hashes["pair"]
        different = [*np.flatnonzero(scored != read[: len(scored)]).tolist(), len(scored)]
        if different[0] < len(read):
            where = f"{chunk.files[0]}:{chunk.lines[different[0]]}"
            message = f"{self.place}: scores of another text: {where} is not the pair that was scored"
            raise InputError(message, "score this text, after any repair: mt data score")
        low = np.flatnonzero(self.low[rows])
        result.masks[low] |= bits("low-score")
        for index in low[: chunk.max_examples].tolist():
            note = f"score {self.values[chunk.offset + index]:.2f}"
            result.findings.show("low-score", chunk.example(index, note))


def require_scores_folder(folder: Path, data: DataConfig) -> None:
    """Refuse a folder that holds an input, or that `mt data score` did not write."""
    require_writable(folder / TABLE, "--output")
    if folder.is_dir() and any(folder.iterdir()) and not (folder / _MARK).exists():
        message = f"--output {folder}: this folder exists and was not made by `mt data score`"
        raise InputError(message, "name a new folder")
    texts = (path for bitext in bitexts_of(data) for path in bitext.inputs())
    refuse_inputs([folder / TABLE, folder / SUMMARY], texts)


def mark_scores_folder(folder: Path) -> None:
    """Mark a folder as made by `mt data score`, before anything else is written into it."""
    with atomic.explained(folder):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / _MARK).touch()


def finished_summary(folder: Path, key: str) -> dict[str, Any] | None:
    """Return the summary of a finished table with this key, if the table is as it was written."""
    try:
        summary: dict[str, Any] = json.loads((folder / SUMMARY).read_bytes())
        return summary if summary["key"] == key and summary["table"] == sha256(folder / TABLE) else None
    except (OSError, ValueError, TypeError, KeyError):
        return None


def write_scores(folder: Path, facts: Mapping[str, Any]) -> dict[str, Any]:
    """Write the table and its summary from a raw table of features, and return the summary.

    The score is the mean of the evidence (contrast in both directions, lexicon coverage, similarity), each in standard
    deviations above the mean of pairs put together at random. The threshold is half the median of the pairs that are
    clearly better than these.

    Args:
        folder: of the features that `score_pairs` wrote, the table and the summary.
        facts: further entries of the summary, with file and pairs of each source under `sources`.
    """
    raw, files = folder / RAW, [visible(source["file"]) for source in facts["sources"]]
    features = np.loadtxt(raw, delimiter="\t", usecols=[1, *range(3, len(RAW_COLUMNS))], ndmin=2, dtype=np.float32)
    columns = dict(zip(("line", *RAW_COLUMNS[3:]), features.T, strict=True))
    is_random = columns["line"] == RANDOM_LINE
    evidence = []
    for name in _EVIDENCE:
        values, random = columns[name], columns[name][is_random]
        random = random[~np.isnan(random)]
        if len(random) > 1 and random.std() > 0:
            evidence.append((values - random.mean()) / random.std())
    # Rounded as in the table, so that as many pairs are below the threshold as when it is read.
    scores = np.mean(evidence, axis=0).round(4) if evidence else np.full(len(features), np.nan, np.float32)
    threshold = _threshold(scores[is_random], scores[~is_random])
    if threshold is None:
        _remove(raw)
        if np.isnan(scores[~is_random]).all():
            raise InputError("data.train: too few pairs to score, or too alike", "scores compare different pairs")
        message = "data.train: no pair scores better than pairs put together at random"
        raise InputError(message, "find the reason: mt data check")
    with atomic.new_file(folder / TABLE) as write, raw.open(encoding="utf-8") as rows:
        write(("\t".join(("file", "line", "pair", *COLUMNS)) + "\n").encode())
        for row, score, random in zip(rows, scores.tolist(), is_random.tolist(), strict=True):
            if not random:
                write(_line(row, score, files))
        with atomic.explained(folder / SUMMARY):  # an old threshold must not lie beside the new table
            (folder / SUMMARY).unlink(missing_ok=True)
    ends = np.cumsum([source["pairs"] for source in facts["sources"]])[:-1]
    sources = [
        {**source, "scored": int((~np.isnan(part)).sum()), "below": int((part < threshold).sum())}
        for source, part in zip(facts["sources"], np.split(scores[~is_random], ends), strict=True)
    ]
    summary = {"format": _FORMAT, "min_score": threshold, **facts, "sources": sources, "table": sha256(folder / TABLE)}
    atomic.write_json(folder / SUMMARY, summary)
    _remove(raw)
    return summary


def _remove(raw: Path) -> None:
    raw.with_suffix(".key").unlink(missing_ok=True)
    raw.unlink()


def _threshold(random: Values, scores: Values) -> float | None:
    random, scores = random[~np.isnan(random)], scores[~np.isnan(scores)]
    better = scores[scores > np.quantile(random, _CLEAR)] if len(random) else scores
    return round(float(np.median(better)) / 2, 4) if len(better) else None


def score_table(summary: Mapping[str, Any]) -> str:
    """Return the pairs of each source, and those below the suggested threshold, as a table."""
    header = ("source", "pairs", "scored", f"below {summary['min_score']:.2f}", "share")
    rows = [
        (f"{number}. {source['file']}", *(f"{source[key]:,}" for key in ("pairs", "scored", "below")),
         f"{100 * source['below'] / max(1, source['scored']):.1f} %")
        for number, source in enumerate(summary["sources"], 1)
    ]  # fmt: skip
    return table(header, rows)


def _line(row: str, score: float, files: Sequence[str]) -> bytes:
    number, line, key, *cells = row.rstrip("\n").split("\t")
    values = dict(zip(RAW_COLUMNS[3:], cells, strict=True))
    forward, backward = float(values["forward"]), float(values["backward"])
    dual = math.exp(-abs(forward - backward) - (forward + backward) / 2)
    contrast = (float(values["forward_contrast"]) + float(values["backward_contrast"])) / 2
    values |= {"score": f"{score:.4f}", "dual": f"{dual:.4g}", "contrast": f"{contrast:.4g}"}
    return ("\t".join((files[int(number) - 1], line, key, *(values[name] for name in COLUMNS))) + "\n").encode()


def _read_column(path: Path, column: str) -> tuple[Values, NDArray[np.uint64]]:
    """Return a column of a table, and the hashes of its pairs."""
    values, hashes = array("f"), bytearray()  # of millions of pairs
    with path.open(encoding="utf-8") as table:
        position = next(table).rstrip("\n").split("\t").index(column)
        for line in table:
            cells = line.rstrip("\n").split("\t")
            values.append(float(cells[position]))
            hashes += bytes.fromhex(cells[2])
    return np.array(values), np.frombuffer(bytes(hashes), "<u8")


def load_scores(
    folder: Path, column: str = "score", min_score: float | None = None, shares: Mapping[int, float] | None = None
) -> PairScores:
    """Read the scores of a training text, and mark the low ones.

    Args:
        folder: from `write_scores`.
        column: one of `SELECTING`.
        min_score: the threshold of all sources; None: without `shares`, the one that the summary suggests for `score`.
        shares: of the pairs with a score to keep, by the number of the source from 1; 0 stands for all others.

    Raises:
        InputError: there is no such table, it is damaged or has no such scores, or a threshold is missing.
    """
    path = folder / TABLE
    if column not in SELECTING:
        raise InputError(f"--by {column}: scores have no such column to select by", f"one of {', '.join(SELECTING)}")
    for share in (shares or {}).values():
        if not 0 < share <= 1:
            raise InputError(f"--keep-share {share}: a share is more than 0 and at most 1")
    try:
        summary = json.loads((folder / SUMMARY).read_bytes())
        sources = tuple((str(source["file"]), int(source["pairs"])) for source in summary["sources"])
        sizes, suggested = [pairs for _, pairs in sources], float(summary["min_score"])
        values, hashes = _read_column(path, column)
    except FileNotFoundError:
        raise InputError(f"{folder}: no finished scores in it", "write them with mt data score --output") from None
    except (OSError, ValueError, TypeError, KeyError, IndexError, StopIteration):
        raise InputError(f"{path}: damaged, or not written by mt data score", "score again") from None
    if len(values) != sum(sizes):
        raise InputError(f"{path}: {len(values):,} of {sum(sizes):,} pairs", "score again")
    if np.isnan(values).all():
        raise InputError(f"{path}: no pair has a value in the column {column}", f"one of {', '.join(SELECTING)}")
    if shares is not None:
        return PairScores(values, hashes, _below_shares(values, sizes, shares), None, sources, str(path))
    if min_score is None and column != "score":
        raise InputError(f"--by {column}: scores suggest no threshold for it", "add --min-score or --keep-share")
    threshold = suggested if min_score is None else min_score
    return PairScores(values, hashes, values < threshold, threshold, sources, str(path))


def _below_shares(values: Values, sizes: Sequence[int], shares: Mapping[int, float]) -> NDArray[np.bool_]:
    """Mark (N,) the pairs below the best share of each source."""
    if unknown := set(shares) - set(range(len(sizes) + 1)):
        raise InputError(f"--keep-share: data.train has no source {min(unknown)}", f"it has {len(sizes)}")
    low = np.zeros(len(values), np.bool_)
    for number, (size, end) in enumerate(zip(sizes, np.cumsum(sizes).tolist(), strict=True), 1):
        part, share = values[end - size : end], shares.get(number, shares.get(0, 1.0))
        if not np.isnan(part).all():
            low[end - size : end] = part < np.nanquantile(part, 1 - share)
    return low
