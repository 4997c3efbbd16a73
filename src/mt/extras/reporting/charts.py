"""SVG charts in the colours of the page around them, light or dark."""

import re
from collections.abc import Callable, Sequence
from io import StringIO
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from matplotlib import rc_context
from matplotlib.figure import Figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_BINS = 50
# Placeholder colours and the CSS variables of the page that replace them
_INK, _GRID, _LINES = "#010101", "#020202", ("#030303", "#040404", "#050505")
_VARIABLES = {_INK: "--soft", _GRID: "--line", **{colour: f"--line-{n}" for n, colour in enumerate(_LINES, 1)}}
_STYLE: Any = {
    "svg.fonttype": "none",  # text stays text
    "svg.hashsalt": "mt",  # reproducible ids
    "font.family": "sans-serif",
    "font.size": 9,
    **dict.fromkeys(("text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color"), _INK),
    "grid.color": _GRID,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    "legend.frameon": False,
}


class Line(NamedTuple):
    """A named line through points."""

    name: str
    x: Sequence[float]
    y: Sequence[float]


def line_chart(title: str, x_label: str, lines: Sequence[Line], logarithmic: bool = False) -> str:
    """Draw at most three lines; those without points are left out. `logarithmic` is the vertical axis."""
    drawn = [line for line in lines if len(line.x)]

    def draw(axes: "Axes") -> None:
        for line, colour in zip(drawn, _LINES, strict=False):
            marker = "o" if len(line.x) <= 30 else ""
            axes.plot(line.x, line.y, color=colour, label=line.name, linewidth=1.6, marker=marker, markersize=3)
        if logarithmic:
            axes.set_yscale("log")

    return _chart(title, x_label, draw, legend=len(drawn) > 1)


def histogram(title: str, x_label: str, samples: Sequence[tuple[str, Any]], percentile: float) -> str:
    """Draw the distributions of named samples of whole numbers (N,) as outlines, up to a percentile."""
    limit = int(max(np.percentile(values, percentile) for _, values in samples)) + 2
    width = -(-limit // _BINS)  # whole numbers, the same number of them in each bin
    edges = np.arange(0, limit + width, width)

    def draw(axes: "Axes") -> None:
        for (name, values), colour in zip(samples, _LINES, strict=False):
            axes.stairs(np.histogram(values, edges)[0], edges, color=colour, label=name, linewidth=1.6)

    return _chart(title, x_label, draw, legend=len(samples) > 1)


def bar_chart(title: str, x_label: str, bars: Sequence[tuple[str, float]]) -> str:
    """Draw bars with their values above."""

    def draw(axes: "Axes") -> None:
        drawn = axes.bar([name for name, _ in bars], [value for _, value in bars], color=_LINES[0])
        axes.bar_label(drawn, fmt="%.1f")

    return _chart(title, x_label, draw, grid=False)


def _chart(title: str, x_label: str, draw: "Callable[[Axes], None]", grid: bool = True, legend: bool = False) -> str:
    buffer = StringIO()
    with rc_context(_STYLE):
        figure = Figure(figsize=(5.4, 2.9), layout="constrained")
        axes = figure.subplots()
        draw(axes)
        axes.set_xlabel(x_label)
        if grid:
            axes.grid(axis="y", linewidth=0.6)
        if legend:
            axes.legend()
        figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    text = buffer.getvalue()
    text = text[text.index("<svg") :]
    # Ids must be unique in a page of many charts.
    prefix = re.sub(r"\W", "", title)
    text = re.sub(r'(id="|xlink:href="#|url\(#)', rf"\g<1>{prefix}-", text)
    text = re.sub(r'width="[\d.]+pt" height="[\d.]+pt"', 'width="100%"', text, count=1)
    for colour, variable in _VARIABLES.items():
        text = text.replace(colour, f"var({variable})")
    return text.replace("<svg ", f'<svg role="img" aria-label="{title}" ', 1)
