"""Texts segmented into sentences for translation and assembled again.

Models are trained on sentences. Line breaks of plain text and tags of HTML stay in place; in HTML a line break is white
space.
"""

import html
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from mt.decoding.alignment import Unit
from mt.decoding.translator import Candidate
from mt.extras.serving.html_lines import html_lines
from mt.extras.serving.markup import Line, Writer
from mt.text.sentences import sentence_ends

Aligner = Callable[[str, Candidate], Sequence[Unit]]

_BREAK = re.compile(r"(\r\n|\r|\n)")
# Collapsed to one space in HTML; &nbsp; too, which training data rarely contains.
_WHITE = re.compile(r"[ \t\n\r\f\xa0]+")
_NOT_COLLAPSED = re.compile(r"[^ \t\n\r\f\xa0]|(?<![ \t\n\r\f\xa0]).", re.DOTALL)


def _sentence_spans(text: str, language: str) -> list[tuple[int, int]]:
    """Return the spans of sentences without the white space between them; none if no letter or digit is in the text."""
    inner = text.strip()
    if not any(map(str.isalnum, inner)):
        return []
    offset = len(text) - len(text.lstrip())
    return [
        (offset + start, offset + start + len(inner[start:end].rstrip()))
        for start, end in pairwise([0, *sentence_ends(inner, language), len(inner)])
    ]


@dataclass(frozen=True)
class _Segments:
    """A line and the spans of its sentences; `collapse` is True if white space collapses, as in HTML."""

    line: Line
    spans: list[tuple[int, int]]
    collapse: bool

    def sentences(self) -> list[str]:
        """Return the input for the model."""
        texts = [self.line.text[start:end] for start, end in self.spans]
        return [_WHITE.sub(" ", text) for text in texts] if self.collapse else texts

    def has_inner_tags(self) -> bool:
        return any(self.line.edges_within(*span) for span in self.spans)

    def assemble(
        self, candidates: Iterator[Candidate], align: Aligner, separator: str, escape: Callable[[str], str]
    ) -> str:
        writer, text = Writer(self.line, escape), self.line.text
        end = 0
        for number, ((start, stop), sentence) in enumerate(zip(self.spans, self.sentences(), strict=True)):
            if number:
                gap = text[end:start]
                writer.space(gap if _BREAK.search(gap) else separator)
            else:
                writer.copy(0, start)
            candidate, end = next(candidates), stop
            units: Sequence[Unit] = []
            if self.line.edges_within(start, end):
                positions = [match.start() for match in _NOT_COLLAPSED.finditer(text[start:end])]
                units = [unit._replace(origin=positions[unit.origin]) for unit in align(sentence, candidate)]
            writer.translated(start, end, candidate.text, units)
        writer.copy(end, len(text))
        return writer.finish()


@dataclass(frozen=True)
class SegmentedText:
    """A text as verbatim parts and lines of sentences.

    Attributes:
        separator: between two sentences of the target language.
        escape: applied to translated text.
    """

    parts: list[str | _Segments]
    separator: str
    escape: Callable[[str], str]

    @property
    def sentences(self) -> list[str]:
        """The sentences to translate."""
        return [sentence for line in self._lines for sentence in line.sentences()]

    @property
    def needs_alignment(self) -> bool:
        """True if there are tags inside sentences."""
        return any(line.has_inner_tags() for line in self._lines)

    @property
    def _lines(self) -> list[_Segments]:
        return [part for part in self.parts if isinstance(part, _Segments)]

    def assemble(self, translations: Sequence[Candidate], align: Aligner) -> str:
        """Replace each sentence by its translation; `align` aligns a translation's words with the sentence."""
        candidates = iter(translations)
        return "".join(
            part if isinstance(part, str) else part.assemble(candidates, align, self.separator, self.escape)
            for part in self.parts
        )


def segment_plain(text: str, separator: str, language: str = "en") -> SegmentedText:
    """Segment plain text in a language, given the separator of target sentences."""
    lines = [
        part if number % 2 else _Segments(Line(part), _sentence_spans(part, language), False)
        for number, part in enumerate(_BREAK.split(text))
    ]
    return SegmentedText(lines, separator, str)


def segment_html(text: str, separator: str, language: str = "en") -> SegmentedText:
    """Segment HTML; tags, comments and untranslated elements (`<code>`, `translate="no"`) stay verbatim."""
    lines = [
        part if isinstance(part, str) else _Segments(part, _sentence_spans(part.text, language), True)
        for part in html_lines(text)
    ]
    return SegmentedText(lines, separator, lambda translation: html.escape(translation, quote=False))
