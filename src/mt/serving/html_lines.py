"""HTML as markup that stays where it is and lines of text with elements in them.

A line ends where a reader would see it end: at a tag such as `<p>` or `<br>`, and at what is not language. Elements
such as `<b>` that begin and end in one line belong to it, and so do comments, which no reader sees.
"""

import html
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from mt.serving.markup import Element, Line

# Outside of quotes no tag holds a `<`; so what is never closed is not searched for to the end of the text each time.
_MARKUP = re.compile(
    r"<!--.*?(?:-->|\Z)|<!\[CDATA\[.*?(?:\]\]>|\Z)|<[!?][^<>]*>"
    r"|</?[A-Za-z][^<>\"']*(?:\"[^\"]*\"[^<>\"']*|'[^']*'[^<>\"']*)*>",
    re.DOTALL,
)
_TAG = re.compile(r"<(/?)([A-Za-z][^\s/>]*)(.*?)(/?)>", re.DOTALL)
_NO = re.compile(
    r"(?<![\w-])translate\s*=\s*[\"']?no\b|(?<![\w-])class\s*=\s*[\"'][^\"']*\bnotranslate\b", re.IGNORECASE
)
_UNTRANSLATED = set("script style code kbd samp var pre template textarea svg math".split())
# In these nothing but their own end is markup, whatever it looks like (the standard's raw text).
_RAW_ENDS = {name: re.compile(rf"</{name}(?=[\s/>])", re.IGNORECASE) for name in ("script", "style", "textarea")}
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
        if token.void:
            self.elements.append(Element(token.text, "", place, place))
        elif token.closes:
            element = self.open.pop(pairs[number])
            element.closing, element.end = token.text, place
        else:
            self.open[number] = Element(token.text, "", place, place)
            self.elements.append(self.open[number])

    def line(self) -> Iterator[Line]:
        if self.text or self.elements:
            yield Line(self.text, self.elements)
        self.text, self.elements = "", []


def _tokens(text: str) -> Iterator[_Token]:
    silent: list[str] = []  # the elements that are open inside of one that is not translated
    place = 0
    while found := _MARKUP.search(text, place):
        if found.start() > place:
            yield _Token(text[place : found.start()], False, silent=bool(silent))
        opened = len(silent)
        yield _markup(found[0], silent)
        place = found.end()
        if len(silent) > opened and silent[-1] in _RAW_ENDS:
            end = _RAW_ENDS[silent[-1]].search(text, place)
            raw = text[place : end.start() if end else len(text)]
            if raw:
                yield _Token(raw, False, silent=True)
            place += len(raw)
    if place < len(text):
        yield _Token(text[place:], False, silent=bool(silent))


def _markup(markup: str, silent: list[str]) -> _Token:
    """A piece of markup; keeps account of whether what follows is inside of an element that is not translated."""
    tag = _TAG.fullmatch(markup)
    if tag is None:
        return _Token(markup, True, void=markup.startswith("<!--") and not silent)
    closes, name, attributes, empty = bool(tag[1]), tag[2].lower(), tag[3], bool(tag[4])
    was_silent = bool(silent)
    if closes:
        if name in silent:
            while silent.pop() != name:
                pass
    elif name not in _VOID and not empty and (silent or name in _UNTRANSLATED or _NO.search(attributes)):
        silent.append(name)
    if was_silent or silent:
        return _Token(markup, True)
    if name in _INLINE_VOID:
        return _Token(markup, True, void=True)
    return _Token(markup, True, name if name in _INLINE and not empty else None, closes)


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
