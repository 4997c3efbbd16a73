"""A page for people: one HTML file that needs nothing else, light or dark, for screens of any width."""

import html
from collections.abc import Sequence
from importlib.resources import files
from typing import Any

Part = tuple[str, str]  # a heading and the HTML below it


def page(name: str, kind: str, subtitle: str, parts: Sequence[Part], style: str = "", script: str = "") -> str:
    """The whole of it, with links to its parts at the top.

    Args:
        name: its heading.
        kind: of page; it follows the name in the window's title.
        subtitle: what stands below the name.
        parts: the first of each is plain text, the second HTML.
        style: CSS of its own.
        script: what runs in it.
    """
    links = "".join(f'<a href="#part-{n}">{html.escape(title)}</a>' for n, (title, _) in enumerate(parts))
    sections = "".join(
        f'<section id="part-{n}"><h2>{html.escape(title)}</h2>{content}</section>'
        for n, (title, content) in enumerate(parts)
    )
    shared = (files("mt.extras.reporting") / "web" / "report.css").read_text(encoding="utf-8")
    name = html.escape(name)
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark"><link rel="icon" href="data:,">'
        f"<title>{name}: {kind}</title><style>{style}{shared}</style></head><body>"
        f"<header><h1>{name}</h1><p>{html.escape(subtitle)}</p><nav>{links}</nav></header><main>{sections}</main>"
        f"{f'<script>{script}</script>' if script else ''}</body></html>\n"
    )


def table(header: Sequence[str], rows: Sequence[Sequence[Any]], kind: str = "") -> str:
    """Rows under a header; `kind` is numbers, pairs or texts."""
    head = "".join(f"<th>{html.escape(cell)}</th>" for cell in header)
    # On a narrow screen the cells stand below one another, each with its name.
    cells = (
        [f'<td data-name="{name}">{html.escape(str(cell))}</td>' for name, cell in zip(header, row, strict=True)]
        for row in rows
    )
    body = "".join(f"<tr>{''.join(row)}</tr>" for row in cells)
    return (
        f'<div class="scroll"><table class="{kind}"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'
    )


def charts(*drawn: str) -> str:
    """Figures beside one another where there is room."""
    return f'<div class="charts">{"".join(f"<figure>{chart}</figure>" for chart in drawn)}</div>'


def titled(title: str, chart: str) -> str:
    """What `charts` takes."""
    return f"<figcaption>{html.escape(title)}</figcaption>{chart}"
