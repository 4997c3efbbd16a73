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
_YAML_LINE_END = re.compile("[\x85\u2028\u2029]")  # for YAML 1.1, and so for PyYAML, but for no editor
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
    ("found another document", "a second document starts here", "Keep one document in the file."),
)


class YamlTree(NamedTuple):
    """A parsed file.

    Attributes:
        root: the content; `None` for an empty file.
        lines: the line (from 1) of every key and list item, by its path from the root; `()` is the root.
    """

    root: Value
    lines: dict[TreePath, int]


def parse_yaml(source: bytes | str, name: str) -> YamlTree:
    """Parse one YAML document.

    Args:
        source: the file's bytes (UTF-8, a byte order mark is allowed) or its text.
        name: its name in error messages, usually the file's path.

    Raises:
        InputError: `NAME:LINE: message`, for anything that is not plain, unambiguous YAML.
    """
    text = _decode(source, name)
    try:
        loader = _StrictLoader(text)
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise InputError(f"{name}:{line}: the character U+{int(error.character):04X} is not allowed") from None
    loader.name = name
    try:
        root = loader.get_single_data()
    except yaml.MarkedYAMLError as error:
        loader.fail_syntax(error)
    except (ValueError, OverflowError):  # PyYAML converts the digits of "\U..." and of %YAML without checking them
        loader.fail(loader.line, "an escape or a directive holds an impossible number")
    return YamlTree(root, {(): 1} | loader.lines)


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


def _decode(source: bytes | str, name: str) -> str:
    if len(source) > MAX_BYTES:
        raise InputError(f"{name}: larger than {MAX_BYTES:,} bytes, too large for a configuration")
    try:
        text = source if isinstance(source, str) else source.decode()
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        message = f"{name}:{line}: not UTF-8 (byte 0x{error.object[error.start]:02x})"
        raise InputError(message, "Save the file as UTF-8.") from None
    text = text.removeprefix("\ufeff")
    if found := _YAML_LINE_END.search(text):
        code, line = f"{ord(found[0]):04X}", text.count("\n", 0, found.start()) + 1
        message = f"{name}:{line}: U+{code}, which ends a line in YAML but in no editor"
        raise InputError(message, f'Remove it, or write "\\u{code}" in double quotes.')
    return text


class _StrictLoader(yaml.SafeLoader):
    """Refuses ambiguous YAML while composing; `name` is the file's, and `lines` become those of the `YamlTree`."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.yaml_implicit_resolvers = {}  # every scalar is text until `_construct_scalar`
        self.lines: dict[TreePath, int] = {}
        self._path: TreePath = ()

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        """Compose a list item (index: its number), a key (None), the value of a key (its node) or the root (None)."""
        event = self.peek_event()  # type: ignore[no-untyped-call]
        line = event.start_mark.line
        if event.anchor is not None:
            kind = "aliases such as *" if isinstance(event, yaml.AliasEvent) else "anchors such as &"
            self.fail(line, f"{kind}{event.anchor} are not allowed", "Write the value out, or quote the text.")
        if event.tag is not None:
            self.fail(line, f"tags such as {event.tag} are not allowed", "Remove it, or quote the text.")
        if isinstance(parent, yaml.MappingNode) and index is None:
            return self._compose_key(event, line)
        outer = self._path
        if parent is not None:
            self._path = (*outer, index.value if isinstance(index, yaml.Node) else index)
        self.lines.setdefault(self._path, line + 1)
        if len(self._path) >= MAX_DEPTH and isinstance(event, yaml.CollectionStartEvent):
            self.fail(line, f"lists and maps are nested more than {MAX_DEPTH} deep")
        node = super().compose_node(parent, index)
        self._path = outer
        return node

    def _compose_key(self, event: yaml.Event, line: int) -> yaml.Node:
        if not isinstance(event, yaml.ScalarEvent):
            self.fail(line, "a list or a map cannot be a key")
        if event.style is None and event.value == "<<":
            self.fail(line, "merge keys (<<) are not allowed", "Write the values out.")
        node = self.compose_scalar_node(None)
        key = self._construct_scalar(node)
        if not isinstance(key, str):
            self.fail(line, f"the key {event.value or 'before the colon'} is not text", "Put quotes around it.")
        if earlier := self.lines.get((*self._path, key)):
            self.fail(line, f"the key {key} is already in line {earlier}", "Keep one of the two.")
        self.lines[(*self._path, key)] = line + 1
        return node

    def compose_scalar_node(self, anchor: Any) -> yaml.ScalarNode:
        """Compose a scalar; JSON, a subset of YAML, escapes a character beyond U+FFFF as a surrogate pair."""
        node = super().compose_scalar_node(anchor)
        try:
            node.value = node.value.encode("utf-16", "surrogatepass").decode("utf-16")
        except UnicodeDecodeError:
            hint = r"Write the character itself, or \UXXXXXXXX."
            self.fail(node.start_mark.line, "a text holds half of a surrogate pair", hint)
        return node

    def _construct_scalar(self, node: yaml.ScalarNode) -> Value:
        try:
            return plain_scalar(node.value) if node.style is None else str(node.value)
        except ValueError as error:
            self.fail(node.start_mark.line, str(error))

    def fail(self, line: int, message: str, hint: str = "") -> NoReturn:
        """Raise an `InputError` about a line, counted from 0."""
        raise InputError(f"{self.name}:{line + 1}: {message}", hint) from None

    def fail_syntax(self, error: yaml.MarkedYAMLError) -> NoReturn:
        """Raise an error of PyYAML's scanner or parser as an `InputError`."""
        problem = error.problem or error.context or "unreadable"
        # A missing end is only noticed further down; the user has to look at the start.
        unclosed = re.search("end of stream|stream end|could not find expected ':'", problem)
        mark = (error.context_mark if unclosed else None) or error.problem_mark or error.context_mark
        wording = (rest for pattern, *rest in _SYNTAX if re.search(pattern, problem))
        self.fail(mark.line if mark else self.line, *next(wording, [f"not valid YAML: {problem}"]))


_StrictLoader.add_constructor("tag:yaml.org,2002:str", _StrictLoader._construct_scalar)
