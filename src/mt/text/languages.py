"""Language codes and names, and the tag of back-translated text."""

import re
from collections.abc import Sequence
from functools import cache

from mt.errors import InputError

# Marks back-translated source sentences (Caswell et al. 2019, arXiv:1906.06442).
BACK_TRANSLATION_TAG = "<BT>"
# Tags that mark a term in the source, its translation and the end (Dinu et al. 2019, arXiv:1906.01105).
TERM_TAGS = ("x-term", "x-translation", "x-end")

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


# Their three-letter codes (ISO 639-3), which NLLB's codes begin with.
_THREE_LETTERS = dict(
    entry.split(" ")
    for entry in (
        "ara ar, arb ar, bul bg, ben bn, cat ca, ces cs, cym cy, dan da, deu de, ell el, eng en, epo eo, spa es, "
        "est et, eus eu, fas fa, pes fa, fin fi, fra fr, gle ga, glg gl, guj gu, heb he, hin hi, hrv hr, hun hu, "
        "hye hy, ind id, isl is, ita it, jpn ja, kat ka, kaz kk, khm km, kor ko, lat la, lit lt, lav lv, lvs lv, "
        "mkd mk, mon mn, khk mn, mar mr, msa ms, zsm ms, mlt mt, mya my, nep ne, npi ne, nld nl, nor no, nob no, "
        "oci oc, pol pl, por pt, ron ro, rus ru, slk sk, slv sl, sqi sq, als sq, srp sr, swe sv, swa sw, swh sw, "
        "tam ta, tha th, tur tr, ukr uk, urd ur, vie vi, zho zh"
    ).split(", ")
)


@cache
def base_language(code: str) -> str:
    """Return the language of a code without region or script: zh for zh-Hans, zh_TW or ZH, de for deu_Latn."""
    base = re.split("[-_]", code.lower())[0]
    return _THREE_LETTERS.get(base, base)


# Written without spaces between words.
_UNSPACED = {"zh", "ja", "th", "lo", "km", "my", "bo", "dz"}
# More three-letter codes of these, and languages with the same writing system.
_WRITTEN_AS = dict(
    pair.split(" ")
    for pair in ("chi zh, cmn zh, yue zh, wuu zh, lzh zh, lao lo, bur my, bod bo, tib bo, dzo dz").split(", ")
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
    rest = code[len(re.split("[-_]", code)[0]) + 1 :]
    return f"{LANGUAGE_NAMES[base]} ({rest})" if rest else LANGUAGE_NAMES[base]


def chosen_language(languages: Sequence[str], chosen: str | None, side: str = "target") -> str:
    """Return the chosen language of a model's side, or its only one if `chosen` is None.

    Raises:
        InputError: the model does not have it, or has several and none is chosen.
    """
    if chosen is None and len(languages) == 1:
        return languages[0]
    if chosen is None or chosen not in languages:
        preposition, option = ("into", "--to") if side == "target" else ("from", "--from")
        problem = f"no {side} language was chosen" if chosen is None else f"not {preposition} {chosen}"
        message = f"the model translates {preposition} {', '.join(languages)}; {problem}"
        raise InputError(message, f"choose with {option} {languages[0]}")
    return chosen
