"""Places of inline elements in a translation: around consecutive words, inside the parent, and beside siblings.

An element gets the run of words with the most attention to its source words, so that a stray link does not stretch it.

    T words of a translation   S words of its source
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mt.decoding.alignment import Unit
from mt.extras.serving.markup import Element, Line

_MIN_SHARE = 0.4  # of a word's attention, from which on an element extends to the word
_LEAST_SHARE = 0.1  # the same for an element that would get no word otherwise


class Placement:
    """The elements around each word of a translation, outer ones first (`stacks`), and those without a word.

    The latter stand before or after a word: `before` and `after` have them by the word's number.

    Args:
        line: the source line.
        start, end: span of the sentence in it.
        units: the words of the translation.
        written: elements that have words of an earlier sentence.
    """

    def __init__(self, line: Line, start: int, end: int, units: Sequence[Unit], written: Collection[Element]) -> None:
        self._line, self._start, self._end, self._written = line, start, end, written
        shares = [unit.shares or ((unit.origin, 1.0),) for unit in units]
        self._words = sorted({start + word for unit_shares in shares for word, _ in unit_shares})  # by position
        numbers = {word: number for number, word in enumerate(self._words, 1)}
        weights = np.zeros((len(units), len(self._words) + 1))
        for row, unit_shares in zip(weights, shares, strict=True):
            for word, share in unit_shares:
                row[numbers[start + word]] += share
        self._sums = weights.cumsum(axis=1)  # (T, S + 1)
        self._origins = [start + unit.origin for unit in units]
        self._ranges: dict[Element, tuple[int, int]] = {}  # the first word, and the one behind the last
        self.stacks: list[list[Element]] = [[] for _ in units]
        self.before: defaultdict[int, list[Element]] = defaultdict(list)
        self.after: defaultdict[int, list[Element]] = defaultdict(list)
        # Without a word, inside an element that is open at the sentence's start or end
        self._earlier: list[Element] = []
        self._later: list[Element] = []
        self._place_all()

    def _place_all(self) -> None:
        around = self._line.around(self._start)
        around += [one for one in self._line.beginning(self._start + 1, self._end) if one.start < one.end]
        families: defaultdict[Element | None, list[Element]] = defaultdict(list)  # by parent, outer ones first
        for element in around:
            families[element.parents[-1] if element.parents else None].append(element)
        for parent, children in families.items():
            bounds = (0, len(self.stacks)) if parent is None else self._ranges.get(parent)
            self._ranges.update(self._sibling_ranges(children, bounds) if bounds else ())
        for element in around:  # outer ones first
            for stack in self.stacks[slice(*self._ranges.get(element, (0, 0)))]:
                stack.append(element)
        empty = set[Element]()
        unwritten = [one for one in around if one.start < self._start and one not in self._written]
        for element in (*unwritten, *self._line.beginning(self._start, self._end + 1)):
            if element.end <= self._end and element not in self._ranges:
                if empty.isdisjoint(element.parents):  # else it is written with its parent
                    self._place_empty(element)
                empty.add(element)
        for elements in self.before.values():  # outer ones farther from the word
            elements.sort(key=lambda element: len(element.parents))
        for elements in self.after.values():
            elements.sort(key=lambda element: -len(element.parents))
        self.before[0] = self._earlier + self.before[0]
        self.after[len(self._origins) - 1] += self._later

    def _sibling_ranges(
        self, elements: Sequence[Element], bounds: tuple[int, int]
    ) -> Iterable[tuple[Element, tuple[int, int]]]:
        """Yield the range of words of each element that gets some, the clearest first; ranges do not overlap."""
        is_free = np.zeros(len(self._origins), np.bool_)
        is_free[slice(*bounds)] = True
        shares = {element: self._shares(element) for element in elements}
        order = sorted(elements, key=lambda one: -float(np.maximum(shares[one] - _MIN_SHARE, 0).sum()))
        for element in order:
            first, last = self._best_run(element, np.where(is_free, shares[element], -np.inf))
            if first < last:
                is_free[first:last] = False
                yield element, (first, last)

    def _shares(self, element: Element) -> NDArray[Any]:
        """Return the share (T,) of each word's attention that an element's source words have."""
        low, high = (bisect_left(self._words, place) for place in (element.start, element.end))
        return np.asarray(self._sums[:, high] - self._sums[:, low])

    def _best_run(self, element: Element, shares: NDArray[Any]) -> tuple[int, int]:
        """Return the range of words with the most attention, up to a sentence end if the element continues there."""
        gains, n_words = shares - _MIN_SHARE, len(shares)
        if element.start < self._start and element.end > self._end:
            return (0, n_words) if np.isfinite(gains).all() else (0, 0)
        if element.start < self._start:
            sums = gains.cumsum()
            return (0, int(sums.argmax()) + 1) if sums.max(initial=0) > 0 else (0, 0)
        if element.end > self._end:
            sums = gains[::-1].cumsum()
            return (n_words - 1 - int(sums.argmax()), n_words) if sums.max(initial=0) > 0 else (0, 0)
        best, best_range, total, first = 0.0, (0, 0), 0.0, 0
        for place, gain in enumerate(gains.tolist()):  # Kadane's algorithm
            if total <= 0:
                total, first = 0.0, place
            total += gain
            if total > best:
                best, best_range = total, (first, place + 1)
        if not best_range[1] and shares.max(initial=0) >= _LEAST_SHARE:
            return int(shares.argmax()), int(shares.argmax()) + 1
        return best_range

    def _place_empty(self, element: Element) -> None:
        """Place an element without a word: after the word that it is attached to, or before the next one."""
        for outer in element.parents:
            if outer not in self._ranges and outer.end > self._end:  # its words are in a later sentence
                self._later.append(element)
                return
            if outer not in self._ranges and outer.start < self._start:  # or in an earlier one
                self._earlier.append(element)
                return
        parent = element.parents[-1] if element.parents else None
        first, last = self._ranges[parent] if parent in self._ranges else (0, len(self._origins))
        if element.start <= self._start:
            self.before[first].append(element)
            return
        number = bisect_left(self._words, element.start)
        is_attached = not self._line.text[element.start - 1].isspace()
        previous = self._likeliest(number - 1, first, last) if is_attached else None
        following = self._likeliest(number, first, last)
        if previous is None and following is None:  # the first word that comes from further on
            following = next((i for i in range(first, last) if self._origins[i] >= element.start), None)
        if previous is not None or following is None:
            self._put(element, last - 1 if previous is None else previous, behind=True)
        else:
            self._put(element, following, behind=False)

    def _put(self, element: Element, word: int, behind: bool) -> None:
        """Put an element before or behind a word, without splitting an element that does not contain it."""
        outer = next((one for one in self.stacks[word] if one not in element.parents), None)
        first, last = (word, word) if outer is None else (self._ranges[outer][0], self._ranges[outer][1] - 1)
        if outer is not None:  # on the other side of one that continues in the sentence on this side
            behind = outer.end <= self._end if behind else outer.start < self._start
        (self.after[last] if behind else self.before[first]).append(element)

    def _likeliest(self, word: int, first: int, last: int) -> int | None:
        """Return the word of a range that translates a source word, given by its number; None if none does."""
        if not 0 <= word < len(self._words):
            return None
        shares = self._sums[first:last, word + 1] - self._sums[first:last, word]
        return first + int(shares.argmax()) if shares.max() >= _LEAST_SHARE else None
