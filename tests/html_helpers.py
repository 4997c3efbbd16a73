"""Checks of self-contained HTML pages."""

import re
from html.parser import HTMLParser

_VOID = {"meta", "link", "br", "use", "path"}


class _Checker(HTMLParser):
    """Parser that checks that each element is closed and collects ids, text and references to other files."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.references: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_startendtag(tag, attrs)
        if tag not in _VOID:
            self.open.append(tag)
        urls = [value or "" for name, value in attrs if name in ("src", "href")]
        self.references += [url for url in urls if not url.startswith(("#", "data:"))]

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.ids += [value or "" for name, value in attrs if name == "id"]

    def handle_endtag(self, tag: str) -> None:
        if tag not in _VOID:
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def checked(content: str) -> _Checker:
    """Parse a page and check that it is well-formed, has unique ids and needs no other file."""
    checker = _Checker()
    checker.feed(content)
    assert checker.open == []
    assert checker.references == []
    assert len(checker.ids) == len(set(checker.ids)), "duplicate ids"
    assert not re.search(r"url\((?!#)|@import", content)
    return checker
