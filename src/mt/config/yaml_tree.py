"""Strict YAML parsing, with the line of every key.

PyYAML's SafeLoader guesses: `no` becomes False, `12:30` becomes 750, `1e-4` stays text, a repeated key silently wins,
and 2,000 opening brackets overflow the stack. Here scalars follow YAML 1.2's core schema
(https://yaml.org/spec/1.2.2/#103-core-schema); aliases, tags, merge keys and deep nesting are refused.
"""

import math
import re
from typing import Any, NamedTuple, NoReturn

import yaml

from mt.errors import InputError

Value = None | bool | int | float | str | list["Value"] | dict[str, "Value"]
TreePath = tuple[str | int, ...]

MAX_BYTES = 1_000_000
MAX_DEPTH = 32

_CONSTANTS: dict[str, Value] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_INT = re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"([-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?))(?:[eE][-+]?[0-9]+)?")
_NOT_FINITE = re.compile(r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)")
# Unprintable characters, and those that end a line in YAML 1.1, and so in PyYAML, but not in editors.
_NOT_ALLOWED = re.compile(f"{yaml.reader.Reader.NON_PRINTABLE.pattern}|[\x85\u2028\u2029]")
_MAX_DIGITS = 40  # Python refuses to convert thousands of digits, and no key needs more than 64 bits

_SYNTAX = (  # PyYAML's wording, ours, and a hint
    (r"'\\t' that cannot start", "a tab cannot indent or separate in YAML", "Use spaces."),
    ("mapping values are not", "a ':' where no key can be", "Quote a text that holds ': ', or fix the indent."),
    ("could not find expected ':'", "a key without ':'", "Write `key: value`."),
    ("expected <block end>", "this does not fit what comes before", "Check indentation, quotes and brackets."),
    (r"expected ',' or '[\]}]'", "a bracket is not closed, or a comma is missing", ""),
    ("unexpected end of stream", "a quote is opened but never closed", ""),
    ("unknown escape character", "an unknown escape in a double-quoted text", r"Use single quotes, or write \\."),
    ("that cannot start any token", "a text that starts with a character reserved by YAML", "Put quotes around it."),
)


class YamlTree(NamedTuple):
    """A file's content, None if empty, and the line (from 1) of every key and list item by its path from the root."""

    root: Value
    lines: dict[TreePath, int]


def parse_yaml(source: bytes | str, name: str) -> YamlTree:
    """Parse one YAML document: a file's bytes (UTF-8, a byte order mark is allowed) or its text.

    Raises:
        InputError: `NAME:LINE: message`, for anything that is not plain, unambiguous YAML.
    """
    parser = _Parser(decode_text(source, name))
    parser.name = name
    try:
        return YamlTree(parser.document(), {(): 1} | parser.lines)
    except yaml.MarkedYAMLError as error:
        problem = error.problem or error.context or "unreadable"
        # A missing end is only noticed further down; the user has to look at the start.
        unclosed = re.search("end of stream|stream end|could not find expected ':'", problem)
        mark = (error.context_mark if unclosed else None) or error.problem_mark or error.context_mark
        wording = (rest for pattern, *rest in _SYNTAX if re.search(pattern, problem))
        parser.fail(mark or parser, *next(wording, [f"not valid YAML: {problem}"]))
    except (ValueError, OverflowError):  # PyYAML converts the digits of "\U..." and of %YAML without checking them
        parser.fail(parser, "an escape or a directive holds an impossible number")


def plain_scalar(text: str) -> Value:
    """Convert an unquoted scalar to its YAML 1.2 core type.

    Raises:
        ValueError: it is a number that cannot be represented; the message is a phrase for the user.
    """
    if text in _CONSTANTS:
        return _CONSTANTS[text]
    if _INT.fullmatch(text):
        integer = int(text[:_MAX_DIGITS], {"0o": 8, "0x": 16}.get(text[:2], 10))
        if len(text) > _MAX_DIGITS or abs(integer) >= 2**63:
            raise ValueError(f"the whole number {text[:20]}... is too large ({len(text)} characters)")
        return integer
    if _NOT_FINITE.fullmatch(text):
        raise ValueError(f"{text} is not a usable number")
    if not (match := _FLOAT.fullmatch(text)):
        return text
    number = float(text)
    if math.isinf(number) or (number == 0.0 and re.search("[1-9]", match[1])):
        shown = text if len(text) <= _MAX_DIGITS else f"{text[:20]}..."
        raise ValueError(f"the number {shown} is too {'small to differ from zero' if number == 0.0 else 'large'}")
    return number


