"""What the two sides of a pair should have in common: numbers, and how they end."""

import re
import unicodedata
from itertools import product

from mt.text.languages import base_language

# Digits in groups of three are one number, whatever stands between the groups.
_NUMBER = re.compile(r"(?<!\d)\d{1,3}(?:[.,'’ \u00a0\u2009\u202f]\d{3})+(?!\d)|\d+")
_DIGIT = re.compile(r"\d")
_MYRIADS = frozenset({"zh", "ja", "ko", "yue"})  # 3万 is 30,000
_SPELT = 100  # numbers up to this, and round ones, are often written in words
_NOON = 12  # hours
_COMPARED = 100  # numbers of a side; a sentence has fewer

_CLOSERS = "\"'”’»«)]}›‹“„」』）】》*_ \t\u00a0\u202f"
_ENDS = {
    **dict.fromkeys(".。．।॥۔։።។…‥", "."),
    **dict.fromkeys("?？؟⁇⁈", "?"),
    **dict.fromkeys("!！⁉‼", "!"),
    **dict.fromkeys(":：", ":"),
}
_WITHOUT_ENDS = frozenset({"th", "lo", "km", "my", "bo", "dz"})


def numbers_differ(src: str, tgt: str, languages: tuple[str, str]) -> str:
    """Which numbers are on one side only, as far as writing them in words or otherwise does not explain it.

    Args:
        src: the source sentence.
        tgt: the target sentence.
        languages: their codes.

    Returns:
        what to say; empty where nothing is wrong.
    """
    if not (_DIGIT.search(src) or _DIGIT.search(tgt)):
        return ""
    ours, theirs = _NUMBER.findall(src), _NUMBER.findall(tgt)
    if ours == theirs:
        return ""
    counted_in_myriads = not _MYRIADS.isdisjoint(map(base_language, languages))
    source, target = ({_canonical(n, counted_in_myriads) for n in side} for side in (ours, theirs))
    missing, added = source - target, target - source
    for one, other in product(sorted(missing)[:_COMPARED], sorted(added)[:_COMPARED]):
        if _same(one, other):
            missing.discard(one)
            added.discard(other)
    if missing and added:
        return f"{_listed(missing)} and {_listed(added)}"
    alone = [number for number in missing | added if not _spelt(number)]
    return _listed(alone) if alone else ""


def _canonical(number: str, counted_in_myriads: bool) -> str:
    """Without separators, and without what `million` and its like stand for."""
    digits = re.sub(r"\D", "", number)
    if not digits.isascii():
        digits = "".join(str(unicodedata.decimal(digit)) for digit in digits)
    digits = digits.lstrip("0") or "0"
    without = digits.rstrip("0") or "0"
    if counted_in_myriads:
        return without
    return without + "0" * ((len(digits) - len(without)) % 3)


def _same(one: str, other: str) -> bool:
    """Times by two clocks (3 pm, 15:00), and years with their century or without (1990s, '90s)."""
    longer, shorter = (one, other) if len(one) >= len(other) else (other, one)
    if len(longer) == 4 and len(shorter) == 2:
        return longer.endswith(shorter)
    return len(longer) <= 2 and max(int(one), int(other)) < 2 * _NOON and abs(int(one) - int(other)) == _NOON


def _spelt(number: str) -> bool:
    return len(number) <= 2 or number.endswith("00") or number == str(_SPELT)


def _listed(numbers: set[str] | list[str]) -> str:
    return ", ".join(f"{number:.20}" for number in sorted(numbers)[:4])


def ends_differ(src: str, tgt: str, languages: tuple[str, str]) -> str:
    """How the ends of the two sides differ; empty where they do not."""
    if not _WITHOUT_ENDS.isdisjoint(map(base_language, languages)):
        return ""
    ends = [_end(side, language) for side, language in zip((src, tgt), languages, strict=True)]
    return "" if ends[0] == ends[1] else " and ".join(end or "none" for end in ends)


def _end(text: str, language: str) -> str:
    last = text.rstrip(_CLOSERS)[-1:]
    if last in (";", "\u037e") and base_language(language) == "el":
        return "?"
    return _ENDS.get(last, "")
