"""Pictures of training text: maps of findings, evidence, length ratio and score by position, and scores by source."""

import base64
import html
from collections.abc import Sequence
from io import BytesIO
from math import exp

import numpy as np
from matplotlib.image import imsave

from mt.extras.doctor.actions import ranked
from mt.extras.doctor.check import CorpusReport
from mt.extras.doctor.lexicon import Array
from mt.extras.doctor.misalignment import Block
from mt.extras.doctor.position_map import BINS, RANGES, PositionMap, density
from mt.extras.doctor.rules import BIT
from mt.extras.reporting.charts import distribution
from mt.extras.reporting.html import details, figures, listing

_MIN_PAIRS = 300  # fewer need no map
_MAX_MAPS, _MAX_RULES, _MAX_BLOCKS = 12, 8, 200
_POINTS = 180  # places that show their values
_ENDS = {
    "evidence": ("translation", "unrelated"),
    "length ratio": ("target 4× longer", "4× shorter"),
    "score": ("better", "worse"),
}


def maps(report: CorpusReport) -> str:
    """Draw the maps of the training texts, of the twelve longest at most; the first three are open."""
    training = [one for one in report.statistics if one.bitext.split == "train"]
    starts = np.cumsum([0, *(one.pairs for one in training)]).tolist()
    order = sorted(range(len(report.maps)), key=lambda number: -training[number].pairs)[:_MAX_MAPS]
    content = ""
    for rank, number in enumerate(order):
        positions, files = report.maps[number], training[number].bitext.files
        if positions.pairs >= _MIN_PAIRS:
            figure = _figure(report, positions, files, slice(starts[number], starts[number + 1]), f"map{number}")
            name = " and ".join(dict.fromkeys(files))
            content += details(f"{name}, {positions.pairs:,} pairs", figure, is_open=rank < 3)
    return content


def score_distribution(scores: Array, sources: Sequence[tuple[str, int]], threshold: float | None = None) -> str:
    """Draw the distribution of scores (N,) of sources, each a name and its pairs, and the least score to be kept."""
    ends = np.cumsum([pairs for _, pairs in sources])[:-1]
    parts = [part[np.isfinite(part)] for part in np.split(scores, ends)]
    named = [(name, part) for (name, _), part in zip(sources, parts, strict=True) if len(part)]
    named.sort(key=lambda sample: -len(sample[1]))
    if len(named) > 3:
        named[2:] = [(f"{len(named) - 2} others", np.concatenate([part for _, part in named[2:]]))]
    if not named:
        return ""
    caption = "Scores of the training pairs"
    if threshold is not None:
        below = np.mean(np.concatenate([part for _, part in named]) < threshold)
        caption += f"; {100 * below:.1f} % are below {threshold:g}"
    return figures((caption, distribution("Scores", "score", named, threshold)))


