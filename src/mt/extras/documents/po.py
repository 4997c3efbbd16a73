"""Catalogues of gettext: entries without a translation get one and the flag `fuzzy`, all other lines stay."""

import re
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

from mt.extras.documents.segments import Segment, columns_of
from mt.text.po import CHARSET, read_catalogue

_PLURALS = re.compile(r"nplurals\s*=\s*(\d)")


@dataclass
class PoFile:
    """A catalogue: its lines, with their ends, and the entries in it that are to be translated."""

    lines: list[str]
    entries: list[Any]  # as polib reads them; `linenum` says where each begins
    charset: str
    plurals: int  # the number of plural forms of the target language

    @classmethod
    def read(cls, content: bytes, place: str) -> "PoFile":
        """Read a catalogue; `InputError` if it is malformed."""
        catalogue, text, charset = read_catalogue(content, place)
        entries = [entry for entry in catalogue if entry.msgid and not (entry.obsolete or entry.fuzzy)]
        empty = [entry for entry in entries if not entry.msgstr and not any((entry.msgstr_plural or {}).values())]
        forms = _PLURALS.search(catalogue.metadata.get("Plural-Forms", ""))
        return cls(text.splitlines(keepends=True), empty, charset, int(forms[1]) if forms else 2)

    @property
    def segments(self) -> list[Segment]:
        """The entries; each line or column of a text is translated by itself."""
        segments = []
        for entry in self.entries:
            pieces = [piece for text in _texts(entry) for piece in columns_of(text)]
            segments.append(Segment(tuple(pieces), f"line {entry.linenum or 1}"))
        return segments

    def written(self, translations: list[tuple[str, ...] | None]) -> bytes:
        """Return the catalogue with translations."""
        lines = list(self.lines)
        for entry, translated in reversed(list(zip(self.entries, translations, strict=True))):
            if translated is not None:
                pieces = iter(translated)
                texts = ["".join(next(pieces) for _ in columns_of(text)) for text in _texts(entry)]
                # The first of several forms is the singular's translation, all others are the plural's.
                forms = [texts[n > 0 or self.plurals == 1] for n in range(self.plurals)] if texts[1:] else []
                _fill(lines, max(entry.linenum, 1) - 1, forms or texts, bool(forms))
        text = "".join(lines).replace("charset=CHARSET\\n", "charset=UTF-8\\n", 1)  # as templates have it
        try:
            return text.encode(self.charset)
        except UnicodeError:  # letters of the target language that the old character set lacks
            return CHARSET.sub(r"\1UTF-8", text, count=1).encode()


def _fill(lines: list[str], start: int, forms: list[str], is_plural: bool) -> None:
    """Write an entry's translation and its flag into the lines of a catalogue; the entry begins at `start`."""
    ending = "\r\n" if lines[0].endswith("\r\n") else "\n"
    first = next(n for n in range(start, len(lines)) if lines[n].lstrip().startswith("msgstr"))
    filled = ((n, lines[n].strip()) for n in range(first, len(lines)) if lines[n].strip())
    end = 1 + max(n for n, _ in takewhile(lambda line: line[1].startswith(("msgstr", '"')), filled))
    keys = [f"msgstr[{n}]" if is_plural else "msgstr" for n in range(len(forms))]
    new = ending.join(f"{key} {_quoted(text, ending)}" for key, text in zip(keys, forms, strict=True))
    lines[first:end] = [new + lines[end - 1][len(lines[end - 1].rstrip("\r\n")) :]]
    flags = next((n for n in range(start, first) if lines[n].startswith("#,")), None)
    if flags is not None:
        lines[flags] = lines[flags].replace("#,", "#, fuzzy,", 1)
    else:
        before = next(n for n in range(start, first + 1) if lines[n].lstrip().startswith(("#|", "msg")))
        lines.insert(before, f"#, fuzzy{ending}")


def _quoted(text: str, ending: str) -> str:
    import polib

    parts = [f'"{polib.escape(line)}"' for line in text.splitlines(keepends=True)]
    return ending.join(['""', *parts] if len(parts) > 1 else parts)


def _texts(entry: Any) -> list[str]:
    return [text for text in (entry.msgid, entry.msgid_plural) if text]
