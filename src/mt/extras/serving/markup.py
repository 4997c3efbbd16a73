"""Tags inside of sentences: taken out before translation, and put back around the words they belong to.

A word of a translation gets the elements of the source word it comes from, as Bergamot's translator does
(https://github.com/browsermt/bergamot-translator): so tags stay well-formed whatever the order of the words, and an
element may be repeated where its words have come apart.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise, takewhile

from mt.decoding.alignment import Unit


@dataclass(eq=False)
class Element:
    """An element inside of a line of text.

    Attributes:
        opening, closing: its tags.
        start, end: its content, as places in the line without its tags; the same for one without text.
        parents: the elements that it stands in, the outer ones first. For one with text its place tells.
    """

    opening: str
    closing: str
    start: int
    end: int
    parents: tuple["Element", ...] = ()


@dataclass
class Line:
    """A line of text and the elements in it, outer ones first."""

    text: str
    elements: list[Element] = field(default_factory=list)

    def __post_init__(self) -> None:
        # A stable order: of two with the same content the one that opened first is the outer one.
        self.elements.sort(key=lambda element: (element.start, -element.end))
        self._edges = sorted({place for one in self.elements for place in (one.start, one.end)})
        self._children: dict[Element, list[Element]] = {}
        for element in self.elements:
            if element.parents:
                self._children.setdefault(element.parents[-1], []).append(element)

    def around(self, place: int) -> list[Element]:
        """The elements that hold the character at a place."""
        return [element for element in self.elements if element.start <= place < element.end]

    def children(self, element: Element) -> list[Element]:
        """The elements that stand directly in another, in their order."""
        return self._children.get(element, [])

    def edges_within(self, start: int, end: int) -> list[int]:
        """The places between two characters of a part of the line where tags stand."""
        return self._edges[bisect_right(self._edges, start) : bisect_left(self._edges, end)]


class Writer:
    """Writes a line with the tags that its elements call for.

    Args:
        line: what is written, part by part and in order.
        escape: how text is written between tags.
    """

    def __init__(self, line: Line, escape: Callable[[str], str]) -> None:
        self._line = line
        self._escape = escape
        self._open: list[Element] = []
        self._written: set[Element] = set()
        self._parts: list[str] = []
        self._waiting = ""  # white space whose elements the next word will tell

    def keep(self, start: int, end: int) -> None:
        """A part of the line as it is."""
        edges = [start, *self._line.edges_within(start, end), end]
        for begin, stop in pairwise(edges):
            self._put_empty(element for element in self._line.elements if element.start == element.end == begin)
            self._write(self._line.text[begin:stop], self._line.around(begin))

    def space(self, text: str) -> None:
        """What stands between two words; it belongs to the elements of both."""
        self._waiting += text

    def translated(self, start: int, end: int, text: str, units: Sequence[Unit]) -> None:
        """The translation of a part of the line.

        Args:
            start, end: the part.
            text: its translation.
            units: the words of the translation, whose origins count from the part's start; none where no tag stands
                inside of the part.
        """
        units = [part for unit in units for part in self._parts_of(unit, text, start)]
        lost = self._lost(start, end, units)
        self._put_empty(element for element in lost if element.end <= start)
        before, stack = 0, self._line.around(start)
        for unit in units:
            place = start + unit.origin
            own = self._line.around(place)
            self.space(text[before : unit.start])
            self._put_empty(element for element in lost if element.start <= place)
            self._write(text[unit.start : unit.end], own)
            before, stack = unit.end, own
        self._write(text[before:], stack)
        self._put_empty(lost)

    def finish(self) -> str:
        """All that was written, with every element closed, and none lost."""
        self._write_space([])
        self._put_empty(self._line.elements)
        self._go_to([])
        return "".join(self._parts)

    def _parts_of(self, unit: Unit, text: str, start: int) -> list[Unit]:
        """A word that was not translated, cut where tags stand inside of it: m<sup>2</sup>."""
        place, length = start + unit.origin, unit.end - unit.start
        if self._line.text[place : place + length] != text[unit.start : unit.end]:
            return [unit]
        edges = [place, *self._line.edges_within(place, place + length), place + length]
        return [
            Unit(unit.start + begin - place, unit.start + stop - place, begin - start)
            for begin, stop in pairwise(edges)
        ]

    def _lost(self, start: int, end: int, units: Sequence[Unit]) -> list[Element]:
        """The elements of a part that have no word in its translation."""
        kept = {element for unit in units for element in self._line.around(start + unit.origin)}
        kept.update(self._line.around(start) if not units else ())
        return [one for one in self._line.elements if start <= one.start and one.end <= end and one not in kept]

    def _write(self, text: str, stack: list[Element]) -> None:
        if text:
            self._write_space(stack)
            self._go_to(stack)
            self._parts.append(self._escape(text))

    def _write_space(self, following: list[Element]) -> None:
        if self._waiting:
            self._go_to(_common(self._open, following))
            self._parts.append(self._escape(self._waiting))
            self._waiting = ""

    def _go_to(self, stack: list[Element]) -> None:
        """Closes and opens elements until just these are open."""
        common = len(_common(stack, self._open))
        self._parts += [element.closing for element in reversed(self._open[common:])]
        self._parts += [element.opening for element in stack[common:]]
        self._open = list(stack)
        self._written.update(stack)

    def _put_empty(self, elements: Iterable[Element]) -> None:
        """Elements without content, or whose words were lost in translation, where they were not written yet."""
        for element in elements:
            if element not in self._written:
                self._write_space(list(element.parents))
                self._go_to(list(element.parents))
                self._put_whole(element)

    def _put_whole(self, element: Element) -> None:
        """An element and what stands in it, where that was not written yet."""
        self._written.add(element)
        self._parts.append(element.opening)
        for child in self._line.children(element):
            if child not in self._written:
                self._put_whole(child)
        self._parts.append(element.closing)


def _common(one: Sequence[Element], other: Sequence[Element]) -> list[Element]:
    """The elements that two stacks begin with."""
    return [a for a, b in takewhile(lambda pair: pair[0] is pair[1], zip(one, other, strict=False))]
