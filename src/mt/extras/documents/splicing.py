"""Documents that are rewritten in place: all that is not translated keeps its bytes."""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby

from mt.extras.documents.segments import Marked, Parts, Segment, has_words

_Change = tuple[int, int, str]  # start and end of a stretch of the source, and its new text


@dataclass(frozen=True)
class Span:
    """A stretch of a document's source with its text; a piece of a segment may consist of several."""

    start: int
    end: int
    text: str  # to translate
    quote: str = ""  # written around the translation of an attribute, whose own quotes, if any, belong to the stretch


@dataclass
class Spliced:
    """Source text, a whole document or a part of it, and the spans in it that are to be translated."""

    source: str
    escape: Callable[[str, str], str]  # writes a translation in the document's syntax, given the source it replaces
    segments: list[Segment] = field(default_factory=list)
    spans: list[list[list[Span]]] = field(default_factory=list)  # of each piece of each segment
    blocks: list[tuple[int, int]] = field(default_factory=list)  # start and end of each segment with its markup, if any
    kept: list[tuple[str, str]] = field(default_factory=list)  # place and reason of text that could not be a segment
    charsets: list[tuple[int, int]] = field(default_factory=list)  # where the source names one other than UTF-8

    def add(self, pieces: list[list[Span]], place: str, block: tuple[int, int] = (0, 0), parts: Parts = ()) -> None:
        """Add a segment, unless no piece of it has a letter."""
        texts = tuple("".join(span.text for span in piece) for piece in pieces)
        if any(map(has_words, texts)):
            self.segments.append(Segment(texts, place, parts))
            self.blocks.append(block)
            self.spans.append(pieces)

    def written(self, translations: Sequence[tuple[str, ...] | None]) -> str:
        """Return the document with translations in place of the texts; None leaves a segment as it was."""
        changes, blocks = list[_Change](), list[_Change]()
        segments = zip(self.segments, self.spans, self.blocks, translations, strict=True)
        for segment, pieces, block, translated in segments:
            if isinstance(translated, Marked):
                blocks.append((*block, translated[0]))
                continue
            for old, spans, new in zip(segment.texts, pieces, translated or segment.texts, strict=True):
                if new != old:  # the text goes into the first span, and the others are emptied
                    first = spans[0]
                    source = self.source[first.start : spans[-1].end]
                    escaped = f"{first.quote}{self.escape(source, new)}{first.quote}"
                    changes += [(span.start, span.end, escaped if span is first else "") for span in spans]
        if blocks or changes:
            changes += [(*span, "UTF-8") for span in self.charsets]
        return self._changed(0, len(self.source), self._merged(sorted(blocks), sorted(changes)))

    def _changed(self, start: int, end: int, changes: Iterable[_Change]) -> str:
        """Return a stretch of the source with changes, given in order."""
        parts = []
        for first, last, new in changes:
            parts += [self.source[start:first], new]
            start = last
        return "".join([*parts, self.source[start:end]])

    def _merged(self, blocks: list[_Change], changes: list[_Change]) -> Iterator[_Change]:
        """Yield all changes in order; those of attributes within a block are made in the block's new text."""
        last = 0
        for start, stop, text in blocks:
            first, previous = bisect_left(changes, (start,)), last
            last = bisect_left(changes, (stop,))
            yield from changes[previous:first]
            # The longest first, as it may begin with another one.
            for old, new in sorted(self._tags(changes[first:last]), key=lambda tag: -len(tag[0])):
                text = text.replace(old, new)
            yield start, stop, text
        yield from changes[last:]

    def _tags(self, changes: Sequence[_Change]) -> Iterator[tuple[str, str]]:
        """Yield (old, new) of each tag whose attributes change, up to the character after the last of these."""
        for start, group in groupby(changes, lambda change: self.source.rfind("<", 0, change[0])):
            tag_changes = list(group)
            end = tag_changes[-1][1] + 1
            yield self.source[start:end], self._changed(start, end, tag_changes)
