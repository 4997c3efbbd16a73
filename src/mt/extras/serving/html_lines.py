"""HTML as verbatim markup and lines of text with inline elements.

A line ends at a block-level tag such as `<p>` or `<br>` and at untranslated elements. Inline elements such as `<b>`
that begin and end in one line belong to it, and so do comments. This is a tokenizer, not a parser: all markup comes out
byte for byte. Parsers do not guarantee that: lxml drops `<html>` and text nested deeper than 256 elements, lexbor drops
`<tr>` and `<td>` of a fragment, Beautiful Soup rewrites attributes, and Python's html.parser loses the text of an
unclosed `<script>` and takes quadratic time for unclosed tags.
"""

import html
import re
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from mt.extras.serving.markup import Element, Line

# Outside of quotes no tag contains `<`, so an unclosed tag does not cause a search to the end of the text.
_MARKUP = re.compile(
    r"<!--(?:-?>|.*?(?:-->|\Z))|<!\[CDATA\[.*?(?:\]\]>|\Z)|<[!?][^<>]*>"
    r"|</?[A-Za-z](?:[^<>\"'=]++|=\s*+(?:[^\s\"'<>][^\s<>]*+)?|\"[^\"]*\"|'[^']*')*+>",
    re.DOTALL,
)
_TAG = re.compile(r"<(/?)([A-Za-z][^\s/>]*)(.*)>", re.DOTALL)
ATTRIBUTE = re.compile(r"([^\s\"'<>/=]+)(?:\s*=\s*(\"[^\"]*\"|'[^']*'|[^\s\"'<>][^\s<>]*))?")
UNTRANSLATED = frozenset("script style code pre kbd samp var tt svg math template textarea noscript".split())
# Raw text elements of the HTML standard: only their own end tag is markup.
RAW_ENDS = {name: re.compile(rf"</{name}(?=[\s/>])", re.IGNORECASE) for name in ("script", "style", "textarea")}
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
VOID = frozenset("area base br col embed hr img input link meta source track wbr".split())
INLINE = frozenset(
    "a abbr acronym b bdi bdo big cite del dfn em font i ins label mark q s small span strike strong sub sup u".split()
)


class _Token(NamedTuple):
    """A piece of the text: "text", "open" and "close" for inline tags, "void" inline markup, or "verbatim"."""

    kind: str
    text: str
    name: str = ""


def html_lines(text: str) -> Iterator[str | Line]:
    """Split HTML into verbatim markup and lines."""
    tokens = list(_tokens(text))
    pairs = _pairs(tokens)
    content, elements, open_elements = "", list[Element](), dict[int, Element]()
    for number, token in enumerate(tokens):
        if token.kind == "text":
            content += html.unescape(token.text)
        elif token.kind == "void" or number in pairs:
            place = len(content)
            if token.kind == "close":
                element = open_elements.pop(pairs[number])
                element.closing, element.end = token.text, place
                continue
            elements.append(Element(token.text, "", place, place, tuple(open_elements.values())))
            if token.kind == "open":
                open_elements[number] = elements[-1]
        else:
            if content or elements:
                yield Line(content, elements)
            content, elements = "", []
            yield token.text
    if content or elements:
        yield Line(content, elements)


def _pairs(tokens: list[_Token]) -> dict[int, int]:
    """Match the tags of elements that begin and end in one line, in both directions."""
    pairs: dict[int, int] = {}
    open_tags: list[int] = []
    for number, token in enumerate(tokens):
        if token.kind == "open":
            open_tags.append(number)
        elif token.kind == "close" and open_tags and tokens[open_tags[-1]].name == token.name:
            start = open_tags.pop()
            pairs[number], pairs[start] = start, number
        elif token.kind in ("close", "verbatim"):
            open_tags.clear()
    return pairs


class OpenElements:
    """The open elements of a document, to know which are not translated; HTML may omit some end tags."""

    def __init__(self) -> None:
        self._translated: list[str] = []  # around the untranslated ones
        self._numbers = Counter[str]()  # of each name among them
        self.untranslated: list[str] = []  # an untranslated element and those inside it

    def open(self, name: str, is_untranslated: bool) -> None:
        ended = _ENDED_BY.get(name, set())
        if self.untranslated:
            if self.untranslated[0] in ended and _LISTS.isdisjoint(self.untranslated):
                self.untranslated.clear()
        elif self._translated and self._translated[-1] in ended:
            self._pop()
        if name in VOID:
            return
        if self.untranslated or is_untranslated:
            self.untranslated.append(name)
        else:
            self._translated.append(name)
            self._numbers[name] += 1

    def close(self, name: str) -> None:
        """Close an element and everything inside it."""
        if name in self.untranslated:
            while self.untranslated.pop() != name:
                pass
        elif self._numbers[name]:
            self.untranslated.clear()
            while self._pop() != name:
                pass

    def _pop(self) -> str:
        name = self._translated.pop()
        self._numbers[name] -= 1
        return name


def _tokens(text: str) -> Iterator[_Token]:
    elements, position = OpenElements(), 0
    while match := _MARKUP.search(text, position):
        if match.start() > position:
            yield _Token("verbatim" if elements.untranslated else "text", text[position : match.start()])
        depth = len(elements.untranslated)
        yield _markup(match[0], elements)
        position = match.end()
        if len(elements.untranslated) > depth and elements.untranslated[-1] in RAW_ENDS:
            end = RAW_ENDS[elements.untranslated[-1]].search(text, position)
            start, position = position, end.start() if end else len(text)
            if position > start:
                yield _Token("verbatim", text[start:position])
    if position < len(text):
        yield _Token("verbatim" if elements.untranslated else "text", text[position:])


def _markup(markup: str, elements: OpenElements) -> _Token:
    """Classify a piece of markup and update the open elements."""
    verbatim = _Token("verbatim", markup)
    tag = _TAG.fullmatch(markup)
    if tag is None:
        is_comment = markup.startswith("<!--")
        return _Token("void", markup) if is_comment and not elements.untranslated else verbatim
    name, is_empty, was_untranslated = tag[2].lower(), False, bool(elements.untranslated)
    if tag[1]:
        elements.close(name)
        if was_untranslated:
            return verbatim
    else:
        attributes, is_empty = _attributes(tag[3])
        if not is_empty:
            refused = attributes.get("translate", "").lower() == "no"
            refused |= "notranslate" in attributes.get("class", "").lower().split()
            elements.open(name, refused or name in UNTRANSLATED)
    if elements.untranslated:
        return verbatim
    if name in ("img", "wbr") or (is_empty and name in INLINE):
        return _Token("void", markup)
    return _Token("close" if tag[1] else "open", markup, name) if name in INLINE else verbatim


def _attributes(text: str) -> tuple[dict[str, str], bool]:
    """Parse a tag's attributes; the flag is True if it ends with a slash that is not part of an unquoted value."""
    attributes: dict[str, str] = {}
    end = 0
    for match in ATTRIBUTE.finditer(text):
        attributes.setdefault(match[1].lower(), (match[2] or "").strip("\"'"))
        end = match.end()
    return attributes, text.endswith("/", end)