def decode_text(source: bytes | str, name: str) -> str:
    """Decode a file of printable UTF-8; raise as `parse_yaml`."""
    if len(source) > MAX_BYTES:
        raise InputError(f"{name}: larger than {MAX_BYTES:,} bytes, too large for a configuration")
    try:
        text = source if isinstance(source, str) else source.decode()
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        message = f"{name}:{line}: not UTF-8 (byte 0x{error.object[error.start]:02x})"
        raise InputError(message, "Save the file as UTF-8.") from None
    text = text.removeprefix("\ufeff")
    if match := _NOT_ALLOWED.search(text):
        code, line = f"{ord(match[0]):04X}", text.count("\n", 0, match.start()) + 1
        hint = f'Remove it, or write "\\u{code}" in double quotes.'
        raise InputError(f"{name}:{line}: the character U+{code} is not allowed", hint)
    return text


class _Parser(yaml.SafeLoader):
    """Builds the tree from PyYAML's events, and refuses what is ambiguous; `lines` become those of the `YamlTree`."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.lines: dict[TreePath, int] = {}

    def document(self) -> Value:
        """Return the content of the only document, None if there is none."""
        self._next()  # the start of the stream
        if isinstance(self._next(), yaml.StreamEndEvent):
            return None
        root = self._value((), self._next())
        self._next()  # the end of the document
        if isinstance(event := self._next(), yaml.DocumentStartEvent):
            self.fail(event.start_mark, "a second document starts here", "Keep one document in the file.")
        return root

    def _next(self) -> Any:
        """Return the next event; refuse references and tags."""
        event = self.get_event()  # type: ignore[no-untyped-call]
        if (anchor := getattr(event, "anchor", None)) is not None:
            kind = "aliases such as *" if isinstance(event, yaml.AliasEvent) else "anchors such as &"
            hint = "Write the value out, or quote the text."
            self.fail(event.start_mark, f"{kind}{anchor} are not allowed", hint)
        if (tag := getattr(event, "tag", None)) is not None:
            self.fail(event.start_mark, f"tags such as {tag} are not allowed", "Remove it, or quote the text.")
        return event

    def _value(self, path: TreePath, event: Any) -> Value:
        self.lines.setdefault(path, event.start_mark.line + 1)
        if isinstance(event, yaml.ScalarEvent):
            return self._scalar(event)
        if len(path) >= MAX_DEPTH:
            self.fail(event.start_mark, f"lists and maps are nested more than {MAX_DEPTH} deep")
        if isinstance(event, yaml.SequenceStartEvent):
            items: list[Value] = []
            while not isinstance(item := self._next(), yaml.SequenceEndEvent):
                items.append(self._value((*path, len(items)), item))
            return items
        entries: dict[str, Value] = {}
        while not isinstance(item := self._next(), yaml.MappingEndEvent):
            key = self._key(path, item)
            entries[key] = self._value((*path, key), self._next())
        return entries

    def _key(self, path: TreePath, event: Any) -> str:
        place = event.start_mark
        if not isinstance(event, yaml.ScalarEvent):
            self.fail(place, "a list or a map cannot be a key")
        if event.style is None and event.value == "<<":
            self.fail(place, "merge keys (<<) are not allowed", "Write the values out.")
        key = self._scalar(event)
        if not isinstance(key, str):
            self.fail(place, f"the key {event.value or 'before the colon'} is not text", "Put quotes around it.")
        if earlier := self.lines.get((*path, key)):
            self.fail(place, f"the key {key} is already in line {earlier}", "Keep one of the two.")
        self.lines[(*path, key)] = place.line + 1
        return key

    def _scalar(self, event: Any) -> Value:
        try:
            # JSON, a subset of YAML, escapes a character beyond U+FFFF as a surrogate pair.
            text: str = event.value.encode("utf-16", "surrogatepass").decode("utf-16")
            return plain_scalar(text) if event.style is None else text
        except UnicodeDecodeError:
            hint = r"Write the character itself, or \UXXXXXXXX."
            self.fail(event.start_mark, "a text holds half of a surrogate pair", hint)
        except ValueError as error:
            self.fail(event.start_mark, str(error))

    def fail(self, place: Any, message: str, hint: str = "") -> NoReturn:
        """Raise an `InputError` about a place that has a line, counted from 0."""
        raise InputError(f"{self.name}:{place.line + 1}: {message}", hint) from None
