"""Texts segmented into sentences for translation and assembled again.

Models are trained on sentences. Line breaks of plain text and tags of HTML stay in place; in HTML a line break is white
space.
"""

import html
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import pairwise

from mt.decoding.alignment import Unit
from mt.decoding.candidates import Candidate
from mt.extras.serving.html_lines import html_lines
from mt.extras.serving.markup import Line, Writer
from mt.text.sentences import sentence_ends

Aligner = Callable[[str, Candidate], Sequence[Unit]]

_BREAK = re.compile(r"(\r\n|\r|\n)")
# Collapsed to one space in HTML; &nbsp; too, which training data rarely contains.
_WHITE = re.compile(r"[ \t\n\r\f\xa0]+")
_NOT_COLLAPSED = re.compile(r"[^ \t\n\r\f\xa0]|(?<![ \t\n\r\f\xa0]).", re.DOTALL)  # the characters that remain


class _Segments:
    """A line, the spans of its sentences (none without a letter or digit), and the input for the model."""

    def __init__(self, line: Line, language: str, is_html: bool) -> None:
        self.line = line
        inner = line.text.strip()
        offset = len(line.text) - len(line.text.lstrip())
        ends = [0, *sentence_ends(inner, language), len(inner)] if any(map(str.isalnum, inner)) else []
        # Without the white space between them
        self.spans = [
            (offset + start, offset + start + len(inner[start:end].rstrip())) for start, end in pairwise(ends)
        ]
        texts = [line.text[start:end] for start, end in self.spans]
        self.sentences = [_WHITE.sub(" ", text) for text in texts] if is_html else texts


class SegmentedText:
    """A text as lines of sentences in a language, between parts that stay verbatim.

    The separator stands between sentences of the translation.

    Attributes:
        sentences: to translate.
        needs_alignment: True if there are tags inside sentences.
    """

    def __init__(self, parts: Iterable[str | Line], separator: str, language: str, is_html: bool) -> None:
        self._parts: list[str | _Segments] = [
            part if isinstance(part, str) else _Segments(part, language, is_html) for part in parts
        ]
        self._separator = separator
        self._escape: Callable[[str], str] = partial(html.escape, quote=False) if is_html else str
        lines = [part for part in self._parts if isinstance(part, _Segments)]
        self.sentences = [sentence for line in lines for sentence in line.sentences]
        self.needs_alignment = any(line.line.edges_within(*span) for line in lines for span in line.spans)

    def assemble(self, translations: Sequence[Candidate], align: Aligner) -> str:
        """Replace each sentence by its translation; `align` aligns a translation's words with the sentence."""
        candidates = iter(translations)
        return "".join(
            part if isinstance(part, str) else self._assemble_line(part, candidates, align) for part in self._parts
        )

    def _assemble_line(self, segments: _Segments, candidates: Iterator[Candidate], align: Aligner) -> str:
        line, end = segments.line, 0
        writer = Writer(line, self._escape, self._separator)
        for number, ((start, stop), sentence) in enumerate(zip(segments.spans, segments.sentences, strict=True)):
            if number:
                gap = line.text[end:start]
                writer.gap(end, start, gap if _BREAK.search(gap) else self._separator)
            else:
                writer.copy(0, start)
            candidate, end = next(candidates), stop
            units: Sequence[Unit] = []
            if line.edges_within(start, end):
                positions = [match.start() for match in _NOT_COLLAPSED.finditer(line.text[start:end])]
                units = [unit.moved(positions) for unit in align(sentence, candidate)]
            writer.translated(start, end, candidate.text, units)
        writer.copy(end, len(line.text))
        return writer.finish()


def segment_plain(text: str, separator: str, language: str = "en") -> SegmentedText:
    """Segment plain text; line breaks stay verbatim."""
    parts: list[str | Line] = [part if number % 2 else Line(part) for number, part in enumerate(_BREAK.split(text))]
    return SegmentedText(parts, separator, language, is_html=False)


def segment_html(text: str, separator: str, language: str = "en") -> SegmentedText:
    """Segment HTML; tags, comments and untranslated elements (`<code>`, `translate="no"`) stay verbatim."""
    return SegmentedText(html_lines(text), separator, language, is_html=True)