def _figure(report: CorpusReport, positions: PositionMap, files: tuple[str, str], pairs: slice, name: str) -> str:
    counts, masks, scores = dict(positions.counts), report.masks[pairs], report.scores
    if scores is not None and np.isfinite(scores[pairs]).any():
        low, high = np.nanpercentile(scores[pairs], (1, 99)).tolist()
        columns = positions.columns(0, positions.pairs)
        counts["score"] = density(scores[pairs], columns, positions.n_columns, low, high + 1e-6)
    rules = [f.rule for f in ranked(report) if np.any(masks & np.uint64(BIT.get(f.rule.name, 0)))]
    rows = ""
    for rule in rules[:_MAX_RULES]:
        ink = _ink((masks & np.uint64(BIT[rule.name])) != 0, positions.n_columns)
        picture = _picture(ink[None], f"{name}-{rule.name}", f"{rule.name} by position", rule.severity)
        rows += f'<a href="#{rule.name}">{rule.name}</a>{picture}'
    marks = _marks(positions, files)
    for value, numbers in counts.items():
        high_end, low_end = _ENDS[value]
        ink = np.sqrt(numbers[::-1] / np.percentile(numbers[numbers > 0], 99)).clip(0, 1)
        over = _points(positions) if value == "evidence" else ""
        picture = _picture(ink, f"{name}-{value[0]}", f"{value} by position", "", marks, over)
        rows += f'<div class="axis"><span>{high_end}</span><b>{value}</b><span>{low_end}</span></div>{picture}'
    ends = "".join(f"<span>{number:,}</span>" for number in (1, positions.pairs // 2, positions.pairs))
    return (
        f'<figure class="map"><figcaption>Pairs by position; the darker, the more of them</figcaption>'
        f'<div class="grid">{rows}<span>pair</span><div class="positions">{ends}</div></div></figure>'
        f"{_listed(positions, files)}"
    )


def _ink(found: Array, n_columns: int) -> Array:
    """Return the darkness of each column, from 0 to 1, by its share of pairs; a single pair is visible."""
    starts = -(-np.arange(n_columns) * len(found) // n_columns)
    shares = np.add.reduceat(found, starts, dtype=np.int64) / np.diff(starts, append=len(found))
    return np.where(shares > 0, 0.3 + 0.7 * np.sqrt(shares), 0.0)


def _picture(ink: Array, name: str, label: str, kind: str, below: str = "", above: str = "") -> str:
    """Draw darkness (rows, C) from 0 to 1 in a colour of the page, as the mask of a rectangle."""
    buffer = BytesIO()
    imsave(buffer, ink, cmap="gray", vmin=0, vmax=1, format="png", metadata={"Software": None})
    height, width = ink.shape
    size = f'width="{width}" height="{height}"'
    image = f'href="data:image/png;base64,{base64.b64encode(buffer.getvalue()).decode()}"'
    view = f'viewBox="0 0 {width} {height}" preserveAspectRatio="none" role="img" aria-label="{label}"'
    return (
        f'<svg class="{kind}" {view}>{below}'
        f'<mask id="{name}"><image {size} preserveAspectRatio="none" {image}/></mask>'
        f'<rect {size} fill="currentColor" mask="url(#{name})"/>{above}</svg>'
    )


def _longest(positions: PositionMap) -> list[Block]:
    longest = sorted(positions.blocks, key=lambda block: block.start - block.end)[:_MAX_BLOCKS]
    return sorted(longest, key=lambda block: block.start)


def _listed(positions: PositionMap, files: tuple[str, str]) -> str:
    number, shown = len(positions.blocks), listing(block.described(*files) for block in _longest(positions))
    return details(f"Blocks out of step: {number:,}" + (", the longest" if number > _MAX_BLOCKS else ""), shown)


def _marks(positions: PositionMap, files: tuple[str, str]) -> str:
    """Mark the blocks that are out of step, at a width that can be seen."""
    scale = positions.n_columns / positions.pairs
    return "".join(
        f'<rect class="block" x="{block.start * scale:.1f}" '
        f'width="{max(2.0, (block.end - block.start) * scale):.1f}" height="{BINS}">'
        f"<title>{html.escape(block.described(*files))}</title></rect>"
        for block in _longest(positions)
    )


def _points(positions: PositionMap) -> str:
    """Return transparent bars with the mean values around a position as their titles."""
    width = -(-positions.n_columns // _POINTS)
    means = []
    for name, (low, high) in RANGES.items():
        middles = low + (np.arange(BINS) + 0.5) / BINS * (high - low)
        counts = np.add.reduceat(positions.counts[name], np.arange(0, positions.n_columns, width), axis=1)
        means.append(middles @ counts / counts.sum(axis=0).clip(1))
    return "".join(
        f'<rect class="point" x="{n * width}" width="{width}" height="{BINS}"><title>'
        f"pair {n * width * positions.pairs // positions.n_columns + 1:,}: evidence {evidence:.1f}, "
        f"length ratio {exp(ratio):.2f}</title></rect>"
        for n, (evidence, ratio) in enumerate(zip(*means, strict=True))
    )
