"""Repair of mojibake, HTML entities, invisible characters and spreadsheet quotes in sentences."""

import html
import re
from collections.abc import Callable
from html.entities import html5
from importlib.util import find_spec

from mt.extras.doctor.characters import ENTITY, TAG, markup, mojibake, suspicious_characters
from mt.text.lines import nfc

_MAX_ROUNDS = 16  # `&amp;amp;`, or mojibake of mojibake
# Tags within words and sentences; others separate words.
_INLINE = frozenset("a abbr b big code em font i label nobr s small span strike strong sub sup tt u".split())
_UNPAIRED = frozenset("br dd dt hr img input li link meta option p td th tr".split())  # may lack a closing tag
_TAG_START = re.compile(r"<(/?\w+)")
# Entities of a high and a low surrogate, as Java and JavaScript write one character.
_HIGH = r"(?:[xX][dD][89abAB][0-9a-fA-F]{2}|55(?:29[6-9]|[3-9]\d\d)|56(?:[0-2]\d\d|3[01]\d))"
_LOW = r"(?:[xX][dD][c-fC-F][0-9a-fA-F]{2}|56(?:3[2-9]\d|[4-9]\d\d)|57(?:[0-2]\d\d|3[0-3]\d|34[0-3]))"
_SURROGATES = re.compile(f"&#({_HIGH});&#({_LOW});")
_REMOVED = frozenset({"zero-width", "soft-hyphen", "bidi", "control", "nul"})
# Rules whose findings a repair can fix.
REPAIRABLE = (*sorted(_REMOVED), "line-break", "markup", "mojibake")


def repaired(text: str, scripts: frozenset[str]) -> tuple[str, list[str]]:
    """Return a raw line as it was meant to be, and the names of its repairs in order; repairing it again does nothing.

    `scripts` are those of the language: some need invisible characters.
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
    """Remove tags and decode entities, but not those of a text that may be about tags."""
    if not any(markup(text)):
        return text
    text = _without_tags(text)
    decoded = ENTITY.sub(_decoded, _SURROGATES.sub(_joined, text))
    return decoded if len(TAG.findall(decoded)) == len(TAG.findall(text)) else text


def _without_tags(text: str) -> str:
    """Remove tags except those that are opened only, as in "a <b> tag", or closed only."""
    tags = {tag.lower() for tag in _TAG_START.findall(text)}

    def replacement(tag: re.Match[str]) -> str:
        name = _TAG_START.findall(tag[0])[0].lower().removeprefix("/")
        if name not in _UNPAIRED and not {name, f"/{name}"} <= tags:
            return tag[0]
        return "" if name in _INLINE else " "

    removed = TAG.sub(replacement, text)
    return text if removed == text else re.sub(" {2,}", " ", removed).strip()


def _decoded(entity: re.Match[str]) -> str:
    """Decode an entity; `&notit;` stays, which `html.unescape` reads as `&not` and `it;`, and so do invalid ones."""
    is_known = entity[0][1] == "#" or entity[0][1:] in html5
    decoded = html.unescape(entity[0]).replace("\xa0", " ")
    return decoded if is_known and "\ufffd" not in decoded else entity[0]


def _joined(surrogates: re.Match[str]) -> str:
    high, low = (int(f"0{code}", 16) if code[0] in "xX" else int(code) for code in surrogates.groups())
    return chr(0x10000 + ((high - 0xD800) << 10) + low - 0xDC00)


def _invisible(text: str, scripts: frozenset[str]) -> str:
    """Remove characters that should not be there; line breaks become spaces."""
    found = {position: rule for rule, position, _ in suspicious_characters(text, scripts) if rule in REPAIRABLE}
    if not scripts:  # unknown ones may need invisible characters
        found = {position: rule for position, rule in found.items() if rule not in ("zero-width", "bidi")}
    if not found:
        return text
    replaced = {position: "" if rule in _REMOVED else " " for position, rule in found.items()}
    return "".join(replaced.get(position, letter) for position, letter in enumerate(text))


def _quotes(text: str, scripts: frozenset[str]) -> str:
    """Undo the quoting of a spreadsheet's cell: outer quotes, with doubled ones within."""
    cell = text.strip()
    inner = cell[1:-1]
    is_quoted = cell[:1] == cell[-1:] == '"' and '""' in inner and '"' not in inner.replace('""', "")
    return inner.replace('""', '"') if is_quoted else text


_REPAIRS: dict[str, Callable[[str, frozenset[str]], str]] = {
    "mojibake": _mojibake,
    "markup": _markup,
    "invisible": _invisible,
    "quotes": _quotes,
    "composed": lambda text, _: nfc(text),
}
