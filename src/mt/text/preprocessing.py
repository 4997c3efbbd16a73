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
    """Preprocessing that was learned from a model's training text; None: a step that is off, or learned nothing."""

    casing: Casing | None = None
    spelling: Spelling | None = None

    def apply(
        self,
        line: str,
        language: str = "",
        keep_case: bool = False,
        kept: Kept = lambda line: (),
    ) -> Preprocessed:
        """Return a line in the usual case of its words and with corrected spelling; the number of words is the same.

        Args:
            line: of the source language.
            language: its code.
            keep_case: whether the case stays as it is.
            kept: finds text that is spelt in one way only.
        """
        if self.casing or self.spelling:
            line = nfc(line)  # the letters of their words
        usual = self.casing.restored(line, language, kept) if self.casing and not keep_case else None
        line, recase = usual or (line, None)
        return Preprocessed(self.spelling.corrected(line, kept) if self.spelling else line, recase)


NO_PREPROCESSING = Preprocessing()
