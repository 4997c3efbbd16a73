"""Scripts of languages and of text, by ISO 15924 code."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import cache
from itertools import islice

import regex

from mt.extras.doctor.characters import Issue
from mt.text.languages import base_language

# Scripts, each with its languages; some languages have several scripts.
_SCRIPTS = (
    "Arab ar arz ckb dv fa ks ku kk pa prs ps sd tg ug ur uz az, Armn hy, Beng as bn, Cyrl ab av az ba be bg "
    "bs ce cv kk ky mk mn os ru sah sr tg tk tt udm uk uz, Deva bho brx doi gom hi kok ks mai mr ne new sa "
    "sd, Ethi am ti, Geor ka xmf, Grek el, Gujr gu, Guru pa, Hang ko, Hani ja ko lzh wuu yue zh, Bopo zh yue, "
    "Hebr he iw yi, Hira ja, Kana ja, Khmr km, Knda kn, Laoo lo, Latn af an ast az br bs ca ceb co cs cy da "
    "de en eo es et eu fi fil fo fr fy ga gd gl gn ha haw hr ht hu id ig is it jv kk ku la lb lt lv mg mi ms "
    "mt nb nl nn no oc pl pt qu rm ro rw sc sk sl sm sn so sq sr st su sv sw tk tl tr uz vi wo xh yo zu, Mlym "
    "ml, Mong mn, Mymr my, Orya or, Sinh si, Taml ta, Telu te, Thaa dv, Thai th, Tibt bo dz"
)
_LANGUAGES_BY_SCRIPT = {script: frozenset(codes) for script, *codes in map(str.split, _SCRIPTS.split(", "))}
_COMPOUND = {"Hans": "Hani Bopo", "Hant": "Hani Bopo", "Jpan": "Hani Hira Kana", "Kore": "Hang Hani"}

# For an unlisted language: least share of its letters in each of its scripts, and in all listed scripts together.
_MIN_SHARE, _MIN_LISTED = 0.1, 0.9
_MAX_LINES = 2000

# Letters of another script that are more than a name; Latin names occur in text of any script.
_MIN_FOREIGN, _MIN_LATIN = 2, 20
_LATIN = frozenset({"Latn"})
_SYLLABIC = frozenset("Hani Hira Kana Hang".split())
_LATIN_PER_SIGN = 6  # Latin letters that one syllabic sign outweighs, so that Latin names and terms pass
# URLs, paths, e-mail addresses and names of packages or functions are the same in all scripts.
_ASCII, _TECHNICAL = re.compile("[!-~]+"), re.compile(r"[/\\@_0-9]|\w[^\w']\w")
# A fast prefilter: neither Latin nor marks and symbols.
_BEYOND_LATIN = re.compile("[^\0-\u036f\u1e00-\u1eff\u2000-\u2bff]")
# A Latin word with a lookalike letter of another script.
_LOOKALIKE = r"[\p{sc=Cyrl}ΑΒΕΖΗΙΚΜΝΟΡΤΥΧοανυ]"
_MIXED = regex.compile(rf"\p{{sc=Latn}}{_LOOKALIKE}|{_LOOKALIKE}\p{{sc=Latn}}")


def scripts_of(language: str, lines: Iterable[str] = ()) -> frozenset[str]:
    """Return the scripts of a language; a script in its code, as in sr-Latn, decides.

    The scripts of an unlisted language are detected in `lines`, text in that language; empty if that fails.
    """
    for part in language.replace("_", "-").split("-")[1:]:
        if (code := part.title()) in _COMPOUND or _is_script(code):
            return frozenset(_COMPOUND.get(code, code).split())
    base = base_language(language)
    known = frozenset(script for script, codes in _LANGUAGES_BY_SCRIPT.items() if base in codes)
    return known or _detect_scripts(lines)


def _detect_scripts(lines: Iterable[str]) -> frozenset[str]:
    counts: Counter[str] = Counter()
    total = 0
    for line in islice(lines, _MAX_LINES):
        total += len(_letters(frozenset(), outside=True).findall(line))
        for script in _LANGUAGES_BY_SCRIPT:
            counts[script] += len(_letters(frozenset({script})).findall(line))
    if counts.total() < _MIN_LISTED * total:
        return frozenset()  # mostly an unlisted script
    return frozenset(script for script, count in counts.items() if count > _MIN_SHARE * total)


@cache
def _is_script(code: str) -> bool:
    try:
        return len(code) == 4 and code.isalpha() and bool(regex.compile(rf"\p{{sc={code}}}"))
    except regex.error:
        return False


@cache
def _letters(scripts: frozenset[str], outside: bool = False) -> "regex.Pattern[str]":
    """Return a pattern of the letters of some scripts, or of all others."""
    members = "".join(rf"\p{{sc={script}}}" for script in sorted(scripts))
    chosen = rf"--[{members}\p{{Common}}\p{{Inherited}}]" if outside else f"&&[{members}]"
    return regex.compile(rf"[\p{{L}}{chosen}]", regex.V1)


def foreign_letters(text: str, scripts: frozenset[str]) -> Iterator[Issue]:
    """Yield letters outside the language's scripts, and words of two scripts; nothing if `scripts` is empty."""
    if not scripts or ("Latn" in scripts and not _BEYOND_LATIN.search(text)):
        return
    mixed = None if text.isascii() else _MIXED.search(text)
    if mixed:
        yield "mixed-script", mixed.start(), mixed[0]
    if (first := _letters(scripts, outside=True).search(text)) is None:
        return
    n_expected = len(_letters(scripts).findall(text)) * (1 if _SYLLABIC.isdisjoint(scripts) else _LATIN_PER_SIGN)
    words = _ASCII.sub(lambda run: "" if _TECHNICAL.search(run[0]) else run[0], text)
    n_latin = 0 if "Latn" in scripts else len(_letters(_LATIN).findall(words))
    n_other = len(_letters(scripts | _LATIN, outside=True).findall(text))
    if n_other + n_latin > n_expected and (n_other >= _MIN_FOREIGN or n_latin >= _MIN_LATIN):
        yield "wrong-script", first.start(), ""
    elif n_other and not mixed:
        position = next(_letters(scripts | _LATIN, outside=True).finditer(text)).start()
        yield "foreign-letters", position, text[position]
