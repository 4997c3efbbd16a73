"""What of a text is translated, and how it is put together again.

A text is cut into sentences, since that is what models learn from; line breaks stay where they are, and so do the tags
of HTML.
"""

import html
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from mt.decoding.alignment import Unit
from mt.decoding.translator import Candidate
from mt.serving.html_lines import html_lines
from mt.serving.markup import Line, Writer

# The end of a sentence: a short word before a full stop may be an abbreviation ("Dr. Smith").
_SENTENCE_END = re.compile(r"(?:(?<=\w{4}\.)|(?<=[!?…])|(?<=[.!?…][\"'»”)]))\s+(?=\S)|(?<=[。！？])(?=\S)")
Origins = Callable[[str, Candidate], Sequence[Unit]]

_BREAK = re.compile(r"(\r\n|\r|\n)")


@dataclass(frozen=True)
class _Run:
    """A line and where its sentences are; white space around them stays, and a line without letter or digit."""

    line: Line
    sentences: list[tuple[int, int]]

    @classmethod
    def of(cls, line: Line) -> "_Run":
        inner = line.text.strip()
        if not any(character.isalnum() for character in inner):
            return cls(line, [])
        start = len(line.text) - len(line.text.lstrip())
        ends = [match.span() for match in _SENTENCE_END.finditer(inner)]
        starts = [0, *(after for _, after in ends)]
        stops = [*(before for before, _ in ends), len(inner)]
        return cls(line, [(start + begin, start + stop) for begin, stop in zip(starts, stops, strict=True)])

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
                writer.space(joint)
            found = next(following)
            has_tags = self.line.edges_within(start, end)
            units = origins(self.line.text[start:end], found) if has_tags else []
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
        return [run.line.text[start:end] for run in self._runs for start, end in run.sentences]

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


def plain_pieces(text: str, joint: str) -> Pieces:
    """Cuts plain text.

    Args:
        text: any text.
        joint: what stands between two sentences of the target language.
    """
    parts = [part if number % 2 else _Run.of(Line(part)) for number, part in enumerate(_BREAK.split(text))]
    return Pieces(parts, joint, str)


def html_pieces(text: str, joint: str) -> Pieces:
    """Cuts HTML: tags, comments, entities in them, and what is not language (`<code>`, `translate="no"`) stay."""
    parts = [part if isinstance(part, str) else _Run.of(part) for part in html_lines(text)]
    return Pieces(parts, joint, lambda translation: html.escape(translation, quote=False))
