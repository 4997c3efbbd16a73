"""HTML as verbatim markup and lines of text with inline elements.

A line ends at a block-level tag such as `<p>` or `<br>` and at untranslated elements. Inline elements such as `<b>`
that begin and end in one line belong to it, and so do comments. This is a tokenizer, not a parser: all markup comes out
byte for byte. Parsers rewrite it and lose some: lxml drops `<html>` and all text nested deeper than 256 elements,
lexbor drops `<tr>` and `<td>` of a fragment.
"""

import html
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from mt.extras.serving.markup import Element, Line

# Outside of quotes no tag contains `<`, so an unclosed tag does not cause a search to the end of the text.
_MARKUP = re.compile(
    r"<!--.*?(?:-->|\Z)|<!\[CDATA\[.*?(?:\]\]>|\Z)|<[!?][^<>]*>"
    r"|</?[A-Za-z](?:[^<>\"'=]++|=\s*+(?:[^\s\"'<>][^\s<>]*+)?|\"[^\"]*\"|'[^']*')*+>",
    re.DOTALL,
)
_TAG = re.compile(r"<(/?)([A-Za-z][^\s/>]*)(.*)>", re.DOTALL)
_ATTRIBUTE = re.compile(r"([^\s\"'<>/=]+)(?:\s*=\s*(\"[^\"]*\"|'[^']*'|[^\s\"'<>][^\s<>]*))?")
_UNTRANSLATED = set("script style code kbd samp var pre template textarea svg math".split())
# Raw text elements of the HTML standard: only their own end tag is markup.
_RAW_ENDS = {name: re.compile(rf"</{name}(?=[\s/>])", re.IGNORECASE) for name in ("script", "style", "textarea")}
# Omitted end tags: the elements that the start tag of another one closes.
_BLOCKS = set(
    "address article aside blockquote details div dl fieldset figcaption figure footer form h1 h2 h3 h4 h5 h6 header "
    "hr main nav ol p pre section table ul".split()
)
_ENDED_BY = {name: {"p"} for name in _BLOCKS} | {
    "li": {"li"},
    "dt": {"dt", "dd"},
    "dd": {"dt", "dd"},
    "td": {"td", "th"},
    "th": {"td", "th"},
    "tr": {"td", "th", "tr"},
    "option": {"option"},
}
_LISTS = {"ul", "ol", "dl", "table", "select"}  # a nested list does not close the item around it
_VOID = set("area base br col embed hr img input link meta source track wbr".split())
_INLINE = set(
    "a abbr b bdi bdo big cite del dfn em font i ins label mark q s small span strike strong sub sup u".split()
)
_INLINE_VOID = {"img", "wbr"}


@dataclass(frozen=True)
class _Token:
    """Text or one piece of markup.

    Attributes:
        name: of an inline tag; None for text and for markup that ends a line.
        closes, void: kind of tag.
        silent: inside an untranslated element.
    """

    text: str
    is_markup: bool
    name: str | None = None
    closes: bool = False
    void: bool = False
    silent: bool = False


def html_lines(text: str) -> Iterator[str | Line]:
    """Split HTML into markup and lines."""
    tokens = list(_tokens(text))
    pairs = _pairs(tokens)
    builder = _Builder()
    for number, token in enumerate(tokens):
        if token.is_markup and (token.void or number in pairs):
            builder.tag(token, number, pairs)
        elif token.is_markup or token.silent:
            yield from builder.line()
            yield token.text
        else:
            builder.text += html.unescape(token.text)
    yield from builder.line()


@dataclass
class _Builder:
    """The current line."""

    text: str = ""
    elements: list[Element] = field(default_factory=list)
    open: dict[int, Element] = field(default_factory=dict)

    def tag(self, token: _Token, number: int, pairs: dict[int, int]) -> None:
        place = len(self.text)
        parents = tuple(self.open.values())
        if token.void:
            self.elements.append(Element(token.text, "", place, place, parents))
        elif token.closes:
            element = self.open.pop(pairs[number])
            element.closing, element.end = token.text, place
        else:
            self.open[number] = Element(token.text, "", place, place, parents)
            self.elements.append(self.open[number])

    def line(self) -> Iterator[Line]:
        if self.text or self.elements:
            yield Line(self.text, self.elements)
        self.text, self.elements = "", []


