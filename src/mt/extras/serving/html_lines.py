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

# An unclosed comment or section ends with the text, an unclosed tag where it breaks off, and neither is searched again:
# otherwise every `<` could cause a search to the end of the text.
_MARKUP = re.compile(
    r"""<!--(?:-?>|.*?(?:-->|\Z))|<!\[CDATA\[.*?(?:\]\]>|\Z)|<!(?:"[^"]*"|'[^']*'|[^'">])*+[^>]*(?:>|\Z)
    |<\?(?:(?:php\b|=).*?(?:\?>|\Z)|(?:[^<]|<(?!\?))*?\?>|[^<>]*>)  # HTML ends all but PHP at the first `>`
    |<(?P<close>/?)(?P<name>[a-zA-Z_][^\s/<>"']*+)
    (?P<rest>(?:[^<>"'=/]++|/(?!>)|=\s*+(?:[^\s"'<>][^\s<>]*+)?|"[^"]*"|'[^']*'|<(?![a-zA-Z_/!]))*+)(?P<empty>/?)(?P<end>>?)""",
    re.DOTALL | re.VERBOSE,
)
ATTRIBUTE = re.compile(r"([^\s\"'<>/=]+)(?:\s*=\s*(\"[^\"]*\"|'[^']*'|[^\s\"'<>][^\s<>]*))?")
# Values of attributes that forbid translation of an element; in OpenDocument, a style of code
_FORBIDDING = {
    "translate": {"no"},
    "class": {"notranslate"},
    "text:style-name": {"source_20_text", "preformatted_20_text"},
}
UNTRANSLATED = frozenset("script style code pre kbd samp var tt svg math template textarea noscript".split())
# Raw text elements of the HTML standard: only their own end tag is markup.
_RAW_ENDS = {name: re.compile(rf"</{name}(?=[\s/>])", re.IGNORECASE) for name in ("script", "style", "textarea")}
# Elements that a start tag closes, as their end tags may be omitted.
_BLOCKS = set(
    "address article aside blockquote details div dl fieldset figcaption figure footer form h1 h2 h3 h4 h5 h6 header "
    "hr main nav ol p pre section table ul".split()
)
_CLOSED_BY = {name: {"p"} for name in _BLOCKS} | {
    "li": {"li"},
    "dt": {"dt", "dd"},
    "dd": {"dt", "dd"},
    "td": {"td", "th"},
    "th": {"td", "th"},
    "tr": {"td", "th", "tr"},
    "option": {"option"},
}
_LISTS = {"ul", "ol", "dl", "table", "select"}  # a nested list does not close the item around it
_VOID = frozenset("area base br col embed hr img input link meta source track wbr".split())
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
        self._translated: list[str] = []  # around the untranslated ones, the innermost last
        self._counts = Counter[str]()  # of each name among them
        self.untranslated: list[str] = []  # an untranslated element and those inside it

    def open(self, name: str, is_untranslated: bool) -> None:
        closed = _CLOSED_BY.get(name, set())
        if self.untranslated:
            if self.untranslated[0] in closed and _LISTS.isdisjoint(self.untranslated):
                self.untranslated.clear()
        elif self._translated and self._translated[-1] in closed:
            self._pop()
        if name in _VOID:
            return
        if self.untranslated or is_untranslated:
            self.untranslated.append(name)
        else:
            self._translated.append(name)
            self._counts[name] += 1

    def close(self, name: str) -> None:
        """Close an element and everything inside it."""
        if name in self.untranslated:
            while self.untranslated.pop() != name:
                pass
        elif self._counts[name]:
            self.untranslated.clear()
            while self._pop() != name:
                pass

    def _pop(self) -> str:
        name = self._translated.pop()
        self._counts[name] -= 1
        return name


def scan_markup(text: str) -> Iterator[re.Match[str]]:
    """Yield tags, with the groups `close`, `name`, `rest` and `empty`, comments and other markup."""
    position = 0
    while match := _MARKUP.search(text, position):
        position = match.end()
        if match["name"] and not match["end"]:
            continue  # an unfinished tag is text
        yield match
        raw_end = _RAW_ENDS.get((match["name"] or "").lower())
        if raw_end is not None and not match["close"] + match["empty"]:
            end = raw_end.search(text, position)  # everything before it is text, quotes and `<` included
            position = end.start() if end else len(text)


def forbids_translation(attributes: str) -> bool:
    """Return True if the attributes of a tag say that its element is not translated."""
    return any(
        not _FORBIDDING.get(match[1].lower(), set()).isdisjoint((match[2] or "").strip("\"'").lower().split())
        for match in ATTRIBUTE.finditer(attributes)
    )


def _tokens(text: str) -> Iterator[_Token]:
    elements, end = OpenElements(), 0
    for markup in scan_markup(text):
        if markup.start() > end:
            yield _Token("verbatim" if elements.untranslated else "text", text[end : markup.start()])
        name = (markup["name"] or "").lower()
        yield _Token(_kind(name, markup, elements), markup[0], name)
        end = markup.end()
    if end < len(text):
        yield _Token("verbatim" if elements.untranslated else "text", text[end:])


def _kind(name: str, markup: re.Match[str], elements: OpenElements) -> str:
    """Classify a piece of markup and update the open elements."""
    was_untranslated, is_empty = bool(elements.untranslated), bool(markup["empty"]) and not markup["close"]
    if markup["close"]:
        elements.close(name)
    elif name and not is_empty:
        elements.open(name, name in UNTRANSLATED or forbids_translation(markup["rest"]))
    if elements.untranslated or (markup["close"] and was_untranslated):
        return "verbatim"
    if name in ("img", "wbr") or (is_empty and name in INLINE) or markup[0].startswith("<!--"):
        return "void"
    return "verbatim" if name not in INLINE else "close" if markup["close"] else "open"
