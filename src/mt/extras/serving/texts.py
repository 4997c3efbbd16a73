"""What of a text is translated, and how it is put together again.

A text is cut into sentences, since that is what models learn from. The line breaks of plain text stay where they are,
and so do the tags of HTML, where a line break is only another space.
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
# One space in a sentence of HTML. A browser shows &nbsp; as wide as that, and few models have seen it in their text.
_WHITE = re.compile(r"[ \t\n\r\f\xa0]+")


def _says(text: str) -> bool:
    """Whether there is a letter or a digit, and so something to translate."""
    return any(character.isalnum() for character in text)


def _sentences(text: str, language: str) -> list[tuple[int, int]]:
    """The spans of a text's sentences, without the white space between them."""
    places = [0, *sentence_ends(text, language), len(text)]
    return [(begin, begin + len(text[begin:end].rstrip())) for begin, end in pairwise(places)]


@dataclass(frozen=True)
class _Run:
    """A line and where its sentences are; white space around them stays, and a line without letter or digit.

    Attributes:
        flows: any white space in a sentence means one space, as in HTML.
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
        """A part of the line as a model is to read it."""
        text = self.line.text[start:end]
        return _WHITE.sub(" ", text) if self.flows else text

    def _units(self, start: int, end: int, found: Candidate, origins: Origins) -> Sequence[Unit]:
        """The words of a translation, with origins that count from the part's start in the line."""
        units = origins(self.sentence(start, end), found)
        if not self.flows:
            return units
        places: list[int] = []  # of the characters that `sentence` keeps
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
    """A text as parts that stay and lines whose sentences are translated.

    Attributes:
        joint: what stands between two sentences of the target language.
        escape: how text is written between the parts that stay.
    """

    parts: list[str | _Run]
    joint: str
    escape: Callable[[str], str]

    @property
    def sentences(self) -> list[str]:
        """What to translate."""
        return [run.sentence(start, end) for run in self._runs for start, end in run.sentences]

    @property
    def needs_origins(self) -> bool:
        """Whether tags stand inside of sentences, so that it matters which words come from which."""
        return any(run.line.edges_within(*sentence) for run in self._runs for sentence in run.sentences)

    @property
    def _runs(self) -> list[_Run]:
        return [part for part in self.parts if isinstance(part, _Run)]

    def together(self, translations: Sequence[Candidate], origins: Origins) -> str:
        """The text with translations in place of its sentences.

        Args:
            translations: one for each sentence.
            origins: says which words of a sentence's translation come from which of its own.
        """
        following = iter(translations)
        return "".join(
            part if isinstance(part, str) else part.together(following, origins, self.joint, self.escape)
            for part in self.parts
        )


def plain_pieces(text: str, joint: str, language: str = "en") -> Pieces:
    """Cuts plain text.

    Args:
        text: any text.
        joint: what stands between two sentences of the target language.
        language: the text's.
    """
    parts = [part if number % 2 else _Run.of(Line(part), language) for number, part in enumerate(_BREAK.split(text))]
    return Pieces(parts, joint, str)


def html_pieces(text: str, joint: str, language: str = "en") -> Pieces:
    """Cuts HTML: tags, comments, entities in them, and what is not language (`<code>`, `translate="no"`) stay."""
    parts = [part if isinstance(part, str) else _Run.of(part, language, flows=True) for part in html_lines(text)]
    return Pieces(parts, joint, lambda translation: html.escape(translation, quote=False))
