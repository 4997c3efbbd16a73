"""Language codes and names, and the word that marks what a model translated back."""

import re
from collections.abc import Sequence
from functools import cache

from mt.errors import InputError

# Begins back-translated sentences, so that a model can tell them from what people wrote (Caswell et al. 2019).
BACK_TRANSLATION_TAG = "<BT>"

# ISO 639-1, those that models are most often made for; another language is called by its code.
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
    """zh of zh, zh-Hans, zh_TW or ZH."""
    return re.split("[-_]", code.lower())[0]


# Written without spaces between words.
_UNSPACED = {"zh", "ja", "th", "lo", "km", "my", "bo", "dz"}
# Codes of three letters for these and Korean, and languages that are written as one of them is.
_WRITTEN_AS = dict(
    pair.split(" ")
    for pair in (
        "zho zh, chi zh, cmn zh, yue zh, wuu zh, lzh zh, jpn ja, kor ko, tha th, lao lo, khm km, mya my, bur my, "
        "bod bo, tib bo, dzo dz"
    ).split(", ")
)


def written_as(code: str) -> str:
    """The code of two letters of the language whose way of writing a language has: zh of yue or zho_Hant."""
    base = base_language(code)
    return _WRITTEN_AS.get(base, base)


def is_spaced(code: str) -> bool:
    """Whether a language has spaces between its words."""
    return written_as(code) not in _UNSPACED


def language_name(code: str) -> str:
    """English of en; German (AT) of de-AT."""
    base = base_language(code)
    if base not in LANGUAGE_NAMES:
        return code
    rest = code[len(base) + 1 :]
    return f"{LANGUAGE_NAMES[base]} ({rest})" if rest else LANGUAGE_NAMES[base]


def chosen_language(languages: Sequence[str], chosen: str | None) -> str:
    """The target language that is meant of those a model has.

    Args:
        languages: the model's.
        chosen: one of them; None is the only one.

    Raises:
        InputError: it is none of them, or none is named of several.
    """
    if chosen is None and len(languages) == 1:
        return languages[0]
    if chosen is None or chosen not in languages:
        what = "which of them is not said" if chosen is None else f"not into {chosen}"
        raise InputError(
            f"the model translates into {', '.join(languages)}; {what}", f"choose with --to {languages[0]}"
        )
    return chosen
