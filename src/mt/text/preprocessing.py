"""Preprocessing of source lines: the usual case of words in capitals, and corrected spelling."""

from dataclasses import dataclass
from typing import NamedTuple

from mt.text.casing import Casing, Kept, Recase
from mt.text.lines import nfc
from mt.text.spelling import Spelling


class Preprocessed(NamedTuple):
    """A preprocessed line, and the function that puts its translation into the original's case."""

    line: str
    recase: Recase | None = None


@dataclass(frozen=True)
class Preprocessing:
    """Preprocessing that was learned from a model's training text; None is a step that is off or learned nothing."""

    casing: Casing | None = None
    spelling: Spelling | None = None

    def apply(
        self, line: str, language: str = "", keep_case: bool = False, kept: Kept = lambda line: ()
    ) -> Preprocessed:
        """Truecase a line, unless its case is to be kept, and correct its spelling; the number of words stays the same.

        `kept` finds terms, code and the like, which are spelt in one way only.
        """
        if self.casing or self.spelling:
            line = nfc(line)  # as in the text that they learned from
        truecased = self.casing.restored(line, language, kept) if self.casing and not keep_case else None
        line, recase = truecased or (line, None)
        return Preprocessed(self.spelling.corrected(line, kept) if self.spelling else line, recase)


NO_PREPROCESSING = Preprocessing()
