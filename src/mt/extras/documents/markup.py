"""Text in HTML and XML: paragraphs found by scanning the tags, so that all else keeps its bytes."""

import html
import re
from dataclasses import dataclass
from typing import Any

from mt.errors import InputError
from mt.extras.documents.splicing import Span, Spliced
from mt.extras.serving.html_lines import (
    ATTRIBUTE,
    INLINE,
    UNTRANSLATED,
    OpenElements,
    forbids_translation,
    html_lines,
    scan_markup,
)

_HEAD = 1024  # characters in which HTML declares its character set
_TEXT_ATTRIBUTES = frozenset({"alt", "title", "placeholder", "aria-label"})
# Declarations of character sets other than UTF-8, in XML and in HTML
_CHARSET = re.compile(
    r"""(?:\A\ufeff?<\?xml\b[^>]*\bencoding=|<meta\b[^>]*\bcharset=)["']?\s*((?!utf-?8\b)[\w.:-]+)""", re.IGNORECASE
)
# Styles and fonts of code in Word
_CODE_STYLE = r'<w:[pr]Style\b[^>]*w:val="[^"]*(?:Code|Verbatim|Preformatted|Quelltext|Vorformatiert)'
_CODE_FONT = r'<w:rFonts\b[^>]*w:(?:ascii|hAnsi)="(?:Courier|Consolas|[^"]*\bMono(?!type))'
_CODE = re.compile(rf"{_CODE_STYLE}|{_CODE_FONT}", re.IGNORECASE)
# Revision and proofing marks, which programs spread over a sentence whose formatting does not change
_NO_FORMAT = re.compile(
    r' w:rsid\w*="[^"]*"| (?:err|dirty|smtClean|noProof|lang|altLang)="[^"]*"|<w:(?:lang|noProof)\b[^>]*>'
)


@dataclass(frozen=True)
class Markup:
    """The elements of a kind of markup."""

    blocks: frozenset[str] | None = None  # begin and end a paragraph; None (HTML): all but `inline` and `skipped`
    inline: frozenset[str] = frozenset()  # stand inside a paragraph
    skipped: frozenset[str] = frozenset()  # whose text is not translated
    text: frozenset[str] = frozenset()  # hold the text of a paragraph; none: the paragraph itself
    runs: str = ""  # a run; adjacent runs of the same formatting are one text
    formats: str = ""  # the formatting of a run
    harmless: frozenset[str] = frozenset()  # change nothing between two runs


HTML = Markup(inline=INLINE | {"img", "wbr"}, skipped=UNTRANSLATED)
_MARKS = frozenset(
    "w:proofErr w:bookmarkStart w:bookmarkEnd w:lastRenderedPageBreak "
    "w:commentRangeStart w:commentRangeEnd w:commentReference".split()
)
DOCX = Markup(frozenset({"w:p"}), text=frozenset({"w:t"}), runs="w:r", formats="w:rPr", harmless=_MARKS)
PPTX = Markup(frozenset({"a:p"}), skipped=frozenset({"a:fld"}), text=frozenset({"a:t"}), runs="a:r", formats="a:rPr")
ODF = Markup(frozenset({"text:p", "text:h"}), skipped=frozenset({"office:annotation", "text:note-citation"}))


def scan(source: str, markup: Markup, place: str) -> Spliced:
    """Find the paragraphs of a document or one of its parts."""
    scanner, end = _Scanner(source, markup, place), 0
    scanner.document.charsets = [match.span(1) for match in _CHARSET.finditer(source, 0, _HEAD)]
    for token in scan_markup(source):
        scanner.read_text(end, token.start())
        end = token.end()
        if token["name"]:
            scanner.read_tag(token)
    scanner.read_text(end, len(source))
    scanner.end_block(len(source), len(source))
    return scanner.document


