"""HTML as markup that stays where it is and lines of text with elements in them.

A line ends where a reader would see it end: at a tag such as `<p>` or `<br>`, and at what is not language. Elements
such as `<b>` that begin and end in one line belong to it, and so do comments, which no reader sees.
"""

import html
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from mt.extras.serving.markup import Element, Line

# Outside of quotes no tag holds a `<`; so what is never closed is not searched for to the end of the text each time.
_MARKUP = re.compile(
    r"<!--.*?(?:-->|\Z)|<!\[CDATA\[.*?(?:\]\]>|\Z)|<[!?][^<>]*>"
    r"|</?[A-Za-z](?:[^<>\"'=]++|=\s*+(?:[^\s\"'<>][^\s<>]*+)?|\"[^\"]*\"|'[^']*')*+>",
    re.DOTALL,
)
_TAG = re.compile(r"<(/?)([A-Za-z][^\s/>]*)(.*)>", re.DOTALL)
_ATTRIBUTE = re.compile(r"([^\s\"'<>/=]+)(?:\s*=\s*(\"[^\"]*\"|'[^']*'|[^\s\"'<>][^\s<>]*))?")
_UNTRANSLATED = set("script style code kbd samp var pre template textarea svg math".split())
# In these nothing but their own end is markup, whatever it looks like (the standard's raw text).
_RAW_ENDS = {name: re.compile(rf"</{name}(?=[\s/>])", re.IGNORECASE) for name in ("script", "style", "textarea")}
# What ends without an end tag where the other begins: an item, a cell, a paragraph.
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
_LISTS = {"ul", "ol", "dl", "table", "select"}  # the items in one end none around it
_VOID = set("area base br col embed hr img input link meta source track wbr".split())
_INLINE = set(
    "a abbr b bdi bdo big cite del dfn em font i ins label mark q s small span strike strong sub sup u".split()
)
_INLINE_VOID = {"img", "wbr"}


@dataclass(frozen=True)
class _Token:
    """A piece of HTML: text, or one piece of markup.

    Attributes:
        name: of a tag that may stand in a line; None for text and for markup that ends one.
        closes, void: what kind of tag.
        silent: inside of an element that is not translated.
    """

    text: str
    is_markup: bool
    name: str | None = None
    closes: bool = False
    void: bool = False
    silent: bool = False


def html_lines(text: str) -> Iterator[str | Line]:
    """Cuts HTML into markup and lines."""
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
    """The line that is being read."""

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
    """The elements that are open.

    Attributes:
        around: those that are translated.
        silent: one that is not, and those inside of it.
    """

    def __init__(self) -> None:
        self.around: list[str] = []
        self.silent: list[str] = []

    def opens(self, name: str, silent: bool) -> None:
        """An element begins; `silent` says that it is not translated."""
        ended = _ENDED_BY.get(name, set())
        if self.silent and self.silent[0] in ended and not any(one in _LISTS for one in self.silent):
            self.silent.clear()
        elif self.around and not self.silent and self.around[-1] in ended:
            self.around.pop()
        if name not in _VOID:
            (self.silent if self.silent or silent else self.around).append(name)

    def closes(self, name: str) -> None:
        """An element ends, and with it all in it."""
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
    """A piece of markup; keeps account of whether what follows is inside of an element that is not translated."""
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
    """A tag's attributes, and whether it ends with a slash that is not part of a value without quotes."""
    found: dict[str, str] = {}
    end = 0
    for match in _ATTRIBUTE.finditer(text):
        found.setdefault(match[1].lower(), (match[2] or "").strip("\"'"))
        end = match.end()
    return found, text.endswith("/", end)


def _pairs(tokens: list[_Token]) -> dict[int, int]:
    """The tags of elements that begin and end in one line, each with its counterpart."""
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
