"""Charts as SVG inside of a page, whose colours are the page's own, light or dark."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from io import StringIO
from typing import Any

from matplotlib import rc_context
from matplotlib.figure import Figure

# Stand-ins that matplotlib draws with, and the variables of the page that replace them.
_INK, _GRID, _LINES = "#010101", "#020202", ("#030303", "#040404", "#050505")
_VARIABLES = {_INK: "--soft", _GRID: "--line", **{stand_in: f"--line-{n}" for n, stand_in in enumerate(_LINES, 1)}}
_STYLE: Any = {
    "svg.fonttype": "none",  # text stays text
    "svg.hashsalt": "mt",  # the same numbers give the same file
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


@dataclass(frozen=True)
class Line:
    """A named line through points."""

    name: str
    x: Sequence[float]
    y: Sequence[float]


def line_chart(title: str, x_label: str, lines: Sequence[Line], logarithmic: bool = False) -> str:
    """Lines over a common axis; those without points are left out.

    Args:
        title: what it shows, for people who cannot see it, too.
        x_label: what runs along.
        lines: at most three.
        logarithmic: the vertical axis.
    """
    with rc_context(_STYLE):
        figure = Figure(figsize=(5.4, 2.9), layout="constrained")
        axes = figure.subplots()
        drawn = [line for line in lines if len(line.x)]
        for line, colour in zip(drawn, _LINES, strict=False):
            marker = "o" if len(line.x) <= 30 else ""
            axes.plot(line.x, line.y, color=colour, label=line.name, linewidth=1.6, marker=marker, markersize=3)
        if logarithmic:
            axes.set_yscale("log")
        axes.set_xlabel(x_label)
        axes.grid(axis="y", linewidth=0.6)
        if len(drawn) > 1:
            axes.legend()
        return _svg(figure, title)


def histogram(title: str, x_label: str, edges: Sequence[float], counts: Sequence[tuple[str, Sequence[int]]]) -> str:
    """Counts between edges, of one or more kinds, as outlines.

    Args:
        title: what it shows.
        x_label: what is counted.
        edges: one more than there are counts.
        counts: a name and its counts.
    """
    with rc_context(_STYLE):
        figure = Figure(figsize=(5.4, 2.9), layout="constrained")
        axes = figure.subplots()
        for (name, values), colour in zip(counts, _LINES, strict=False):
            axes.stairs(values, edges, color=colour, label=name, linewidth=1.6)
        axes.set_xlabel(x_label)
        axes.grid(axis="y", linewidth=0.6)
        if len(counts) > 1:
            axes.legend()
        return _svg(figure, title)


def bar_chart(title: str, x_label: str, bars: Sequence[tuple[str, float]]) -> str:
    """Bars with their values written above."""
    with rc_context(_STYLE):
        figure = Figure(figsize=(5.4, 2.9), layout="constrained")
        axes = figure.subplots()
        drawn = axes.bar([name for name, _ in bars], [value for _, value in bars], color=_LINES[0])
        axes.bar_label(drawn, fmt="%.1f")
        axes.set_xlabel(x_label)
        return _svg(figure, title)


def _svg(figure: Figure, title: str) -> str:
    buffer = StringIO()
    figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    text = buffer.getvalue()
    text = text[text.index("<svg") :]
    # A page has many of them: what one defines must not be found by another.
    prefix = re.sub(r"\W", "", title)
    text = re.sub(r'(id="|xlink:href="#|url\(#)', rf"\g<1>{prefix}-", text)
    text = re.sub(r'width="[\d.]+pt" height="[\d.]+pt"', 'width="100%"', text, count=1)
    for stand_in, variable in _VARIABLES.items():
        text = text.replace(stand_in, f"var({variable})")
    return text.replace("<svg ", f'<svg role="img" aria-label="{title}" ', 1)
