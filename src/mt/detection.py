"""English names of languages, and which of them a text is in."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from mt.languages import base_language

if TYPE_CHECKING:
    from py3langid.langid import LanguageIdentifier

# ISO 639-1, those that models are most often made for; another language is called by its code.
_NAMES = {
    **{
        "ar": "Arabic",
        "bg": "Bulgarian",
        "bn": "Bengali",
        "ca": "Catalan",
        "cs": "Czech",
        "cy": "Welsh",
        "da": "Danish",
    },
    **{"de": "German", "el": "Greek", "en": "English", "eo": "Esperanto", "es": "Spanish", "et": "Estonian"},
    **{
        "eu": "Basque",
        "fa": "Persian",
        "fi": "Finnish",
        "fr": "French",
        "ga": "Irish",
        "gl": "Galician",
        "gu": "Gujarati",
    },
    **{"he": "Hebrew", "hi": "Hindi", "hr": "Croatian", "hu": "Hungarian", "hy": "Armenian", "id": "Indonesian"},
    **{"is": "Icelandic", "it": "Italian", "ja": "Japanese", "ka": "Georgian", "kk": "Kazakh", "km": "Khmer"},
    **{"ko": "Korean", "la": "Latin", "lt": "Lithuanian", "lv": "Latvian", "mk": "Macedonian", "mn": "Mongolian"},
    **{
        "mr": "Marathi",
        "ms": "Malay",
        "mt": "Maltese",
        "my": "Burmese",
        "ne": "Nepali",
        "nl": "Dutch",
        "no": "Norwegian",
    },
    **{"oc": "Occitan", "pl": "Polish", "pt": "Portuguese", "ro": "Romanian", "ru": "Russian", "sk": "Slovak"},
    **{
        "sl": "Slovenian",
        "sq": "Albanian",
        "sr": "Serbian",
        "sv": "Swedish",
        "sw": "Swahili",
        "ta": "Tamil",
        "th": "Thai",
    },
    **{"tr": "Turkish", "uk": "Ukrainian", "ur": "Urdu", "vi": "Vietnamese", "zh": "Chinese"},
}


def language_name(code: str) -> str:
    """English of en; German (AT) of de-AT."""
    base = base_language(code)
    if base not in _NAMES:
        return code
    rest = code[len(base) + 1 :]
    return f"{_NAMES[base]} ({rest})" if rest else _NAMES[base]


class Detector:
    """Tells which language a text is in, with py3langid.

    Args:
        codes: languages to consider beside the common ones; more candidates would mean more mistakes on short texts.
    """

    def __init__(self, codes: Sequence[str]) -> None:
        self._candidates = {*_NAMES, *map(base_language, codes)}
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
