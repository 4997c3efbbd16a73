"""The strict YAML parser: types, lines, and refusals."""

import json
import re
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mt.config.yaml_tree import MAX_DEPTH, Value, parse_yaml
from mt.errors import InputError


def refusal(source: str | bytes) -> InputError:
    with pytest.raises(InputError) as caught:
        parse_yaml(source, "file.yaml")
    return caught.value


TEXTS = "no NO on off y 12:30 1:30:00 2024-01-02 1_000 0b11 inf nan tRue = nULL 1.2.3 . 1e".split()
CONSTANTS = {
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
}
NUMBERS = {
    **{"0": 0, "-7": -7, "+7": 7, "010": 10, "0x1F": 31, "0o17": 15, str(2**63 - 1): 2**63 - 1},
    **{"1e-4": 1e-4, "5.0e-4": 5e-4, ".5": 0.5, "-.5E+2": -50.0, "3.": 3.0, "0e0": 0.0},
}
QUOTED = {"'1'": "1", '"true"': "true", "''": "", '"\\ud83d\\ude00"': "😀", "|\n  1\n": "1\n"}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        *((text, text) for text in (*TEXTS, "2024-01-02 03:04:05")),
        *CONSTANTS.items(),
        *NUMBERS.items(),
        *QUOTED.items(),
    ],
)
def test_scalars_follow_yaml_1_2(text: str, value: Value) -> None:
    tree = parse_yaml(f"key: {text}", "file.yaml")
    assert isinstance(tree.root, dict)
    assert tree.root["key"] == value
    assert type(tree.root["key"]) is type(value)


def test_the_line_of_every_key_and_item() -> None:
    text = "# comment\na: 1\n\nb:\n  - x\n  - {y: 2,\n     z: [3,\n 4]}\nc: >\n  folded\n  text\nd: last\n"
    assert parse_yaml(text, "f").lines == {
        **{(): 2, ("a",): 2, ("b",): 4, ("b", 0): 5, ("b", 1): 6, ("b", 1, "y"): 6, ("b", 1, "z"): 7},
        **{("b", 1, "z", 0): 7, ("b", 1, "z", 1): 8, ("c",): 9, ("d",): 12},
    }
    assert parse_yaml("a: 'x'\r\nb: 1\nc: 2\n", "f").lines == {(): 1, ("a",): 1, ("b",): 2, ("c",): 3}


@pytest.mark.parametrize("sign", ["\u2028", "\u2029", "\x85"])
@pytest.mark.parametrize("text", ["a: 1 # c{}b: 2\n", "a: x{}y\n", "a: 'x{} y'\n"])
def test_a_line_that_ends_for_yaml_alone_is_refused(text: str, sign: str) -> None:
    """It could end a comment and begin a key, or vanish from a text."""
    error = refusal("z: 1\r\n" + text.format(sign))
    assert error.message == f"file.yaml:2: the character U+{ord(sign):04X} is not allowed"
    assert f'"\\u{ord(sign):04X}"' in error.hint
    assert parse_yaml(f'a: "x\\u{ord(sign):04X}y"', "f").root == {"a": f"x{sign}y"}


def test_carriage_returns_and_byte_order_mark() -> None:
    plain = parse_yaml("a: 1\nb: [x, y]\n", "f")
    assert parse_yaml(b"\xef\xbb\xbfa: 1\r\nb: [x, y]\r\n", "f") == plain
    assert parse_yaml("\ufeffa: 1\r\nb: [x, y]\r\n", "f") == plain


