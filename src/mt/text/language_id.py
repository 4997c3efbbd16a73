"""Language identification with py3langid."""

from collections import defaultdict
from collections.abc import Sequence
from copy import copy
from functools import cache, cached_property
from importlib.util import find_spec
from typing import TYPE_CHECKING

from mt.text.languages import LANGUAGE_NAMES, base_language

if TYPE_CHECKING:
    from py3langid.langid import LanguageIdentifier

_CONFIDENT = 50.0  # percent of confidence above which a text may count as already translated


class Detector:
    """An identifier of the common languages and of `codes`, whose model is loaded on first use.

    More candidates mean more mistakes on short texts.
    """

    def __init__(self, codes: Sequence[str]) -> None:
        self._candidates = {*LANGUAGE_NAMES, *map(base_language, codes)}

    @cached_property
    def library(self) -> "LanguageIdentifier":
        """The loaded identifier."""
        identifier = copy(_all_languages())
        identifier.set_languages([code for code in identifier.nb_classes if code in self._candidates])
        return identifier

    def rank(self, text: str) -> list[tuple[str, float]]:
        """Return (code, confidence in percent) of each language, best first; nothing for a text without letters."""
        if not any(character.isalpha() for character in text):
            return []
        return [(code, round(100 * float(share), 1)) for code, share in self.library.rank(text)]

    def supports(self, code: str) -> bool:
        """Return True if a language can be identified."""
        return base_language(code) in self.library.nb_classes

    def source_of(self, text: str, sources: Sequence[str], target_lang: str) -> tuple[str, float]:
        """Return the likeliest of `sources` for a text, or the target if the text is surely in it; and the confidence.

        The confidence, in percent, is among all candidates. A source and a target that differ in region or script
        alone (pt_PT, pt_BR) cannot be distinguished; the source is returned.
        """
        confidence = defaultdict[str, float](float, self.rank(text))
        source = max(sources, key=lambda code: confidence[base_language(code)])
        of_source, of_target = confidence[base_language(source)], confidence[base_language(target_lang)]
        return (target_lang, of_target) if of_target > max(_CONFIDENT, of_source) else (source, of_source)


@cache
def _all_languages() -> "LanguageIdentifier":
    """Return the identifier of all languages, which takes half a second to read."""
    from py3langid.langid import MODEL_FILE, LanguageIdentifier

    return LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)


def known_languages() -> list[str]:
    """Return the codes of all languages that py3langid can identify."""
    return list(_all_languages().nb_classes)


def wrong_language_share(texts: Sequence[str], target_lang: str, codes: Sequence[str]) -> float | None:
    """Return the percentage of a model's translations that are in another of its languages, `codes`, than the target.

    Only these are candidates, since short sentences are often mistaken for some other language. None without py3langid,
    or if the target or all others cannot be identified.
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
