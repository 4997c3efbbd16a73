"""Invisible and invalid characters, mojibake and markup; excerpts that show them."""

import re
from collections.abc import Iterator
from html.entities import html5

Issue = tuple[str, int, str]  # rule, position in the text, note

_EXCERPT = 160  # characters

_CHARACTER_CLASSES = {
    "nul": "\0",
    "line_break": "\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029",
    "control": "\x01-\x08\x0e-\x1b\x1f\x7f-\x84\x86-\x9f",
    "zero_width": "\u200b-\u200d\u2060-\u2064\ufeff\u180e\u034f\U000e0000-\U000e007f",
    "soft_hyphen": "\xad",
    "bidi": "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069",
    "private_use": "\ue000-\uf8ff\U000f0000-\U0010ffff",
}
_SUSPICIOUS = re.compile("|".join(f"(?P<{name}>[{members}])" for name, members in _CHARACTER_CLASSES.items()))

# Scripts that need a class of characters, or a single one.
_NEEDED_BY = {
    "bidi": frozenset("Arab Hebr Syrc Thaa Nkoo".split()),
    **dict.fromkeys(
        "\u200c\u200d",  # joiners
        frozenset("Arab Syrc Thaa Mong Deva Beng Guru Gujr Orya Taml Telu Knda Mlym Sinh Khmr Mymr Tibt".split()),
    ),
    "\u200b": frozenset("Khmr Thai Laoo Mymr Tibt".split()),  # the zero-width space
    "\u180e": frozenset({"Mong"}),  # the vowel separator
}
_FLAG = 10  # characters of the flag of a region, at most
_EMOJI = re.compile("[\u2190-\u2bff\ufe0f\U0001f000-\U0001faff]")

# The continuation bytes of UTF-8 decoded as Windows-1252 or Latin-1.
_CONTINUATION = "[\x80-\xbf€‚ƒ„…†‡ˆ‰Š‹ŒŽ‘’“”•–—˜™š›œžŸ]"
# Of these, the marks that can follow a capital, as in MANHÃ…
_MARK = "[\xa0«»·…‘’“”–—]"
_UNIT = "(?<![a-zß-ÿ])Å[²³±®]"  # ångström, or a capital at the end of a name
# The same for Windows-1251 (Cyrillic).
_CONTINUATION_1251 = "[ЂЃ‚ѓ„…†‡€‰Љ‹ЊЌЋЏђ‘’“”•–—™љ›њќћџ\xa0ЎўЈ¤Ґ¦§Ё©Є«¬\xad®Ї°±Ііґµ¶·ё№є»јЅѕї]"
# A fast prefilter: every match of _MOJIBAKE begins like this.
_CANDIDATE = re.compile(f"[À-ïРС](?:{_CONTINUATION}|{_CONTINUATION_1251})")
_MOJIBAKE = re.compile(
    f"(?![ÂÃÄÅ]{_MARK}|{_UNIT})[ÂÃÄÅ]{_CONTINUATION}"
    + f"|(?<![A-ZÀ-Þ])[ÂÃ]{_MARK}"
    + f"|â(?:€{_CONTINUATION}|‚¬|„¢)|ï»¿|ï¿½"
    + f"|(?:[ÐÑ]{_CONTINUATION}){{2}}|(?:[à-ï]{_CONTINUATION}{{2}}){{2}}|(?:[Ä-ß]{_CONTINUATION}){{3}}"
    + f"|(?:[РС]{_CONTINUATION_1251}){{3}}"
)

ENTITY = re.compile(r"&(?:#[0-9]{1,7}|#[xX][0-9a-fA-F]{1,6}|[a-zA-Z][a-zA-Z0-9]{1,30});")
_TAG_NAMES = (
    "a abbr b big blockquote body br button center code div em font form h[1-6] head hr html i iframe img input label "
    "li link meta nobr ol option p pre s script section select small span strike strong style sub sup table tbody td "
    "th thead title tr tt u ul"
)
# After a name's space an attribute, with a value or one of those without: `x <p and q> 3` has none.
_FLAGS = r"(?:\s+(?:checked|disabled|multiple|noshade|nowrap|selected))*"
_ATTRIBUTES = rf"{_FLAGS}(?:\s+[a-z][\w:-]*\s*=\s*[^\s<>=][^<>]*|\s*)"
TAG = re.compile(rf"</?(?:{'|'.join(_TAG_NAMES.split())}){_ATTRIBUTES}/?>", re.IGNORECASE)


def suspicious_characters(text: str, scripts: frozenset[str]) -> Iterator[Issue]:
    """Yield invisible and invalid characters of a raw line, except those that its language's scripts need."""
    if not text.isprintable():  # a fast path that most lines take
        for match in _SUSPICIOUS.finditer(text.rstrip("\r\n")):  # reading strips these, too
            name = match.lastgroup or ""
            if not _is_legitimate(name, text, match.start(), scripts):
                yield name.replace("_", "-"), match.start(), f"U+{ord(match[0]):04X}"
    if (position := text.find("\ufffd")) >= 0:
        yield "replacement", position, ""


def _is_legitimate(name: str, text: str, position: int, scripts: frozenset[str]) -> bool:
    character = text[position]
    if name != "zero_width":
        return not scripts.isdisjoint(_NEEDED_BY.get(name, ()))
    if not scripts.isdisjoint(_NEEDED_BY.get(character, ())):
        return True
    if character >= "\U000e0000":  # tag characters spell the flag of a region
        return "\U0001f3f4" in text[max(0, position - _FLAG) : position]
    return character == "\u200d" and position > 0 and _EMOJI.match(text[position - 1]) is not None


def mojibake(text: str) -> Iterator[Issue]:
    """Yield the first sequence that only UTF-8 decoded with a one-byte encoding has."""
    if not text.isascii() and _CANDIDATE.search(text) and (match := _MOJIBAKE.search(text)):
        yield "mojibake", match.start(), repr(match[0])


def markup(text: str) -> Iterator[Issue]:
    """Yield the first HTML entity or, without one, the first tag."""
    if "&" in text:
        for match in ENTITY.finditer(text):
            if match[0][1] == "#" or match[0][1:] in html5:
                yield "markup", match.start(), match[0]
                return
    if "<" in text and (tag := TAG.search(text)):
        yield "markup", tag.start(), f"{tag[0]:.40}"


def visible(text: str) -> str:
    """Escape unprintable characters, so that a terminal shows them instead of obeying them."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else f"⟨U+{ord(c):04X}⟩" for c in text)


def excerpt(text: str, position: int = 0) -> str:
    """Return the characters around a position, escaped by `visible`."""
    start = max(0, min(position - _EXCERPT // 2, len(text) - _EXCERPT))
    end = start + _EXCERPT
    return f"{'…' if start else ''}{visible(text[start:end])}{'…' if end < len(text) else ''}"