class _Scanner:
    """The state of a scan: the open elements that matter, and the paragraph so far."""

    def __init__(self, source: str, markup: Markup, place: str) -> None:
        self.markup, self.place = markup, place
        self.document = Spliced(source, _escaped)
        self.last_line = 0, 1  # a position, and the number of its line
        self.pieces: list[list[Span]] = []
        self.block_start = 0
        self.depth = self.in_text = 0  # open blocks, and open elements of text
        self.open = OpenElements()
        self.skipped = self.open.untranslated
        self.format, self.last_format, self.in_format = "", "", False
        self.is_code = False  # the paragraph
        self.is_interrupted = False  # markup other than runs of one format came since the last text

    def read_text(self, start: int, end: int) -> None:
        markup = self.markup
        inside = self.in_text if markup.text else self.depth or markup.blocks is None
        if start == end or self.skipped or not inside:
            return
        if self.is_code or _CODE.search(self.format):
            self.is_interrupted = True
            return
        span = Span(start, end, html.unescape(self.document.source[start:end]))
        if self.pieces and markup.runs and not self.is_interrupted and self.format == self.last_format:
            self.pieces[-1].append(span)
        else:
            self.pieces.append([span])
        self.last_format, self.is_interrupted = self.format, False

    def read_tag(self, token: re.Match[str]) -> None:
        markup, closes = self.markup, bool(token["close"])
        name = token["name"] if markup.blocks else token["name"].lower()
        step = -1 if closes else 0 if token["empty"] else 1
        if closes:
            self.open.close(name)
        elif not token["empty"]:
            self.open.open(name, name in markup.skipped or forbids_translation(token["rest"]))
        if markup.blocks is None:
            self._add_attributes(token)
            if name not in markup.inline and name not in markup.skipped:
                self.end_block(*token.span())
        elif name in markup.blocks:
            self.end_block(*token.span())
            self.depth += step
        elif name in markup.text:
            self.in_text += step
        elif name == markup.formats:
            self.in_format = step == 1
            self.format = self.format if closes else self._format_of(token)
        elif name == markup.runs:
            self.format = "" if step == 1 else self.format
        elif name == "w:pStyle":
            self.is_code = bool(_CODE.match(token[0]))
        elif not self.in_format and name not in markup.harmless:
            self.is_interrupted = True

    def _format_of(self, token: re.Match[str]) -> str:
        """Return the formatting of a run, without revision and proofing marks; empty if nothing else is in it."""
        end = token.end() if token["empty"] else self.document.source.find(f"</{token['name']}>", token.end())
        formatting = _NO_FORMAT.sub("", self.document.source[token.start() : end])
        return "" if re.fullmatch(r"<[\w:]+\s*/?>\s*", formatting) else formatting

    def _add_attributes(self, token: re.Match[str]) -> None:
        if not self.skipped and not forbids_translation(token["rest"]):
            for attribute in ATTRIBUTE.finditer(token["rest"]):
                if attribute[1].lower() in _TEXT_ATTRIBUTES and attribute[2]:
                    start, text = token.start("rest") + attribute.start(2), attribute[2]
                    end, is_quoted = start + len(text), text[0] in "\"'"
                    span = Span(start, end, html.unescape(text[1:-1] if is_quoted else text), '"')
                    self.document.add([[span]], f"{self.place}:{self._line_at(start)}")

    def _line_at(self, position: int) -> int:
        start, line = self.last_line
        if position < start:  # of a paragraph that began before an attribute
            return line - self.document.source.count("\n", position, start)
        self.last_line = position, line + self.document.source.count("\n", start, position)
        return self.last_line[1]

    def end_block(self, end: int, next_start: int) -> None:
        """End the paragraph before a tag, and begin the next one behind it."""
        if self.pieces:
            block, n_texts = (self.block_start, end), sum(bool(piece[0].text.strip()) for piece in self.pieces)
            has_markup = n_texts > 1 and self.markup.blocks is None
            parts = tuple(html_lines(self.document.source[slice(*block)])) if has_markup else ()
            self.document.add(self.pieces, f"{self.place}:{self._line_at(self.pieces[0][0].start)}", block, parts)
        self.block_start = next_start
        self.pieces, self.is_interrupted, self.last_format, self.is_code = [], False, "", False


def _escaped(_: str, text: str) -> str:
    """Escape what would end a text or an attribute in double quotes."""
    return html.escape(text, quote=False).replace('"', "&quot;")


def parse_xml(content: bytes, place: str) -> Any:
    """Parse XML and return its root element.

    Raises:
        InputError: it is malformed, or declares entities, which could grow without bounds or read files.
    """
    from lxml import etree

    if re.search(rb"<!ENTITY", content.replace(b"\x00", b"")):  # without the NUL bytes of UTF-16
        raise InputError(f"{place}: declares entities of its own, which are not expanded", "save it without a DTD")
    try:
        return etree.fromstring(content, etree.XMLParser(resolve_entities=False, no_network=True, huge_tree=False))
    except etree.XMLSyntaxError as error:
        if error.code == etree.ErrorTypes.ERR_NO_MEMORY:
            raise MemoryError from None
        raise InputError(f"{place}: not well-formed XML ({error.msg})", "save it again in its program") from None
