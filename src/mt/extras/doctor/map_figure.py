"""Pictures of training text: findings, evidence, length ratio and score by position, and scores by source."""

import base64
import html
from collections.abc import Sequence
from io import BytesIO
from itertools import accumulate

import numpy as np
from matplotlib.image import imsave

from mt.data.lexicon import Array
from mt.extras.doctor.actions import ranked
from mt.extras.doctor.block_checks import BINS, PositionMap
from mt.extras.doctor.check import CorpusReport
from mt.extras.doctor.rules import BIT
from mt.extras.reporting.charts import histogram
from mt.extras.reporting.html import details, figures, listing

_MIN_PAIRS = 300  # fewer need no map
_MAX_MAPS, _OPEN_MAPS, _MAX_RULES, _MAX_BLOCKS = 12, 3, 8, 100
_ENDS = {  # of the vertical axes
    "evidence": ("translation", "unrelated"),
    "length ratio": ("target 4× longer", "4× shorter"),
    "score": ("better", "worse"),
}


def maps(report: CorpusReport) -> str:
    """Draw the maps of the longest training texts, folded from the fourth on."""
    ends = accumulate(one.pairs for one in report.training)
    texts = sorted(enumerate(zip(report.training, ends, strict=True)), key=lambda text: -text[1][0].pairs)
    content = ""
    for number, (one, end) in [text for text in texts if text[1][0].pairs >= _MIN_PAIRS][:_MAX_MAPS]:
        figure = _figure(report, report.maps[number], one.bitext.files, slice(end - one.pairs, end), f"map{number}")
        name = f"{' and '.join(dict.fromkeys(one.bitext.files))}, {one.pairs:,} pairs"
        content += details(name, figure, is_open=content.count("<figure") < _OPEN_MAPS)
    return content


def score_distribution(scores: Array, sources: Sequence[tuple[str, int]], threshold: float | None = None) -> str:
    """Draw the distribution of scores (N,) by source, each a name and its pairs; `threshold`: the least kept."""
    parts = np.split(scores, np.cumsum([pairs for _, pairs in sources])[:-1])
    named = [(name, part[np.isfinite(part)]) for (name, _), part in zip(sources, parts, strict=True)]
    named = sorted((sample for sample in named if len(sample[1])), key=lambda sample: -len(sample[1]))
    if len(named) > 3:
        named[2:] = [(f"{len(named) - 2} others", np.concatenate([part for _, part in named[2:]]))]
    if not named:
        return ""
    caption = "Scores of the training pairs, % of each source"
    if threshold is not None:
        caption += f"; {100 * np.mean(scores[np.isfinite(scores)] < threshold):.1f} % are below {threshold:g}"
    return figures((caption, histogram("Scores", "score", named, 99.5, threshold)))


def _figure(report: CorpusReport, positions: PositionMap, files: tuple[str, str], pairs: slice, name: str) -> str:
    counts, masks = dict(positions.counts), report.masks[pairs]
    if report.scores and np.isfinite(scores := report.scores.values[pairs]).any():
        low, high = np.nanpercentile(scores, (1, 99)).tolist()
        counts["score"] = positions.density(0, scores, low, high + 1e-6)
    longest = sorted(positions.blocks, key=lambda block: block.start - block.end)[:_MAX_BLOCKS]
    described = {block: block.described(*files) for block in sorted(longest, key=lambda block: block.start)}
    scale = positions.n_columns / positions.pairs
    marks = "".join(
        f'<rect x="{block.start * scale:.1f}" width="{max(1.0, (block.end - block.start) * scale):.1f}" '
        f'height="{BINS}"><title>{html.escape(text)}</title></rect>'
        for block, text in described.items()
    )
    rows, rules = "", [finding.rule for finding in ranked(report)]
    for rule in [rule for rule in rules if np.any(masks & np.uint64(BIT.get(rule.name, 0)))][:_MAX_RULES]:
        ink = _ink((masks & np.uint64(BIT[rule.name])) != 0, positions.n_columns)
        picture = _picture(ink[None], f"{name}-{rule.name}", f"{rule.name} by position", rule.severity)
        rows += f'<a href="#{rule.name}">{rule.name}</a>{picture}'
    for value, numbers in counts.items():
        high_end, low_end = _ENDS[value]
        ink = np.sqrt(numbers[::-1] / np.percentile(numbers[numbers > 0], 99)).clip(0, 1)
        picture = _picture(ink, f"{name}-{value[0]}", f"{value} by position", "", f'<g class="blocks">{marks}</g>')
        rows += f'<div class="axis"><span>{high_end}</span><b>{value}</b><span>{low_end}</span></div>{picture}'
    ends = "".join(f"<span>{number:,}</span>" for number in (1, positions.pairs // 2, positions.pairs))
    return (
        "<figure><figcaption>Pairs by position; the stronger the colour, the more of them</figcaption>"
        f'<div class="map" data-pairs="{positions.pairs}">{rows}<span>pair</span>'
        f'<div class="positions">{ends}</div></div></figure>'
        f"{details(f'Blocks out of step: {len(positions.blocks):,}', listing(described.values()))}"
    )


def _ink(found: Array, n_columns: int) -> Array:
    """Return the darkness of each column, from 0 to 1, by its share of pairs; a single pair is visible."""
    starts = -(-np.arange(n_columns) * len(found) // n_columns)
    shares = np.add.reduceat(found, starts, dtype=np.int64) / np.diff(starts, append=len(found))
    return np.where(shares > 0, 0.4 + 0.6 * np.sqrt(shares), 0.0)


def _picture(ink: Array, name: str, label: str, kind: str, below: str = "") -> str:
    """Draw darkness (rows, C) from 0 to 1 in a colour of the page, as the mask of a rectangle."""
    buffer = BytesIO()
    imsave(buffer, ink, cmap="gray", vmin=0, vmax=1, format="png")
    height, width = ink.shape
    size = f'width="{width}" height="{height}"'
    image = f'href="data:image/png;base64,{base64.b64encode(buffer.getvalue()).decode()}"'
    view = f'viewBox="0 0 {width} {height}" preserveAspectRatio="none" role="img" aria-label="{label}"'
    return (
        f'<svg class="{kind}" {view}>{below}'
        f'<mask id="{name}"><image {size} preserveAspectRatio="none" {image}/></mask>'
        f'<rect {size} fill="currentColor" mask="url(#{name})"/></svg>'
    )
