"""YAML text to a plain tree, strictly, remembering the line of every key.

PyYAML's loaders guess: `no` becomes False, `12:30` becomes 750, `1e-4` stays text, a repeated key silently wins, and
2,000 opening brackets overflow the stack. So only PyYAML's event stream is used; scalars follow YAML 1.2's core schema
(https://yaml.org/spec/1.2.2/#103-core-schema) and the tree is built with a list for a stack.
"""

import math
import re
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NoReturn

import yaml

from mt.errors import InputError

Value = None | bool | int | float | str | list["Value"] | dict[str, "Value"]
TreePath = tuple[str | int, ...]

MAX_BYTES = 1_000_000
MAX_DEPTH = 32

_NULLS = {"", "~", "null", "Null", "NULL"}
_BOOLS = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
_INT = re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"([-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?))(?:[eE][-+]?[0-9]+)?")
_NOT_FINITE = re.compile(r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)")
_SURROGATE = re.compile("[\ud800-\udfff]")
_LINE_END = re.compile(r"\r\n|\n|\r")
_ODD_LINE_END = re.compile("[\x85\u2028\u2029]")
_MAX_INT_TEXT = 40

_SYNTAX = (
    (r"'\\t' that cannot start", "a tab cannot indent or separate in YAML", "Use spaces."),
    (
        r"mapping values are not allowed",
        "a ':' where no key can be",
        "Quote a text that holds ': ', or fix the indent.",
    ),
    (r"could not find expected ':'", "a key without ':'", "Write `key: value`."),
    (r"expected <block end>", "this does not fit what comes before", "Check indentation, quotes and brackets."),
    (r"expected ',' or '[\]}]'", "a bracket is not closed, or a comma is missing", ""),
    (r"unexpected end of stream", "a quote is opened but never closed", ""),
    (r"unknown escape character", "an unknown escape in a double-quoted text", "Use single quotes, or write \\\\."),
    (r"that cannot start any token", "a text that starts with a sign YAML reserves", "Put quotes around it."),
)


@dataclass(frozen=True)
class YamlTree:
    """A parsed file.

    Attributes:
        root: the content; `None` for an empty file.
        lines: the line (from 1) of every key and list item, by its path from the root; `()` is the root.
    """

    root: Value
    lines: dict[TreePath, int]


def parse_yaml(source: bytes | str, origin: str) -> YamlTree:
    """Parse one YAML document.

    Args:
        source: the file's bytes (UTF-8, a byte order mark is allowed) or its text.
        origin: what to call it in error messages, usually the file's path.

    Raises:
        InputError: `ORIGIN:LINE: what`, for anything that is not plain, unambiguous YAML.
    """
    text = _decode(source, origin)
    if odd := _ODD_LINE_END.search(text):
        line, sign = len(_LINE_END.findall(text[: odd.start()])) + 1, f"{ord(odd[0]):04X}"
        raise InputError(
            f"{origin}:{line}: U+{sign}, where a line ends for YAML but for no editor",
            f'take it out, or write "\\u{sign}" in double quotes',
        )
    return _Builder(origin, text).build()


def plain_scalar(text: str) -> Value:
    """Give an unquoted scalar its YAML 1.2 core type.

    Raises:
        ValueError: it is a number that cannot be represented; the message is a phrase for the user.
    """
    if text in _NULLS:
        return None
    if text in _BOOLS:
        return _BOOLS[text]
    if _INT.fullmatch(text):
        return _integer(text)
    if _NOT_FINITE.fullmatch(text):
        raise ValueError(f"{text} is not a usable number")
    number = _FLOAT.fullmatch(text)
    return _decimal(text, number.group(1)) if number else text


def _integer(text: str) -> int:
    base = {"0o": 8, "0x": 16}.get(text[:2], 10)
    # Python itself refuses to convert thousands of digits, and nothing here needs more than 64 bits.
    if len(text) > _MAX_INT_TEXT or abs(int(text, base)) >= 2**63:
        raise ValueError(f"the whole number {text[:20]}... is too large ({len(text)} characters)")
    return int(text, base)


def _decimal(text: str, mantissa: str) -> float:
    number = float(text)
    shown = text if len(text) <= _MAX_INT_TEXT else f"{text[:20]}..."
    if math.isinf(number):
        raise ValueError(f"the number {shown} is too large")
    if number == 0.0 and re.search("[1-9]", mantissa):
        raise ValueError(f"the number {shown} is too small to differ from zero")
    return number


def _decode(source: bytes | str, origin: str) -> str:
    if len(source) > MAX_BYTES:
        raise InputError(f"{origin}: larger than {MAX_BYTES:,} bytes, so hardly a configuration")
    if isinstance(source, str):
        return source.removeprefix("\ufeff")
    try:
        return source.decode("utf-8").removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        line = len(_LINE_END.findall(source[: error.start].decode("utf-8"))) + 1
        bad = source[error.start]
        raise InputError(f"{origin}:{line}: not UTF-8 (byte 0x{bad:02x})", "Save the file as UTF-8.") from None


@dataclass
class _Open:
    """A list or map whose end has not been read yet."""

    node: list[Value] | dict[str, Value]
    path: TreePath
    key: str | None = None
    key_lines: dict[str, int] = field(default_factory=dict)


