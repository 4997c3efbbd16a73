"""Catalogues of gettext: entries without a translation get one and the flag `fuzzy`, all other lines stay."""

import re
from itertools import takewhile
from typing import Any

from mt.extras.documents.segments import Segment, columns_of
from mt.text.po import CHARSET, read_catalogue

_PLURALS = re.compile(r"nplurals\s*=\s*(\d)")
_OTHER_ESCAPE = re.compile(r'(?<!\\)(?:\\\\)*(\\[^\\"ntrvbf])')  # such as \033


class PoFile:
    """A catalogue: its lines, with their ends, and the entries in it that are to be translated."""

    def __init__(self, content: bytes, place: str) -> None:
        """Read a catalogue; `InputError` if it is malformed."""
        catalogue, text, self._charset = read_catalogue(content, place)
        self._lines = text.splitlines(keepends=True)
        entries = [entry for entry in catalogue if entry.msgid and not (entry.obsolete or entry.fuzzy)]
        entries = [e for e in entries if not e.msgstr and not any((e.msgstr_plural or {}).values())]
        forms = _PLURALS.search(catalogue.metadata.get("Plural-Forms", ""))
        self._plurals = int(forms[1]) if forms else 2  # of the target language
        self._entries: list[Any] = []
        self.segments: list[Segment] = []
        self.kept: list[tuple[str, str]] = []  # place and reason of entries that stay
        for entry in entries:  # each line or column of a text is translated by itself
            place = f"line {entry.linenum or 1}"
            if escape := self._other_escape(max(entry.linenum, 1) - 1):
                self.kept.append((place, f"the escape sequence {escape}: {entry.msgid:.60}"))
            else:
                self._entries.append(entry)
                pieces = [piece for text in _texts(entry) for piece in columns_of(text)]
                self.segments.append(Segment(tuple(pieces), place))

    def written(self, translations: list[tuple[str, ...] | None]) -> bytes:
        """Return the catalogue with translations."""
        lines = list(self._lines)
        for entry, translated in reversed(list(zip(self._entries, translations, strict=True))):
            if translated is not None:
                pieces = iter(translated)
                texts = ["".join(next(pieces) for _ in columns_of(text)) for text in _texts(entry)]
                # The first of several forms is the singular's translation, all others are the plural's.
                forms = [texts[n > 0 or self._plurals == 1] for n in range(self._plurals)] if texts[1:] else []
                _fill(lines, max(entry.linenum, 1) - 1, forms or texts, bool(forms))
        text = "".join(lines).replace("charset=CHARSET\\n", "charset=UTF-8\\n", 1)  # as templates have it
        try:
            return text.encode(self._charset)
        except UnicodeError:  # letters of the target language that the old character set lacks
            return CHARSET.sub(r"\1UTF-8", text, count=1).encode()

    def _other_escape(self, start: int) -> str:
        """Return the first escape sequence that polib does not read in the entry at `start`; empty if there is none."""
        lines = (self._lines[n].lstrip() for n in range(start, len(self._lines)))
        source = takewhile(lambda line: not line.startswith("msgstr"), lines)
        found = _OTHER_ESCAPE.search("".join(line for line in source if not line.startswith("#")))
        return found[1] if found else ""


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