class _Nesting:
    """The stack of open elements.

    Attributes:
        around: translated elements.
        silent: an untranslated element and those inside it.
    """

    def __init__(self) -> None:
        self.around: list[str] = []
        self.silent: list[str] = []

    def opens(self, name: str, silent: bool) -> None:
        """Open an element; `silent` if it is not translated."""
        ended = _ENDED_BY.get(name, set())
        if self.silent and self.silent[0] in ended and not any(one in _LISTS for one in self.silent):
            self.silent.clear()
        elif self.around and not self.silent and self.around[-1] in ended:
            self.around.pop()
        if name not in _VOID:
            (self.silent if self.silent or silent else self.around).append(name)

    def closes(self, name: str) -> None:
        """Close an element and everything inside it."""
        if name in self.silent:
            while self.silent.pop() != name:
                pass
        elif name in self.around:
            self.silent.clear()
            while self.around.pop() != name:
                pass


def _tokens(text: str) -> Iterator[_Token]:
    nesting = _Nesting()
    silent = nesting.silent
    place = 0
    while found := _MARKUP.search(text, place):
        if found.start() > place:
            yield _Token(text[place : found.start()], False, silent=bool(silent))
        opened = len(silent)
        yield _markup(found[0], nesting)
        place = found.end()
        if len(silent) > opened and silent[-1] in _RAW_ENDS:
            end = _RAW_ENDS[silent[-1]].search(text, place)
            raw = text[place : end.start() if end else len(text)]
            if raw:
                yield _Token(raw, False, silent=True)
            place += len(raw)
    if place < len(text):
        yield _Token(text[place:], False, silent=bool(silent))


def _markup(markup: str, nesting: _Nesting) -> _Token:
    """Classify a piece of markup and update the stack."""
    tag = _TAG.fullmatch(markup)
    if tag is None:
        return _Token(markup, True, void=markup.startswith("<!--") and not nesting.silent)
    closes, name = bool(tag[1]), tag[2].lower()
    attributes, empty = _attributes(tag[3])
    was_silent = closes and bool(nesting.silent)
    if closes:
        nesting.closes(name)
    elif not empty:
        refused = attributes.get("translate", "").lower() == "no"
        refused |= "notranslate" in attributes.get("class", "").lower().split()
        nesting.opens(name, refused or name in _UNTRANSLATED)
    if was_silent or nesting.silent:
        return _Token(markup, True)
    if name in _INLINE_VOID:
        return _Token(markup, True, void=True)
    return _Token(markup, True, name if name in _INLINE and not empty else None, closes)


def _attributes(text: str) -> tuple[dict[str, str], bool]:
    """Parse a tag's attributes; also tell whether it ends with a slash that is not part of an unquoted value."""
    found: dict[str, str] = {}
    end = 0
    for match in _ATTRIBUTE.finditer(text):
        found.setdefault(match[1].lower(), (match[2] or "").strip("\"'"))
        end = match.end()
    return found, text.endswith("/", end)


def _pairs(tokens: list[_Token]) -> dict[int, int]:
    """Match the tags of elements that begin and end in one line, both ways."""
    pairs: dict[int, int] = {}
    open_tags: list[int] = []
    for number, token in enumerate(tokens):
        if token.name is None:
            if (token.is_markup and not token.void) or token.silent:
                open_tags.clear()
        elif not token.closes:
            open_tags.append(number)
        elif open_tags and tokens[open_tags[-1]].name == token.name:
            other = open_tags.pop()
            pairs[number], pairs[other] = other, number
        else:
            open_tags.clear()
    return pairs
