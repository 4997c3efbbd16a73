"""Texts split into sentences for translation and joined again.

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

Origins = Callable[[str, Candidate], Sequence[Unit]]

_BREAK = re.compile(r"(\r\n|\r|\n)")
# Collapsed to one space in HTML; &nbsp; too, which training data rarely contains.
_WHITE = re.compile(r"[ \t\n\r\f\xa0]+")


def _says(text: str) -> bool:
    """Return True if there is a letter or digit, so something to translate."""
    return any(character.isalnum() for character in text)


def _sentences(text: str, language: str) -> list[tuple[int, int]]:
    """Return the spans of sentences without the white space between them."""
    places = [0, *sentence_ends(text, language), len(text)]
    return [(begin, begin + len(text[begin:end].rstrip())) for begin, end in pairwise(places)]


@dataclass(frozen=True)
class _Run:
    """A line and the spans of its sentences; the rest of the line stays as it is.

    Attributes:
        flows: white space collapses, as in HTML.
    """

    line: Line
    sentences: list[tuple[int, int]]
    flows: bool

    @classmethod
    def of(cls, line: Line, language: str, flows: bool = False) -> "_Run":
        inner = line.text.strip()
        if not _says(inner):
            return cls(line, [], flows)
        start = len(line.text) - len(line.text.lstrip())
        return cls(line, [(start + begin, start + stop) for begin, stop in _sentences(inner, language)], flows)

    def sentence(self, start: int, end: int) -> str:
        """Return a span of the line as input for the model."""
        text = self.line.text[start:end]
        return _WHITE.sub(" ", text) if self.flows else text

    def _units(self, start: int, end: int, found: Candidate, origins: Origins) -> Sequence[Unit]:
        """Return the words of a translation with origins relative to `start` in the line."""
        units = origins(self.sentence(start, end), found)
        if not self.flows:
            return units
        places: list[int] = []  # of the characters kept by `sentence`
        before = 0
        for white in _WHITE.finditer(self.line.text, start, end):
            places += range(before, white.start() - start + 1)
            before = white.end() - start
        places += range(before, end - start)
        return [unit._replace(origin=places[unit.origin]) for unit in units]

    def together(
        self, following: Iterator[Candidate], origins: Origins, joint: str, escape: Callable[[str], str]
    ) -> str:
        writer = Writer(self.line, escape)
        if not self.sentences:
            writer.keep(0, len(self.line.text))
            return writer.finish()
        writer.keep(0, self.sentences[0][0])
        for number, (start, end) in enumerate(self.sentences):
            if number:
                gap = self.line.text[self.sentences[number - 1][1] : start]
                writer.space(gap if _BREAK.search(gap) else joint)
            found = next(following)
            has_tags = self.line.edges_within(start, end)
            units = self._units(start, end, found, origins) if has_tags else []
            writer.translated(start, end, found.text, units)
        writer.keep(self.sentences[-1][1], len(self.line.text))
        return writer.finish()


@dataclass(frozen=True)
class Pieces:
    """A text as verbatim parts and lines whose sentences are translated.

    Attributes:
        joint: separator between two sentences of the target language.
        escape: applied to translated text.
    """

    parts: list[str | _Run]
    joint: str
    escape: Callable[[str], str]

    @property
    def sentences(self) -> list[str]:
        """The sentences to translate."""
        return [run.sentence(start, end) for run in self._runs for start, end in run.sentences]

    @property
    def needs_origins(self) -> bool:
        """True if there are tags inside sentences, so that word alignment is needed."""
        return any(run.line.edges_within(*sentence) for run in self._runs for sentence in run.sentences)

    @property
    def _runs(self) -> list[_Run]:
        return [part for part in self.parts if isinstance(part, _Run)]

    def together(self, translations: Sequence[Candidate], origins: Origins) -> str:
        """Replace the sentences by their translations.

        Args:
            translations: one for each sentence.
            origins: aligns the words of a translation with its source.
        """
        following = iter(translations)
        return "".join(
            part if isinstance(part, str) else part.together(following, origins, self.joint, self.escape)
            for part in self.parts
        )


def plain_pieces(text: str, joint: str, language: str = "en") -> Pieces:
    """Split plain text.

    Args:
        text: any text.
        joint: separator between two sentences of the target language.
        language: code of the source language.
    """
    parts = [part if number % 2 else _Run.of(Line(part), language) for number, part in enumerate(_BREAK.split(text))]
    return Pieces(parts, joint, str)


def html_pieces(text: str, joint: str, language: str = "en") -> Pieces:
    """Split HTML; tags, comments and untranslated elements (`<code>`, `translate="no"`) stay verbatim."""
    parts = [part if isinstance(part, str) else _Run.of(part, language, flows=True) for part in html_lines(text)]
    return Pieces(parts, joint, lambda translation: html.escape(translation, quote=False))
