"""Language codes and names, and the tag of back-translated text."""

import re
from collections.abc import Sequence
from functools import cache

from mt.errors import InputError

# Marks back-translated source sentences (Caswell et al. 2019, arXiv:1906.06442).
BACK_TRANSLATION_TAG = "<BT>"

# The ISO 639-1 codes most models are trained for; other languages go by their code.
LANGUAGE_NAMES = dict(
    entry.split(" ", 1)
    for entry in (
        "ar Arabic, bg Bulgarian, bn Bengali, ca Catalan, cs Czech, cy Welsh, da Danish, de German, el Greek, "
        "en English, eo Esperanto, es Spanish, et Estonian, eu Basque, fa Persian, fi Finnish, fr French, ga "
        "Irish, gl Galician, gu Gujarati, he Hebrew, hi Hindi, hr Croatian, hu Hungarian, hy Armenian, id "
        "Indonesian, is Icelandic, it Italian, ja Japanese, ka Georgian, kk Kazakh, km Khmer, ko Korean, la "
        "Latin, lt Lithuanian, lv Latvian, mk Macedonian, mn Mongolian, mr Marathi, ms Malay, mt Maltese, my "
        "Burmese, ne Nepali, nl Dutch, no Norwegian, oc Occitan, pl Polish, pt Portuguese, ro Romanian, ru "
        "Russian, sk Slovak, sl Slovenian, sq Albanian, sr Serbian, sv Swedish, sw Swahili, ta Tamil, th "
        "Thai, tr Turkish, uk Ukrainian, ur Urdu, vi Vietnamese, zh Chinese"
    ).split(", ")
)


@cache
def base_language(code: str) -> str:
    """Return the language of a code without region or script: zh for zh-Hans, zh_TW or ZH."""
    return re.split("[-_]", code.lower())[0]


# Written without spaces between words.
_UNSPACED = {"zh", "ja", "th", "lo", "km", "my", "bo", "dz"}
# Three-letter codes of these and of Korean, and languages with the same writing system.
_WRITTEN_AS = dict(
    pair.split(" ")
    for pair in (
        "zho zh, chi zh, cmn zh, yue zh, wuu zh, lzh zh, jpn ja, kor ko, tha th, lao lo, khm km, mya my, bur my, "
        "bod bo, tib bo, dzo dz"
    ).split(", ")
)


def written_as(code: str) -> str:
    """Return the two-letter code of a language with the same writing system: zh for yue or zho_Hant."""
    base = base_language(code)
    return _WRITTEN_AS.get(base, base)


def is_spaced(code: str) -> bool:
    """Return True if a language writes spaces between words."""
    return written_as(code) not in _UNSPACED


def language_name(code: str) -> str:
    """Return the English name: English for en, German (AT) for de-AT."""
    base = base_language(code)
    if base not in LANGUAGE_NAMES:
        return code
    rest = code[len(base) + 1 :]
    return f"{LANGUAGE_NAMES[base]} ({rest})" if rest else LANGUAGE_NAMES[base]


def chosen_language(languages: Sequence[str], chosen: str | None) -> str:
    """Return the chosen target language of a model, or its only one if `chosen` is None.

    Raises:
        InputError: the model does not have it, or has several and none is chosen.
    """
    if chosen is None and len(languages) == 1:
        return languages[0]
    if chosen is None or chosen not in languages:
        problem = "no target language was chosen" if chosen is None else f"not into {chosen}"
        raise InputError(
            f"the model translates into {', '.join(languages)}; {problem}", f"choose with --to {languages[0]}"
        )
    return chosen
