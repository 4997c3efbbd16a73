"""Language codes and names, and the tag of back-translated text."""

import re
from collections.abc import Sequence
from functools import cache

from mt.errors import InputError

# Marks back-translated source sentences (Caswell et al. 2019, arXiv:1906.06442).
BACK_TRANSLATION_TAG = "<BT>"
# Tags that mark a term in the source, its translation and the end (Dinu et al. 2019, arXiv:1906.01105).
TERM_TAGS = ("x-term", "x-translation", "x-end")

# The ISO 639-1 codes most models are trained for, with their names and, as NLLB's codes begin with them, their
# three-letter codes (ISO 639-3); other languages go by their code.
_LANGUAGES = [
    entry.split()
    for entry in (
        "ar Arabic ara arb, bg Bulgarian bul, bn Bengali ben, ca Catalan cat, cs Czech ces, cy Welsh cym, "
        "da Danish dan, de German deu, el Greek ell, en English eng, eo Esperanto epo, es Spanish spa, "
        "et Estonian est, eu Basque eus, fa Persian fas pes, fi Finnish fin, fr French fra, ga Irish gle, "
        "gl Galician glg, gu Gujarati guj, he Hebrew heb, hi Hindi hin, hr Croatian hrv, hu Hungarian hun, "
        "hy Armenian hye, id Indonesian ind, is Icelandic isl, it Italian ita, ja Japanese jpn, ka Georgian kat, "
        "kk Kazakh kaz, km Khmer khm, ko Korean kor, la Latin lat, lt Lithuanian lit, lv Latvian lav lvs, "
        "mk Macedonian mkd, mn Mongolian mon khk, mr Marathi mar, ms Malay msa zsm, mt Maltese mlt, my Burmese mya, "
        "ne Nepali nep npi, nl Dutch nld, no Norwegian nor nob, oc Occitan oci, pl Polish pol, pt Portuguese por, "
        "ro Romanian ron, ru Russian rus, sk Slovak slk, sl Slovenian slv, sq Albanian sqi als, sr Serbian srp, "
        "sv Swedish swe, sw Swahili swa swh, ta Tamil tam, th Thai tha, tr Turkish tur, uk Ukrainian ukr, "
        "ur Urdu urd, vi Vietnamese vie, zh Chinese zho"
    ).split(", ")
]
LANGUAGE_NAMES = {code: name for code, name, *_ in _LANGUAGES}
_THREE_LETTERS = {three: code for code, _, *others in _LANGUAGES for three in others}


@cache
def base_language(code: str) -> str:
    """Return the language of a code without region or script: zh for zh-Hans, zh_TW or ZH, de for deu_Latn."""
    base = re.split("[-_]", code.lower())[0]
    return _THREE_LETTERS.get(base, base)


# Written without spaces between words.
_UNSPACED = {"zh", "ja", "th", "lo", "km", "my", "bo", "dz"}
# Other codes of these languages, and languages with the same writing system.
_WRITTEN_AS = dict.fromkeys(("chi", "cmn", "yue", "wuu", "lzh"), "zh") | dict.fromkeys(("bod", "tib"), "bo")
_WRITTEN_AS |= {"lao": "lo", "bur": "my", "dzo": "dz"}


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
    rest = code[len(re.split("[-_]", code)[0]) + 1 :]
    return f"{LANGUAGE_NAMES[base]} ({rest})" if rest else LANGUAGE_NAMES[base]


def only_language(languages: Sequence[str]) -> str:
    """Return the language of a model's side; an empty string if it has several."""
    return languages[0] if len(languages) == 1 else ""


def chosen_language(languages: Sequence[str], chosen: str | None, side: str = "target") -> str:
    """Return the chosen language of a model's side, or its only one if `chosen` is None.

    Raises InputError if the model does not have it, or has several and none is chosen.
    """
    if chosen is None and len(languages) == 1:
        return languages[0]
    if chosen is None or chosen not in languages:
        preposition, option = ("into", "--to") if side == "target" else ("from", "--from")
        problem = f"no {side} language was chosen" if chosen is None else f"not {preposition} {chosen}"
        message = f"the model translates {preposition} {', '.join(languages)}; {problem}"
        raise InputError(message, f"choose with {option} {languages[0]}")
    return chosen