class _Builder:
    """Builds the tree from PyYAML's events, holding the open collections in a list."""

    def __init__(self, origin: str, text: str) -> None:
        self._origin = origin
        self._text = text
        self._line_starts = [0] + [end.end() for end in _LINE_END.finditer(text)]
        self._open: list[_Open] = []
        self._root: Value = None
        self._documents = 0
        self._lines: dict[TreePath, int] = {(): 1}
        self._line = 1

    def build(self) -> YamlTree:
        """Read every event.

        Raises:
            InputError: the text is not strict YAML.
        """
        for event in self._events():
            self._line = self._line_of(event.start_mark.index if event.start_mark else 0)
            if isinstance(event, yaml.DocumentStartEvent):
                self._start_document()
            elif isinstance(event, yaml.CollectionEndEvent):
                self._open.pop()
            elif isinstance(event, yaml.NodeEvent):
                self._refuse_indirection(event)
                self._take(event)
        return YamlTree(self._root, self._lines)

    def _events(self) -> Iterator[yaml.Event]:
        try:
            yield from yaml.parse(self._text, Loader=yaml.SafeLoader)
        except yaml.reader.ReaderError as error:
            self._fail(f"the character U+{int(error.character):04X} is not allowed", at=error.position)
        except yaml.MarkedYAMLError as error:
            self._fail_syntax(error)
        except (ValueError, OverflowError):
            # PyYAML converts the digits of "\U..." and of %YAML without checking them.
            self._fail("an escape or a directive holds an impossible number")

    def _start_document(self) -> None:
        self._documents += 1
        if self._documents > 1:
            self._fail("a second document starts here", "Keep one document in the file.")

    def _refuse_indirection(self, event: yaml.NodeEvent) -> None:
        if isinstance(event, yaml.AliasEvent):
            self._fail(f"aliases such as *{event.anchor} are not allowed", "Write the value out, or quote the text.")
        if event.anchor is not None:
            self._fail(f"anchors such as &{event.anchor} are not allowed", "Write the value out, or quote the text.")
        if (tag := getattr(event, "tag", None)) is not None:
            self._fail(f"tags such as {tag} are not allowed", "Leave the tag out; quote a text that looks so.")

    def _take(self, event: yaml.NodeEvent) -> None:
        parent = self._open[-1] if self._open else None
        if parent is not None and isinstance(parent.node, dict) and parent.key is None:
            parent.key = self._key(event, parent)
            return
        path = self._child_path(parent)
        value = self._value(event)
        self._lines.setdefault(path, self._line)
        self._attach(parent, value)
        if isinstance(value, list | dict):
            if len(self._open) >= MAX_DEPTH:
                self._fail(f"lists and maps are nested more than {MAX_DEPTH} deep")
            self._open.append(_Open(value, path))

    def _key(self, event: yaml.NodeEvent, parent: _Open) -> str:
        if not isinstance(event, yaml.ScalarEvent):
            self._fail("a list or a map cannot be a key")
        if event.style is None and event.value == "<<":
            self._fail("merge keys (<<) are not allowed", "Write the values out.")
        key = self._scalar(event)
        if not isinstance(key, str):
            self._fail(f"the key {event.value or 'before the colon'} is not text", "Put quotes around it.")
        if key in parent.key_lines:
            self._fail(f"the key {key} is already in line {parent.key_lines[key]}", "Keep one of the two.")
        parent.key_lines[key] = self._line
        self._lines[(*parent.path, key)] = self._line
        return key

    @staticmethod
    def _child_path(parent: _Open | None) -> TreePath:
        if parent is None:
            return ()
        if isinstance(parent.node, list):
            return (*parent.path, len(parent.node))
        return (*parent.path, str(parent.key))

    def _attach(self, parent: _Open | None, value: Value) -> None:
        if parent is None:
            self._root = value
            self._lines[()] = self._line
        elif isinstance(parent.node, list):
            parent.node.append(value)
        else:
            parent.node[str(parent.key)] = value
            parent.key = None

    def _value(self, event: yaml.NodeEvent) -> Value:
        if isinstance(event, yaml.SequenceStartEvent):
            return []
        if isinstance(event, yaml.MappingStartEvent):
            return {}
        assert isinstance(event, yaml.ScalarEvent)
        return self._scalar(event)

    def _scalar(self, event: yaml.ScalarEvent) -> Value:
        text = str(event.value)
        if _SURROGATE.search(text):
            text = self._joined(text)
        if event.style is not None:
            return text
        try:
            return plain_scalar(text)
        except ValueError as error:
            self._fail(str(error))

    def _joined(self, text: str) -> str:
        # JSON, which YAML contains, escapes a character beyond U+FFFF as two halves.
        try:
            return text.encode("utf-16", "surrogatepass").decode("utf-16")
        except UnicodeDecodeError:
            self._fail("a text holds half of a surrogate pair", r"Write the character itself, or \UXXXXXXXX.")

    def _line_of(self, index: int) -> int:
        return bisect_right(self._line_starts, index)

    def _fail(self, message: str, hint: str = "", at: int | None = None) -> NoReturn:
        line = self._line if at is None else self._line_of(at)
        raise InputError(f"{self._origin}:{line}: {message}", hint) from None

    def _fail_syntax(self, error: yaml.MarkedYAMLError) -> NoReturn:
        problem = error.problem or error.context or "unreadable"
        # What is left open is only noticed further down: its start is where to look.
        unclosed = re.search("end of stream|stream end|could not find expected ':'", problem)
        mark = (error.context_mark if unclosed else None) or error.problem_mark or error.context_mark
        at = mark.index if mark else None
        for pattern, message, hint in _SYNTAX:
            if re.search(pattern, problem):
                self._fail(message, hint, at)
        self._fail(f"not valid YAML: {problem}", at=at)
