"""Reads a page that must stand alone."""

import re
from html.parser import HTMLParser

_VOID = {"meta", "link", "br", "use", "path"}


class _Checker(HTMLParser):
    """Counts elements, sees that each is closed, and collects what would be fetched."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.fetched: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in _VOID:
            self.open.append(tag)
        self.ids += [value or "" for name, value in attrs if name == "id"]
        self.fetched += [
            value or ""
            for name, value in attrs
            if name in ("src", "href") and not (value or "").startswith(("#", "data:"))
        ]

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.ids += [value or "" for name, value in attrs if name == "id"]

    def handle_endtag(self, tag: str) -> None:
        if tag not in _VOID:
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def checked(content: str) -> _Checker:
    checker = _Checker()
    checker.feed(content)
    assert checker.open == []
    assert checker.fetched == []
    assert len(checker.ids) == len(set(checker.ids)), "two things of one name"
    assert not re.search(r"url\((?!#)|@import", content)
    return checker
