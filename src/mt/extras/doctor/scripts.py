"""Which scripts a language is written in, and which a text is written in. Scripts are called by ISO 15924's codes."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import cache
from itertools import islice

import regex

from mt.extras.doctor.characters import Fault
from mt.text.languages import base_language

# Languages by script; one that stands in several lines is written in each of these scripts.
_LANGUAGES = {
    "Arab": "ar arz ckb dv fa ks ku kk pa prs ps sd tg ug ur uz az",
    "Armn": "hy",
    "Beng": "as bn",
    "Cyrl": "ab av az ba be bg bs ce cv kk ky mk mn os ru sah sr tg tk tt udm uk uz",
    "Deva": "bho brx doi gom hi kok ks mai mr ne new sa sd",
    "Ethi": "am ti",
    "Geor": "ka xmf",
    "Grek": "el",
    "Gujr": "gu",
    "Guru": "pa",
    "Hang": "ko",
    "Hani": "ja ko lzh wuu yue zh",
    "Bopo": "zh yue",
    "Hebr": "he iw yi",
    "Hira": "ja",
    "Kana": "ja",
    "Khmr": "km",
    "Knda": "kn",
    "Laoo": "lo",
    "Latn": "af an ast az br bs ca ceb co cs cy da de en eo es et eu fi fil fo fr fy ga gd gl gn ha haw hr ht hu id ig "
    "is it jv kk ku la lb lt lv mg mi ms mt nb nl nn no oc pl pt qu rm ro rw sc sk sl sm sn so sq sr st su sv sw tk tl "
    "tr uz vi wo xh yo zu",
    "Mlym": "ml",
    "Mong": "mn",
    "Mymr": "my",
    "Orya": "or",
    "Sinh": "si",
    "Taml": "ta",
    "Telu": "te",
    "Thaa": "dv",
    "Thai": "th",
    "Tibt": "bo dz",
}
_SEVERAL = {"Hans": "Hani Bopo", "Hant": "Hani Bopo", "Jpan": "Hani Hira Kana", "Kore": "Hang Hani"}
_OFTEN = 0.1  # share of the letters that makes a script one of the language's, where nothing else tells
_MOSTLY = 0.9  # share of the letters that scripts listed above must have, for the others not to matter
_LOOKED_AT = 2000  # lines

# Letters that make a line one of another script rather than one with a name in it; Latin stands in text of any script.
_FEW, _MANY = 2, 20
_LATIN = frozenset({"Latn"})
_DENSE = frozenset("Hani Hira Kana Hang".split())
_LETTERS_A_SIGN = 6  # Latin ones that say as much as one of these, with names and terms in Latin letters forgiven
# Told fast: neither Latin nor marks and symbols.
_BEYOND_LATIN = re.compile("[^\0-\u036f\u1e00-\u1eff\u2000-\u2bff]")
# A Latin word with a letter that only looks Latin.
_LOOKALIKE = r"[\p{sc=Cyrl}ΑΒΕΖΗΙΚΜΝΟΡΤΥΧοανυ]"
_MIXED = regex.compile(rf"\p{{sc=Latn}}{_LOOKALIKE}|{_LOOKALIKE}\p{{sc=Latn}}")


def scripts_of(language: str, lines: Iterable[str] = ()) -> frozenset[str]:
    """The scripts that a language is written in.

    Args:
        language: its code; one with a script in it, as in sr-Latn, is taken at its word.
        lines: text in it, which tells where the language is not known here.
    """
    for part in language.replace("_", "-").split("-")[1:]:
        if (code := part.title()) in _SEVERAL or _is_script(code):
            return frozenset(_SEVERAL.get(code, code).split())
    base = base_language(language)
    known = frozenset(script for script, codes in _LANGUAGES.items() if base in codes.split())
    return known or _found_in(lines)


def _found_in(lines: Iterable[str]) -> frozenset[str]:
    counts: Counter[str] = Counter()
    total = 0
    for line in islice(lines, _LOOKED_AT):
        total += len(_others(frozenset()).findall(line))
        for script in _LANGUAGES:
            counts[script] += len(_letters(frozenset({script})).findall(line))
    if sum(counts.values()) < _MOSTLY * total:
        return frozenset()  # most of it is in a script that is not listed here
    return frozenset(script for script, count in counts.items() if count > _OFTEN * total)


@cache
def _is_script(code: str) -> bool:
    """Whether it is the code of a script, in title case."""
    try:
        return len(code) == 4 and code.isalpha() and bool(regex.compile(rf"\p{{sc={code}}}"))
    except regex.error:
        return False


@cache
def _letters(scripts: frozenset[str]) -> "regex.Pattern[str]":
    members = "".join(rf"\p{{sc={script}}}" for script in sorted(scripts))
    return regex.compile(rf"[\p{{L}}&&[{members}]]", regex.V1)


@cache
def _others(scripts: frozenset[str]) -> "regex.Pattern[str]":
    members = "".join(rf"\p{{sc={script}}}" for script in sorted(scripts))
    return regex.compile(rf"[\p{{L}}--[{members}\p{{Common}}\p{{Inherited}}]]", regex.V1)


def foreign_letters(text: str, scripts: frozenset[str]) -> Iterator[Fault]:
    """Letters of scripts that the language is not written in, and words made of two scripts.

    Args:
        text: a sentence.
        scripts: of its language; none: nothing is known of it.
    """
    if not scripts or ("Latn" in scripts and not _BEYOND_LATIN.search(text)):
        return
    mixed = None if text.isascii() else _MIXED.search(text)
    if mixed:
        yield "mixed-script", mixed.start(), mixed[0]
    if (first := _others(scripts).search(text)) is None:
        return
    own = len(_letters(scripts).findall(text)) * (1 if _DENSE.isdisjoint(scripts) else _LETTERS_A_SIGN)
    latin = 0 if "Latn" in scripts else len(_letters(_LATIN).findall(text))
    others = len(_others(scripts).findall(text)) - latin
    if others + latin > own and (others >= _FEW or latin >= _MANY):
        yield "wrong-script", first.start(), ""
    elif others and not mixed:
        place = next(_others(scripts | _LATIN).finditer(text)).start()
        yield "foreign-letters", place, text[place]
