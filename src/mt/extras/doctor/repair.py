"""Repair of mojibake, HTML entities, invisible characters and spreadsheet quotes in sentences."""

import html
import re
from collections.abc import Callable
from importlib.util import find_spec

from mt.errors import InputError
from mt.extras.doctor.characters import ENTITY, TAG, markup, mojibake, suspicious_characters
from mt.text.lines import nfc

_MAX_ROUNDS = 4  # `&amp;amp;`, or mojibake of mojibake
_QUOTED = re.compile(r'"((?:[^"]|"")*)"')
_REMOVED = frozenset({"zero-width", "soft-hyphen", "bidi", "control", "nul"})
# Findings that a repair can do away with.
REPAIRABLE = (*sorted(_REMOVED), "line-break", "markup", "mojibake")


def require_ftfy() -> None:
    """Refuse a repair without the package for mojibake (an InputError)."""
    if find_spec("ftfy") is None:
        raise InputError("--repair needs a package that is not installed (ftfy)", "pip install 'mt-train[data]'")


def repaired(text: str, scripts: frozenset[str]) -> tuple[str, list[str]]:
    """Return a sentence as it was meant to be, and the names of its repairs, first to last; no second call changes it.

    Args:
        text: a raw line.
        scripts: of its language, some of which need characters that are invisible elsewhere.
    """
    reasons: list[str] = []
    for _ in range(_MAX_ROUNDS):
        before = text
        for reason, repair in _REPAIRS.items():
            changed = repair(text, scripts)
            if changed != text:
                reasons += [reason] if reason not in reasons else []
                text = changed
        if text == before:
            break
    return text, reasons


def _mojibake(text: str, scripts: frozenset[str]) -> str:
    if not any(mojibake(text)) or find_spec("ftfy") is None:
        return text
    import ftfy

    fixed = ftfy.fix_encoding(text)
    return text if "\ufffd" in fixed else fixed


def _markup(text: str, scripts: frozenset[str]) -> str:
    """Decode entities, and remove tags that are not translated themselves."""
    if not any(markup(text)):
        return text
    decoded = ENTITY.sub(lambda found: html.unescape(found[0]), text)
    return " ".join(TAG.sub(" ", decoded).split()) if TAG.search(decoded) else decoded.replace("\xa0", " ")


def _invisible(text: str, scripts: frozenset[str]) -> str:
    """Remove characters that should not be there; where lines break, leave a space."""
    found = {position: rule for rule, position, _ in suspicious_characters(text, scripts) if rule in REPAIRABLE}
    if not scripts:  # nobody knows whether they need invisible characters
        found = {position: rule for position, rule in found.items() if rule != "zero-width"}
    if not found:
        return text
    replaced = {position: "" if rule in _REMOVED else " " for position, rule in found.items()}
    return "".join(replaced.get(position, letter) for position, letter in enumerate(text))


def _quotes(text: str, scripts: frozenset[str]) -> str:
    """Undo the quoting of a spreadsheet's cell: outer quotes, with doubled ones within."""
    found = _QUOTED.fullmatch(text.strip())
    return found[1].replace('""', '"') if found and '""' in found[1] else text


_REPAIRS: dict[str, Callable[[str, frozenset[str]], str]] = {
    "mojibake": _mojibake,
    "markup": _markup,
    "invisible": _invisible,
    "quotes": _quotes,
    "composed": lambda text, _: nfc(text),
}
