"""Self-contained HTML pages: light or dark, for screens of any width."""

import html
from collections.abc import Iterable, Sequence
from importlib.resources import files
from typing import Any, NamedTuple

_WEB = files("mt.extras.reporting") / "web"


class Html(str):
    """Text that is HTML already."""


class Section(NamedTuple):
    """A heading in plain text and the HTML below it."""

    title: str
    content: str


class Heading(NamedTuple):
    """The top of a page: the window's title, the heading, a line below it in plain text, and HTML."""

    window: str
    title: str
    subtitle: str
    headline: str


def page(heading: Heading, sections: Sequence[Section], style: str = "", script: str = "") -> str:
    """Build a page with links to its sections at the top; those without content are left out."""
    written = [section for section in sections if section.content]
    links = "".join(f'<a href="#part-{n}">{html.escape(title)}</a>' for n, (title, _) in enumerate(written))
    main = "".join(
        f'<section id="part-{n}"><h2>{html.escape(title)}</h2>{content}</section>'
        for n, (title, content) in enumerate(written)
    )
    style += (_WEB / "report.css").read_text(encoding="utf-8")
    script = (_WEB / "charts.js").read_text(encoding="utf-8") + script
    window, title, subtitle = (html.escape(text) for text in heading[:3])
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark"><link rel="icon" href="data:,">'
        f"<title>{window}</title><style>{style}</style></head><body>"
        f"<header><h1>{title}</h1><p>{subtitle}</p>{heading.headline}<nav>{links}</nav></header>"
        f"<main>{main}</main><script>{script}</script></body></html>\n"
    )


def headline(kind: str, number: str, unit: str, words: str, content: str = "") -> str:
    """Build the box at the top of a page: a number with its unit, and what it means.

    Its kind, the colour of its edge, is good, warning, error or nothing; the content below the words is HTML.
    """
    score = f'<div class="score">{html.escape(number)}<small>{html.escape(unit)}</small></div>' if number else ""
    return f'<div class="headline {kind}">{score}<div><p class="words">{html.escape(words)}</p>{content}</div></div>'


def table(header: Sequence[str], rows: Iterable[Sequence[Any]], kind: str = "") -> str:
    """Build a table; `kind` is numbers, pairs or texts."""
    head = "".join(f"<th>{html.escape(cell)}</th>" for cell in header)
    # On a narrow screen the cells are stacked, each with its name.
    cells = (
        [f'<td data-name="{name}">{_cell(cell)}</td>' for name, cell in zip(header, row, strict=True)] for row in rows
    )
    body = "".join(f"<tr>{''.join(row)}</tr>" for row in cells)
    return (
        f'<div class="scroll"><table class="{kind}"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'
    )


def _cell(value: Any) -> str:
    return value if isinstance(value, Html) else html.escape(str(value))


def tiles(facts: Iterable[tuple[str, str]]) -> str:
    """Arrange facts, each a name and its value, side by side."""
    content = "".join(f"<div><dt>{html.escape(name)}</dt><dd>{html.escape(value)}</dd></div>" for name, value in facts)
    return f'<dl class="tiles">{content}</dl>'


def details(summary: str, content: str) -> str:
    """Fold content away below a summary in plain text; empty content gives nothing."""
    return f"<details><summary>{html.escape(summary)}</summary>{content}</details>" if content else ""


def listing(items: Iterable[str]) -> str:
    """Build a list of plain text; nothing without items."""
    content = "".join(f"<li>{html.escape(item)}</li>" for item in items)
    return f"<ul>{content}</ul>" if content else ""


def figures(*titled_charts: tuple[str, str]) -> str:
    """Arrange charts, each a caption and an SVG, side by side where there is room."""
    content = "".join(
        f"<figure><figcaption>{html.escape(title)}</figcaption>{chart}</figure>" for title, chart in titled_charts
    )
    return f'<div class="charts">{content}</div>'
