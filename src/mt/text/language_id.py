"""Language identification with py3langid."""

from collections.abc import Sequence
from copy import copy
from functools import cache
from importlib.util import find_spec
from typing import TYPE_CHECKING

from mt.errors import InputError
from mt.text.languages import LANGUAGE_NAMES, base_language

if TYPE_CHECKING:
    from py3langid.langid import LanguageIdentifier

_CONFIDENT = 50.0  # percent of confidence that a text need not be translated


def require_identification(option: str) -> None:
    """Refuse an option that needs a package which is not installed."""
    if find_spec("py3langid") is None:
        message = f"{option} needs a package that is not installed (py3langid)"
        raise InputError(message, "pip install 'mt-train[data]', or name the language")


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

    def supports(self, code: str) -> bool:
        """Return True if a language can be identified."""
        return base_language(code) in self.library().nb_classes

    def best_of(self, text: str, codes: Sequence[str]) -> tuple[str, float]:
        """Return the best of some languages, and its confidence in percent against all languages."""
        confidence = dict(self.rank(text))
        return max(((code, confidence.get(base_language(code), 0.0)) for code in codes), key=lambda pair: pair[1])

    def source_of(self, text: str, sources: Sequence[str], target_lang: str) -> tuple[str, float]:
        """Return the language of a text to translate, one of `sources`; or the target, if it surely is in that.

        A source and a target that differ in region or script alone (pt_PT, pt_BR) are not told apart: it is the source.
        """
        already, found = self.best_of(text, [target_lang]), self.best_of(text, sources)
        return already if already[1] > _CONFIDENT and already[1] > found[1] else found

    def library(self) -> "LanguageIdentifier":
        """Return the loaded identifier."""
        if self._identifier is None:
            identifier = copy(_all_languages())
            identifier.set_languages([code for code in identifier.nb_classes if code in self._candidates])
            self._identifier = identifier
        return self._identifier


@cache
def _all_languages() -> "LanguageIdentifier":
    """Return the identifier of all languages, which takes half a second to read."""
    from py3langid.langid import MODEL_FILE, LanguageIdentifier

    return LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)


def wrong_language_share(texts: Sequence[str], target_lang: str, codes: Sequence[str]) -> float | None:
    """Return the percentage of a model's translations that are in another of its languages, `codes`, than the target.

    Only these are candidates: short sentences are often mistaken for some other one. None without py3langid, or if the
    target or the others cannot be identified.
    """
    if find_spec("py3langid") is None:
        return None
    identifier, target = copy(_all_languages()), base_language(target_lang)
    known = set(map(base_language, codes)) & set(identifier.nb_classes)
    if target not in known or len(known) < 2:
        return None
    identifier.set_languages(known)
    lines = [text for text in texts if any(map(str.isalpha, text))]
    wrong = sum(identifier.classify(line)[0] != target for line in lines)
    return 100 * int(wrong) / max(len(texts), 1)
