"""Self-contained HTML pages: light or dark, for screens of any width."""

import html
from collections.abc import Iterable, Sequence
from importlib.resources import files
from typing import Any


class Html(str):
    """Text that is HTML already."""


Section = tuple[str, str]  # a heading in plain text and the HTML below it


def page(
    window: str, title: str, subtitle: str, top: str, sections: Sequence[Section], style: str = "", script: str = ""
) -> str:
    """Build a page: the title of its window, a heading and a line below it in plain text, `top` in HTML, and sections.

    Sections without content are left out.
    """
    written = [section for section in sections if section[1]]
    links = "".join(f'<a href="#part-{n}">{html.escape(name)}</a>' for n, (name, _) in enumerate(written))
    main = "".join(
        f'<section id="part-{n}"><h2>{html.escape(name)}</h2>{content}</section>'
        for n, (name, content) in enumerate(written)
    )
    style, script = style + web_file("report.css"), web_file("charts.js") + script
    window, title, subtitle = map(html.escape, (window, title, subtitle))
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark"><link rel="icon" href="data:,">'
        f"<title>{window}</title><style>{style}</style></head><body>"
        f"<header><h1>{title}</h1><p>{subtitle}</p>{top}<nav>{links}</nav></header>"
        f"<main>{main}</main><script>{script}</script></body></html>\n"
    )


def web_file(name: str, extra: str = "reporting") -> str:
    """Return a file of an extra's folder `web`."""
    return (files(f"mt.extras.{extra}") / "web" / name).read_text(encoding="utf-8")


def headline(kind: str, words: str, content: str = "", number: str = "", unit: str = "") -> str:
    """Build the box at the top of a page: a verdict in plain text, HTML below it, and a number with its unit.

    `kind`, the colour of its edge, is good, warning, error or empty.
    """
    score = f'<div class="score">{html.escape(number)}<small>{html.escape(unit)}</small></div>' if number else ""
    return f'<div class="headline {kind}">{score}<div><p class="words">{html.escape(words)}</p>{content}</div></div>'


def table(header: Sequence[str], rows: Iterable[Sequence[Any]], kind: str = "") -> str:
    """Build a table; `kind` is numbers (or numbers named) or texts (or texts narrow)."""
    head = "".join(f"<th>{html.escape(cell)}</th>" for cell in header)
    # On a narrow screen the cells are stacked, each with its name.
    cells = (
        [
            f'<td data-name="{html.escape(name)}">{cell if isinstance(cell, Html) else html.escape(str(cell))}</td>'
            for name, cell in zip(header, row, strict=True)
        ]
        for row in rows
    )
    body = "".join(f"<tr>{''.join(row)}</tr>" for row in cells)
    return (
        f'<div class="scroll"><table class="{kind}"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'
    )


def details(summary: str, content: str, is_open: bool = False) -> str:
    """Fold content away below a summary in plain text; empty content gives nothing."""
    tag = "details open" if is_open else "details"
    return f"<{tag}><summary>{html.escape(summary)}</summary>{content}</details>" if content else ""


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
