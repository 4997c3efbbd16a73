"""Lines as the training text would have them: in the usual case of their words, and without misspelt words."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from mt.text.casing import Casing, Recase
from mt.text.spelling import Spelling


class Repaired(NamedTuple):
    """A line to be translated in place of another, and what then gives its translation the other's case."""

    line: str
    recase: Recase | None = None


@dataclass(frozen=True)
class SourceRepair:
    """What a model's training text teaches of its source language; None where it teaches nothing."""

    casing: Casing | None = None
    spelling: Spelling | None = None

    def repaired(
        self,
        line: str,
        language: str = "",
        keep_case: bool = False,
        kept: Callable[[str], Sequence[tuple[int, int]]] = lambda line: (),
    ) -> Repaired:
        """Return a line in the usual case of its words, with known words for misspelt ones, of which it has as many.

        Args:
            line: of the source language.
            language: its code.
            keep_case: whether the case stays as it is.
            kept: returns the spans of a line, start and end, whose spelling stays as it is.
        """
        usual = self.casing.restored(line, language) if self.casing and not keep_case else None
        line, recase = usual or (line, None)
        return Repaired(self.spelling.corrected(line, kept) if self.spelling else line, recase)


NO_REPAIR = SourceRepair()
