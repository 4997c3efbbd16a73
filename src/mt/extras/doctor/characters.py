"""Characters that a sentence should not have, and how to show them."""

import re
from collections.abc import Iterator
from html.entities import html5

# (kind, place in the text, what to say)
Fault = tuple[str, int, str]

_CLASSES = {
    "nul": "\0",
    "line_break": "\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029",
    "control": "\x01-\x08\x0e-\x1b\x1f\x7f-\x84\x86-\x9f",
    "zero_width": "\u200b-\u200d\u2060-\u2064\ufeff\u180e\u034f\U000e0000-\U000e007f",
    "soft_hyphen": "\xad",
    "bidi": "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069",
    "private_use": "\ue000-\uf8ff\U000f0000-\U0010ffff",
}
_ODD = re.compile("|".join(f"(?P<{name}>[{members}])" for name, members in _CLASSES.items()))

# Scripts whose words need the zero-width joiner and non-joiner, or a space without width between them.
_JOINING = frozenset("Arab Syrc Thaa Mong Deva Beng Guru Gujr Orya Taml Telu Knda Mlym Sinh Khmr Mymr Tibt".split())
_UNSPACED = frozenset("Khmr Thai Laoo Mymr Tibt".split())
RIGHT_TO_LEFT = frozenset("Arab Hebr Syrc Thaa Nkoo".split())
_JOINERS = "\u200c\u200d"
_EMOJI = re.compile("[\u2190-\u2bff\ufe0f\U0001f000-\U0001faff]")

# UTF-8 that was decoded as Windows-1252 or Latin-1: the characters that its continuation bytes become.
_CONTINUED = "[\x80-\xbf€‚ƒ„…†‡ˆ‰Š‹ŒŽ‘’“”•–—˜™š›œžŸ]"
# Of those the ones that stand beside a capital for good reasons, as in MANHÃ…
_MARK = "[\xa0«»·…‘’“”–—]"
_UNIT = "(?<![a-zß-ÿ])Å[²³±®]"  # ångström, or a capital at the end of a name
# The same for Windows-1251, which Cyrillic text is written in.
_CONTINUED_1251 = "[ЂЃ‚ѓ„…†‡€‰Љ‹ЊЌЋЏђ‘’“”•–—™љ›њќћџ\xa0ЎўЈ¤Ґ¦§Ё©Є«¬\xad®Ї°±Ііґµ¶·ё№є»јЅѕї]"
# What all of it begins with; most lines hold nothing like it, and this is told fast.
_PERHAPS = re.compile(f"[À-ïРС](?:{_CONTINUED}|{_CONTINUED_1251})")
_MOJIBAKE = re.compile(
    f"(?![ÂÃÄÅ]{_MARK}|{_UNIT})[ÂÃÄÅ]{_CONTINUED}"
    + f"|(?<![A-ZÀ-Þ])[ÂÃ]{_MARK}"
    + f"|â(?:€{_CONTINUED}|‚¬|„¢)|ï»¿|ï¿½"
    + f"|(?:[ÐÑ]{_CONTINUED}){{2}}|(?:[à-ï]{_CONTINUED}{{2}}){{2}}|(?:[Ä-ß]{_CONTINUED}){{3}}"
    + f"|(?:[РС]{_CONTINUED_1251}){{3}}"
)

_ENTITY = re.compile(r"&(?:#[0-9]{1,7}|#[xX][0-9a-fA-F]{1,6}|[a-zA-Z][a-zA-Z0-9]{1,30});")
_TAGS = (
    "a abbr b big blockquote body br button center code div em font form h[1-6] head hr html i iframe img input label "
    "li link meta nobr ol option p pre s script section select small span strike strong style sub sup table tbody td "
    "th thead title tr tt u ul"
)
_TAG = re.compile(rf"</?(?:{'|'.join(_TAGS.split())})(?:\s[^<>]*)?/?>", re.IGNORECASE)


def odd_characters(text: str, scripts: frozenset[str]) -> Iterator[Fault]:
    """Characters that are not seen, or should not be in text.

    Args:
        text: a line as it was written.
        scripts: of its language; some need joiners or marks of direction.
    """
    if not text.isprintable():  # one loop in C, which most lines end here
        for match in _ODD.finditer(text):
            name = match.lastgroup or ""
            if not _belongs(name, text, match.start(), scripts):
                yield name.replace("_", "-"), match.start(), f"U+{ord(match[0]):04X}"
    if (place := text.find("\ufffd")) >= 0:
        yield "replacement", place, ""


def _belongs(name: str, text: str, place: int, scripts: frozenset[str]) -> bool:
    """Whether such a character has its use here."""
    if name == "line_break":  # the reader removes those around a sentence
        return text[place] in "\r\n" and place >= len(text.rstrip("\r\n"))
    if name == "bidi":
        return not scripts.isdisjoint(RIGHT_TO_LEFT)
    if name != "zero_width":
        return False
    character = text[place]
    if character in _JOINERS and not scripts.isdisjoint(_JOINING):
        return True
    if character == "\u200b" and not scripts.isdisjoint(_UNSPACED):
        return True
    if character >= "\U000e0000":  # a flag of a region is spelt in tags
        return text.find("\U0001f3f4", 0, place) >= 0
    return character == "\u200d" and place > 0 and _EMOJI.match(text[place - 1]) is not None


def mojibake(text: str) -> Iterator[Fault]:
    """UTF-8 that was decoded as a one-byte encoding; only sequences that text does not have otherwise."""
    if _PERHAPS.search(text) and (match := _MOJIBAKE.search(text)):
        yield "mojibake", match.start(), repr(match[0])


def markup(text: str) -> Iterator[Fault]:
    """Entities that HTML knows, and its tags."""
    if "&" in text:
        for match in _ENTITY.finditer(text):
            if match[0][1] == "#" or match[0][1:] in html5:
                yield "markup", match.start(), match[0]
                return
    if "<" in text and (tag := _TAG.search(text)):
        yield "markup", tag.start(), f"{tag[0]:.40}"


def visible(text: str) -> str:
    """The same with characters that are not seen spelt out, so that a terminal shows and does not obey them."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else f"⟨U+{ord(c):04X}⟩" for c in text)


def excerpt(text: str, place: int = 0, width: int = 160) -> str:
    """A part of a text around a place, visible."""
    start = max(0, min(place - width // 2, len(text) - width))
    end = start + width
    return f"{'…' if start else ''}{visible(text[start:end])}{'…' if end < len(text) else ''}"
