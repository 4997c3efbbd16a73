"""Language identification with py3langid."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from mt.text.languages import LANGUAGE_NAMES, base_language

if TYPE_CHECKING:
    from py3langid.langid import LanguageIdentifier


class Detector:
    """A language identifier whose model is loaded on first use.

    Args:
        codes: languages to consider beside the common ones; more candidates mean more mistakes on short texts.
    """

    def __init__(self, codes: Sequence[str]) -> None:
        self._candidates = {*LANGUAGE_NAMES, *map(base_language, codes)}
        self._identifier: LanguageIdentifier | None = None

    def rank(self, text: str) -> list[tuple[str, float]]:
        """Return (code, confidence in percent) of each language, best first; nothing for a text without letters."""
        if not any(character.isalpha() for character in text):
            return []
        return [(code, round(100 * float(share), 1)) for code, share in self.library().rank(text)]

    def classify(self, text: str) -> tuple[str, float]:
        """Return the best of `rank` in half the time; the text must have letters."""
        code, share = self.library().classify(text)
        return code, 100 * float(share)

    def supports(self, code: str) -> bool:
        """Return True if a language can be identified."""
        return base_language(code) in self.library().nb_classes

    def best_of(self, text: str, codes: Sequence[str]) -> tuple[str, float]:
        """Return the best of some languages, and its confidence in percent against all languages."""
        confidence = dict(self.rank(text))
        return max(((code, confidence.get(base_language(code), 0.0)) for code in codes), key=lambda pair: pair[1])

    def library(self) -> "LanguageIdentifier":
        """Return the loaded identifier."""
        if self._identifier is None:
            from py3langid.langid import MODEL_FILE, LanguageIdentifier

            identifier = LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
            identifier.set_languages([code for code in identifier.nb_classes if code in self._candidates])
            self._identifier = identifier
        return self._identifier
