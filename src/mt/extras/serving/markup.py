"""Inline tags: removed before translation and transferred to the aligned words afterwards.

Tags stay well-formed whatever the word order, and no element is lost (`placement`).
"""

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise, takewhile
from operator import attrgetter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mt.decoding.alignment import Unit

_START = attrgetter("start")


@dataclass(eq=False)
class Element:
    """An inline element.

    Attributes:
        opening, closing: its tags.
        start, end: span of its content in the line without tags; empty for an element without text.
        parents: enclosing elements, outermost first.
    """

    opening: str
    closing: str
    start: int
    end: int
    parents: tuple["Element", ...] = ()


@dataclass
class Line:
    """A line of text and its inline elements, outer ones first."""

    text: str
    elements: list[Element] = field(default_factory=list)

    def __post_init__(self) -> None:
        # Stable sort: of two elements with the same span the first to open is the outer one.
        self.elements.sort(key=lambda element: (element.start, -element.end))
        self._with_text = [element for element in self.elements if element.start < element.end]
        self._edges = sorted({place for one in self.elements for place in (one.start, one.end)})
        self.children: defaultdict[Element, list[Element]] = defaultdict(list)  # direct ones, in order
        for element in self.elements:
            if element.parents:
                self.children[element.parents[-1]].append(element)

    def around(self, position: int) -> list[Element]:
        """Return the elements around a character, outer ones first."""
        number = bisect_right(self._with_text, position, key=_START)
        # Elements are nested: those around are the last one to begin and its parents, unless they end before.
        last = self._with_text[number - 1 : number]
        return [one for inner in last for one in (*inner.parents, inner) if one.end > position]

    def beginning(self, start: int, end: int) -> list[Element]:
        """Return the elements that begin in a span, outer ones first."""
        first, last = (bisect_left(self.elements, place, key=_START) for place in (start, end))
        return self.elements[first:last]

    def empty_at(self, position: int) -> list[Element]:
        """Return the elements without text at a position."""
        return [one for one in self.beginning(position, position + 1) if one.end == position]

    def white_space_around(self, element: Element) -> tuple[bool, bool]:
        """Return whether white space stands before and behind an element without text."""
        start = element.start
        return self.text[max(0, start - 1) : start].isspace(), self.text[start : start + 1].isspace()

    def edges_within(self, start: int, end: int) -> list[int]:
        """Return the positions of tags strictly inside a span."""
        return self._edges[bisect_right(self._edges, start) : bisect_left(self._edges, end)]


class Writer:
    """Write a line, span by span and in order, with the tags of its elements.

    Args:
        line: the source line.
        escape: is applied to text.
        space: between words of the target language; empty where it writes none.
    """

    def __init__(self, line: Line, escape: Callable[[str], str], space: str) -> None:
        self._line, self._escape, self._space = line, escape, space
        self._open: list[Element] = []
        self._written: set[Element] = set()
        self._parts: list[str] = []
        self._pending_space = ""  # between two words; it gets the elements common to both

    def copy(self, start: int, end: int) -> None:
        """Write a span of the line unchanged."""
        if start == end:
            return
        for begin, stop in pairwise([start, *self._line.edges_within(start, end), end]):
            self._put_unwritten(self._line.empty_at(begin))
            self._write(self._line.text[begin:stop], self._line.around(begin))

    def gap(self, start: int, end: int, text: str) -> None:
        """Write white space between two sentences, and the elements without text between start and end."""
        within = [one for one in self._line.beginning(start, end) if one.start == one.end]
        self._put_before(within, is_first=False)
        if not self._pending_space:
            self._pending_space = text

    def translated(self, start: int, end: int, text: str, units: "Sequence[Unit]") -> None:
        """Write the translation of the span from start to end of the line.

        `units` are its words, with origins relative to `start`; they may be missing if the span has no inner tags.
        """
        from mt.extras.serving.placement import Placement  # imports numpy, which most documents do not need

        units = [part for unit in units for part in self._split_at_tags(unit, text, start)]
        if not units:
            self._put_unwritten(self._line.empty_at(start))
            self._write(text, self._line.around(start))
            return
        placement, written = Placement(self._line, start, end, units, self._written), 0
        for number, (unit, stack) in enumerate(zip(units, placement.stacks, strict=True)):
            self._pending_space += text[written : unit.start]
            self._put_before(placement.before[number], is_first=number == 0)
            self._write(text[unit.start : unit.end], stack)
            self._put_behind(placement.after[number])
            written = unit.end

    def finish(self) -> str:
        """Close all elements, add those not yet written, and return the text."""
        self._put_unwritten(self._line.elements)
        self._go_to([])
        return "".join(self._parts)

    def _split_at_tags(self, unit: "Unit", text: str, start: int) -> "list[Unit]":
        """Split a word that was copied at the tags inside it: m<sup>2</sup>."""
        origin, length = start + unit.origin, unit.end - unit.start
        if self._line.text[origin : origin + length] != text[unit.start : unit.end]:
            return [unit]
        edges = [origin, *self._line.edges_within(origin, origin + length), origin + length]
        shift = unit.start - origin
        return [
            unit._replace(start=begin + shift, end=stop + shift, origin=begin - start, shares=())
            for begin, stop in pairwise(edges)
        ]

    def _write(self, text: str, stack: list[Element]) -> None:
        if text:
            self._go_to(stack)
            self._parts.append(self._escape(text))

    def _go_to(self, stack: Sequence[Element]) -> None:
        """Close elements, write pending white space, and open elements until exactly these are open."""
        pairs = zip(stack, self._open, strict=False)
        common = len(list(takewhile(lambda pair: pair[0] is pair[1], pairs)))
        self._parts += [element.closing for element in reversed(self._open[common:])]
        self._parts.append(self._escape(self._pending_space))
        self._pending_space = ""
        self._parts += [element.opening for element in stack[common:]]
        self._open = list(stack)
        self._written.update(stack)

    def _put_before(self, elements: Iterable[Element], is_first: bool) -> None:
        """Write elements without words before a word, with white space around them as in the source."""
        for element, follows, precedes in self._beside(elements):
            before, behind = self._line.white_space_around(element)
            if before and not (follows or self._pending_space or is_first):
                self._pending_space = self._space
            self._put_unwritten([element])
            if before and behind and not precedes:
                self._pending_space += self._space

    def _put_behind(self, elements: Iterable[Element]) -> None:
        for element, follows, _ in self._beside(elements):
            if self._line.white_space_around(element)[0] and not follows:
                self._pending_space += self._space
            self._put_unwritten([element])

    def _beside(self, elements: Iterable[Element]) -> list[tuple[Element, bool, bool]]:
        """Return unwritten elements, and whether each follows and precedes another directly."""
        rest = [element for element in elements if element not in self._written]
        touching = [False, *(one.start == other.start for one, other in pairwise(rest)), False]
        return list(zip(rest, touching, touching[1:], strict=False))

    def _put_unwritten(self, elements: Iterable[Element]) -> None:
        """Write elements without content or without translated words, and those inside them, unless already written."""
        remaining = list(elements)[::-1]  # recursion would limit the depth
        while remaining:
            element = remaining.pop()
            if element not in self._written:
                self._go_to((*element.parents, element))
                remaining += reversed(self._line.children[element])
