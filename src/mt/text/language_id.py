"""Which language a text is in."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from mt.text.languages import LANGUAGE_NAMES, base_language

if TYPE_CHECKING:
    from py3langid.langid import LanguageIdentifier


class Detector:
    """Tells which language a text is in, with py3langid.

    Args:
        codes: languages to consider beside the common ones; more candidates would mean more mistakes on short texts.
    """

    def __init__(self, codes: Sequence[str]) -> None:
        self._candidates = {*LANGUAGE_NAMES, *map(base_language, codes)}
        self._identifier: LanguageIdentifier | None = None

    def rank(self, text: str) -> list[tuple[str, float]]:
        """(code, confidence in percent) of each language, the likeliest first; a text without letters has none."""
        if not any(character.isalpha() for character in text):
            return []
        return [(code, round(100 * float(share), 1)) for code, share in self._library().rank(text)]

    def likeliest(self, text: str) -> tuple[str, float]:
        """The first of `rank` alone, which takes half the time, for a text that has letters."""
        code, share = self._library().classify(text)
        return code, 100 * float(share)

    def knows(self, code: str) -> bool:
        """Whether a language can be told from others."""
        return base_language(code) in self._library().nb_classes

    def among(self, text: str, codes: Sequence[str]) -> tuple[str, float]:
        """The likeliest of some languages, and the confidence that it is, all others considered, in percent."""
        found = dict(self.rank(text))
        return max(((code, found.get(base_language(code), 0.0)) for code in codes), key=lambda pair: pair[1])

    def _library(self) -> "LanguageIdentifier":
        if self._identifier is None:
            from py3langid.langid import MODEL_FILE, LanguageIdentifier

            identifier = LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
            identifier.set_languages([code for code in identifier.nb_classes if code in self._candidates])
            self._identifier = identifier
        return self._identifier
