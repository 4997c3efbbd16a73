"""gettext catalogues (.po), decoded with the character set that they declare and parsed by polib."""

import io
import re
from typing import Any

from mt.errors import InputError

CHARSET = re.compile(r"(charset=)([\w.:-]+)")
_KEYWORD = re.compile(r"(?:\A\ufeff?|[\r\n])[^\S\r\n]*(msg[a-z_]+)")
_ENTRIES = re.compile(r"(?:(?:msgctxt)?msgid(?:msgid_plural)?(?:msgstr)+)*")


class _Text(str):
    """Text that polib splits at the ends of lines only, not at U+2028, U+0085 or form feeds."""

    def splitlines(self, keepends: bool = False) -> list[str]:
        lines = list(io.StringIO(self, newline=""))
        return lines if keepends else [line.rstrip("\r\n") for line in lines]


def read_catalogue(content: bytes, place: str) -> tuple[Any, str, str]:
    """Parse the content of a catalogue, which messages call `place`.

    Returns polib's object; the text, whose `splitlines` gives the lines that polib counts; and its character set.
    Raises InputError if it is not in the character set that it declares, or has a syntax error.
    """
    import polib

    text, charset = _decoded(content, place)
    unclosed = re.search(r'^(?:msg|")[^\n]*[^"\s][ \t\r]*$', text, re.MULTILINE)
    if unclosed:
        line = text.count("\n", 0, unclosed.start()) + 1
        raise InputError(f"{place}:{line}: an unterminated string", "check it with msgfmt --check")
    try:
        catalogue = polib.pofile(_Text(f"{text}\n"))
    except (OSError, ValueError, IndexError, UnicodeError) as error:
        reason = str(error).removeprefix("Syntax error in po file ")
        raise InputError(f"{place}: not a gettext catalogue: {reason}", "check it with msgfmt --check") from None
    if not _ENTRIES.fullmatch("".join(_KEYWORD.findall(text))):  # polib accepts entries without msgstr
        raise InputError(f"{place}: an entry without msgstr", "check it with msgfmt --check")
    return catalogue, _Text(text), charset


def _decoded(content: bytes, place: str) -> tuple[str, str]:
    """Decode a catalogue with its declared character set; a template has the placeholder CHARSET there."""
    declared = CHARSET.search(content.decode("latin-1"))
    charset = declared[2] if declared and declared[2] != "CHARSET" else "UTF-8"
    try:
        text = content.decode(charset)
        text.encode()  # fails for lone surrogates, which UTF-7 can have
        return text, charset
    except (LookupError, UnicodeError):
        raise InputError(f"{place}: not in its character set, {charset}", "save it in UTF-8") from None