@pytest.mark.parametrize("text", ["", "# nothing\n", "---\n", "---\n...\n", "\n\n"])
def test_an_empty_file_is_none(text: str) -> None:
    assert parse_yaml(text, "f").root is None


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("a: 1\nb: 2\na: 3\n", 3, "the key a is already in line 1"),
        ("b:\n  {x: 1,\n   x: 2}\n", 3, "the key x is already in line 2"),
        ("'a': 1\na: 3\n", 2, "already in line 1"),
        ("a: &x 1\nb: 2\n", 1, "anchors such as &x"),
        ("a: 1\nb: *x\n", 2, "aliases such as *x"),
        ("a: 1\n*x : 2\n", 2, "aliases such as *x"),
        ("a: 1\n&x b: 2\n", 2, "anchors such as &x"),
        ("a: !!python/name:os.system x\n", 1, "tags such as"),
        ("a: !!str 1\n", 1, "tags such as"),
        ("a:\n  - !x {}\n", 2, "tags such as !x"),
        ("!x a: 1\n", 1, "tags such as !x"),
        ("a:\n  <<: {b: 1}\n", 2, "merge keys"),
        ("1: a\n", 1, "the key 1 is not text"),
        ("true: a\n", 1, "the key true is not text"),
        ("~: a\n", 1, "the key ~ is not text"),
        ("a: 'x' y\n", 1, "does not fit"),
        ("a: 1\n- b\n", 2, "does not fit"),
        ("? [a, b]\n: c\n", 1, "a list or a map cannot be a key"),
        ("{{a: 1}: c}\n", 1, "a list or a map cannot be a key"),
        ("a: 1\n---\nb: 2\n", 2, "a second document"),
        ("a: 1\nb: .nan\n", 2, ".nan is not a usable number"),
        ("a: .inf\n", 1, "not a usable number"),
        ("a: -.INF\n", 1, "not a usable number"),
        ("a: 1\nb: 1e400\n", 2, "the number 1e400 is too large"),
        ("a: -1e400\n", 1, "too large"),
        ("a: 1e-400\n", 1, "too small"),
        (f"a: {2**63}\n", 1, "too large"),
        ("a: " + "9" * 5000, 1, "too large (5000 characters)"),
        ("a: 0x" + "f" * 5000, 1, "too large (5002 characters)"),
        ("a: " + "9" * 5000 + ".0", 1, "too large"),
        ("a:\n\tb: 1\n", 2, "a tab"),
        ("a: 1\n\tb: 1\n", 2, "a tab"),
        ("a: b: c\n", 1, "a ':' where no key can be"),
        ("a: 1\n b: 2\n", 2, "a ':' where no key can be"),
        ("a: 1\nb\nc: 2\n", 2, "a key without ':'"),
        ("a: [1\nb: 2\n", 2, "a bracket is not closed"),
        ("a: {b: 1\n\n\n", 1, "a bracket is not closed"),
        ("a: 'it\n\n\n", 1, "a quote is opened but never closed"),
        ("a: @x\n", 1, "reserved"),
        ('a: "\\q"\n', 1, "unknown escape"),
        ('a: "\\ud800"\n', 1, "half of a surrogate pair"),
        ('a: "\\UFFFFFFFF"\n', 1, "impossible number"),
        ("a: 1\nb: \x07\n", 2, "U+0007"),
    ],
)
def test_refusals_name_the_line(text: str, line: int, words: str) -> None:
    error = refusal(text)
    assert error.message.startswith(f"file.yaml:{line}: ")
    assert words in error.message
    assert "\n" not in error.message
    assert len(error.message) < 200


def test_bytes_that_are_not_utf_8() -> None:
    assert refusal(b"a: 1\r\nb: caf\xe9\n").message == "file.yaml:2: not UTF-8 (byte 0xe9)"
    assert "not UTF-8" in refusal("a: 1".encode("utf-16")).message


@pytest.mark.parametrize(
    ("source", "words"),
    [
        *((text * 2000, "file.yaml:1: ") for text in ("[", "{a: ", "- ", "? ")),
        ("[" * 900_000, "file.yaml:1: "),
        (b"a: 1\n" * 2_000_000, "larger than 1,000,000 bytes"),
    ],
    ids=lambda value: str(value[:4]),
)
def test_deep_nesting_and_large_files_are_refused_at_once(source: str | bytes, words: str) -> None:
    start = time.process_time()
    assert words in refusal(source).message
    assert time.process_time() - start < (5 if isinstance(source, str) else 1)


def test_the_depth_limit() -> None:
    parse_yaml("[" * MAX_DEPTH + "]" * MAX_DEPTH, "f")
    assert "nested more than 32 deep" in refusal("[" * (MAX_DEPTH + 1) + "]" * (MAX_DEPTH + 1)).message


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63) + 1, 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_characters="\x7f", exclude_categories=["Cs"]), max_size=20),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(st.characters(max_codepoint=0x7E), max_size=8), inner, max_size=4)
    ),
    max_leaves=12,
)


@given(json_values)
def test_json_is_read_as_json_reads_it(value: Any) -> None:
    text = json.dumps(value)
    assert parse_yaml(text, "f").root == json.loads(text)


@given(st.recursive(st.none(), lambda inner: st.lists(inner, max_size=4), max_leaves=12))
def test_every_item_has_its_line(shape: Any) -> None:
    numbers = iter(range(1000, 10_000))

    def fill(node: Any) -> Any:
        return next(numbers) if node is None else {f"k{i}": [fill(item)] for i, item in enumerate(node)}

    def leaves(node: Any, path: tuple[str | int, ...]) -> dict[tuple[str | int, ...], int]:
        if isinstance(node, int):
            return {path: node}
        items = node.items() if isinstance(node, dict) else enumerate(node)
        return {where: leaf for key, item in items for where, leaf in leaves(item, (*path, key)).items()}

    tree = fill(shape)
    text = json.dumps(tree, indent=1)
    lines = parse_yaml(text, "f").lines
    for path, number in leaves(tree, ()).items():
        assert str(number) in text.split("\n")[lines[path] - 1]


@settings(max_examples=500)
@given(
    st.text(st.sampled_from("abn01 \n\t-:?,[]{}#&*!|>'\"%@`~<=.\\x\u2028\r\ufeff")) | st.text() | st.binary(max_size=40)
)
def test_any_input_gives_a_tree_or_one_plain_error(source: str | bytes) -> None:
    message = "file.yaml:0: "
    try:
        parse_yaml(source, "file.yaml")
    except InputError as error:
        message = error.message
    assert re.match(r"file\.yaml:\d+: ", message)
