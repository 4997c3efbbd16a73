"""Self-contained HTML pages: light or dark, for screens of any width."""

import html
from collections.abc import Sequence
from importlib.resources import files
from typing import Any

Section = tuple[str, str]  # a heading and the HTML below it


def page(name: str, kind: str, subtitle: str, sections: Sequence[Section], style: str = "", script: str = "") -> str:
    """Build a page with links to its sections at the top.

    Its name and kind are the window's title; a section is a heading in plain text and its content in HTML.
    """
    links = "".join(f'<a href="#part-{n}">{html.escape(title)}</a>' for n, (title, _) in enumerate(sections))
    main = "".join(
        f'<section id="part-{n}"><h2>{html.escape(title)}</h2>{content}</section>'
        for n, (title, content) in enumerate(sections)
    )
    shared = (files("mt.extras.reporting") / "web" / "report.css").read_text(encoding="utf-8")
    name = html.escape(name)
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark"><link rel="icon" href="data:,">'
        f"<title>{name}: {kind}</title><style>{style}{shared}</style></head><body>"
        f"<header><h1>{name}</h1><p>{html.escape(subtitle)}</p><nav>{links}</nav></header><main>{main}</main>"
        f"{f'<script>{script}</script>' if script else ''}</body></html>\n"
    )


def table(header: Sequence[str], rows: Sequence[Sequence[Any]], kind: str = "") -> str:
    """Build a table; `kind` is numbers, pairs or texts."""
    head = "".join(f"<th>{html.escape(cell)}</th>" for cell in header)
    # On a narrow screen the cells are stacked, each with its name.
    cells = (
        [f'<td data-name="{name}">{html.escape(str(cell))}</td>' for name, cell in zip(header, row, strict=True)]
        for row in rows
    )
    body = "".join(f"<tr>{''.join(row)}</tr>" for row in cells)
    return (
        f'<div class="scroll"><table class="{kind}"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'
    )


def figures(*titled_charts: tuple[str, str]) -> str:
    """Arrange charts, each a caption and an SVG, side by side where there is room."""
    content = "".join(
        f"<figure><figcaption>{html.escape(title)}</figcaption>{chart}</figure>" for title, chart in titled_charts
    )
    return f'<div class="charts">{content}</div>'
