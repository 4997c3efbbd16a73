"""Consistency of the two sides of a pair: numbers and final punctuation."""

import re
import unicodedata
from collections.abc import Iterable
from itertools import product

from mt.text.languages import base_language

# Digits in groups of three are one number, whatever the separator.
_NUMBER = re.compile(r"(?<!\d)\d{1,3}(?:[.,'’ \u00a0\u2009\u202f]\d{3})+(?!\d)|\d+")
_DIGIT = re.compile(r"\d")
_MYRIADS = frozenset({"zh", "ja", "ko", "yue"})  # 3万 is 30,000
_HALF_DAY = 12  # hours
_COMPARED = 100  # numbers of a side, at most; a sentence has fewer

_CLOSERS = "\"'”’»«)]}›‹“„」『）】》*_ \t\u00a0\u202f"
_ENDS = {
    **dict.fromkeys(".。．।॥۔։።។…‥", "."),
    **dict.fromkeys("?？؟⁇⁈", "?"),
    **dict.fromkeys("!！⁉‼", "!"),
    **dict.fromkeys(":：", ":"),
}
_UNPUNCTUATED = frozenset({"th", "lo", "km", "my", "bo", "dz"})


def number_mismatch(src: str, tgt: str, languages: tuple[str, str]) -> str:
    """Return the numbers found on one side only, or "".

    Differences that formatting, units such as million, or numbers written as words explain are ignored.
    """
    if not (_DIGIT.search(src) or _DIGIT.search(tgt)):
        return ""
    src_numbers, tgt_numbers = _NUMBER.findall(src), _NUMBER.findall(tgt)
    if src_numbers == tgt_numbers:
        return ""
    myriads = not _MYRIADS.isdisjoint(map(base_language, languages))
    source, target = ({_canonical(number, myriads) for number in side} for side in (src_numbers, tgt_numbers))
    missing, added = source - target, target - source
    for left, right in product(sorted(missing)[:_COMPARED], sorted(added)[:_COMPARED]):
        if _equivalent(left, right):
            missing.discard(left)
            added.discard(right)
    if missing and added:
        return f"{_listing(missing)} and {_listing(added)}"
    often_in_words = (number for number in missing | added if len(number) <= 2 or number.endswith("00"))
    return _listing((missing | added).difference(often_in_words))


def _canonical(number: str, myriads: bool) -> str:
    """Strip separators, and the zeros that words such as million or 万 replace."""
    digits = re.sub(r"\D", "", number)
    if not digits.isascii():
        digits = "".join(str(unicodedata.decimal(digit)) for digit in digits)
    digits = digits.lstrip("0") or "0"
    stripped = digits.rstrip("0") or "0"
    return stripped if myriads else stripped + "0" * ((len(digits) - len(stripped)) % 3)


def _equivalent(left: str, right: str) -> bool:
    """Report whether two numbers can be one time (3 pm, 15:00) or one year (1990s, '90s)."""
    longer, shorter = (left, right) if len(left) >= len(right) else (right, left)
    if len(longer) == 4 and len(shorter) == 2:
        return longer.endswith(shorter)
    if len(longer) > 2:
        return False
    hours = int(left), int(right)
    return max(hours) < 2 * _HALF_DAY and abs(hours[0] - hours[1]) == _HALF_DAY


def _listing(numbers: Iterable[str]) -> str:
    return ", ".join(f"{number:.20}" for number in sorted(numbers)[:4])


def end_mismatch(src: str, tgt: str, languages: tuple[str, str]) -> str:
    """Return how the final punctuation of the two sides differs, or ""."""
    if not _UNPUNCTUATED.isdisjoint(map(base_language, languages)):
        return ""
    ends = [_end(side, language) for side, language in zip((src, tgt), languages, strict=True)]
    return "" if ends[0] == ends[1] else " and ".join(end or "none" for end in ends)


def _end(text: str, language: str) -> str:
    last = text.rstrip(_CLOSERS)[-1:]
    if last in (";", "\u037e") and base_language(language) == "el":
        return "?"
    return _ENDS.get(last, "")
