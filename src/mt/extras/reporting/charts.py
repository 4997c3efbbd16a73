"""SVG charts in the colours of the page around them, light or dark; each point shows its value on hover."""

import html
import re
from collections.abc import Callable, Sequence
from io import StringIO
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from matplotlib import rc_context
from matplotlib.figure import Figure
from matplotlib.ticker import LogFormatter

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_BINS = 50
_MAX_POINTS = 200  # of a line that show their values
# Placeholder colours and the CSS variables of the page that replace them
_INK, _GRID, _LINES = "#010101", "#020202", ("#030303", "#040404", "#050505")
_VARIABLES = {_INK: "--soft", _GRID: "--line", **{colour: f"--line-{n}" for n, colour in enumerate(_LINES, 1)}}
_STYLE: Any = {
    "svg.fonttype": "none",  # text stays text
    "svg.hashsalt": "mt",  # reproducible ids
    "font.family": "sans-serif",
    "font.size": 10,
    "text.parse_math": False,  # names may have dollar signs
    **dict.fromkeys(("text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color"), _INK),
    "grid.color": _GRID,
    "axes.axisbelow": True,
    "legend.frameon": False,
    **dict.fromkeys(("axes.spines.top", "axes.spines.right", "axes.spines.left", "ytick.left"), False),
    **dict.fromkeys(("figure.facecolor", "axes.facecolor"), "none"),
}


class Line(NamedTuple):
    """A named line through points."""

    name: str
    x: Sequence[float]
    y: Sequence[float]


def line_chart(title: str, lines: Sequence[Line], logarithmic: bool = False) -> str:
    """Draw at most three lines over steps; those without points are left out. `logarithmic` is the vertical axis."""
    drawn = [line for line in lines if len(line.x)]

    def draw(axes: "Axes") -> None:
        for line, colour in zip(drawn, _LINES, strict=False):
            marker = "o" if len(line.x) <= 30 else ""
            axes.plot(line.x, line.y, color=colour, label=line.name, linewidth=1.8, marker=marker, markersize=3.5)
        if logarithmic:
            axes.set_yscale("log")
            axes.yaxis.set_major_formatter("{x:g}")
            axes.yaxis.set_minor_formatter(LogFormatter())  # plain text, and none where it would crowd

    return _chart(title, "step", draw, drawn)


def histogram(
    title: str, x_label: str, samples: Sequence[tuple[str, Any]], percentile: float, threshold: float | None = None
) -> str:
    """Draw the distributions of named samples (N,) as outlines, and a threshold as a dashed line.

    Whole numbers are counted up to a percentile. Other numbers are shown in % of their sample; those beyond the
    percentile at either end are counted in the first or last bin.
    """
    whole = all(np.issubdtype(values.dtype, np.integer) for _, values in samples)
    limit = max(np.percentile(values, percentile) for _, values in samples)
    if whole:
        width = -(-(int(limit) + 2) // _BINS)  # the same number of values in each bin
        edges = np.arange(0, int(limit) + 2 + width, width) - 0.5
    else:
        least = min(np.percentile(values, 100 - percentile) for _, values in samples)
        edges = np.linspace(least, max(limit, least + 1e-6), _BINS + 1)
        samples = [(name, values.clip(edges[0], edges[-1])) for name, values in samples]
    middles = ((edges[1:] + edges[:-1]) // 2 if whole else (edges[1:] + edges[:-1]) / 2).tolist()
    counts = [
        Line(name, middles, (np.histogram(values, edges)[0] * (1 if whole else 100 / len(values))).tolist())
        for name, values in samples
    ]

    def draw(axes: "Axes") -> None:
        for line, colour in zip(counts, _LINES, strict=False):
            axes.stairs(line.y, edges, color=colour, label=line.name, linewidth=1.8)
        if threshold is not None:
            axes.axvline(threshold, color=_INK, linestyle="--", linewidth=1.2)

    return _chart(title, x_label, draw, counts)


def bar_chart(title: str, x_label: str, bars: Sequence[tuple[str, float]]) -> str:
    """Draw bars with their values above."""

    def draw(axes: "Axes") -> None:
        drawn = axes.bar([name for name, _ in bars], [value for _, value in bars], color=_LINES[0])
        axes.bar_label(drawn, fmt="%.1f")

    return _chart(title, x_label, draw)


def _chart(title: str, x_label: str, draw: "Callable[[Axes], None]", lines: Sequence[Line] = ()) -> str:
    buffer = StringIO()
    with rc_context(_STYLE):
        figure = Figure(figsize=(4.8, 2.5), dpi=72, layout="constrained")
        axes = figure.subplots()
        draw(axes)
        axes.set_xlabel(x_label)
        if lines:
            axes.grid(axis="y", linewidth=0.6)
        if len(lines) > 1:
            axes.legend()
        figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
        points = "".join(_points(axes, line, x_label, named=len(lines) > 1) for line in lines)
    text = buffer.getvalue().replace("</svg>", f"{points}</svg>")
    text = text[text.index("<svg") :]
    # Ids must be unique in a page of many charts.
    prefix = re.sub(r"\W", "", title)
    text = re.sub(r'(id="|xlink:href="#|url\(#)', rf"\g<1>{prefix}-", text)
    text = re.sub(r'width="[\d.]+pt" height="[\d.]+pt"', 'width="100%"', text, count=1)
    for colour, variable in _VARIABLES.items():
        text = text.replace(colour, f"var({variable})")
    return text.replace("<svg ", f'<svg role="img" aria-label="{html.escape(title)}" ', 1)


def _points(axes: "Axes", line: Line, x_label: str, named: bool) -> str:
    """Return transparent circles with the values of a line as their titles."""
    step = max(1, -(-len(line.x) // _MAX_POINTS))
    values = list(zip(line.x, line.y, strict=True))[::-step]  # the last point among them
    pixels = axes.transData.transform(values)  # at 72 dots an inch a pixel is a unit of the SVG
    height = axes.figure.bbox.height
    name = f"{line.name}, " if named else ""
    return "".join(
        f'<circle cx="{x:.1f}" cy="{height - y:.1f}" r="5"><title>'
        f"{html.escape(f'{name}{x_label} {_plain(at)}: {_plain(value)}')}</title></circle>"
        for (at, value), (x, y) in zip(values, pixels, strict=True)
        if np.isfinite(y)
    )


def _plain(number: float) -> str:
    """Format a number without an exponent, unless it is tiny."""
    return f"{number:,.0f}" if abs(number) >= 1000 else f"{number:.4g}"
