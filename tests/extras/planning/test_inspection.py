"""Detection of delimiter, quotes, header and languages by `mt init`, and its questions where these are unclear."""

import csv
import json
import logging
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Any

import openpyxl
import pyarrow
import pytest
from pyarrow import parquet

from data_helpers import pairs_of, write_lines
from mt.errors import InputError
from mt.extras.planning.init_options import Given
from mt.extras.planning.inspection import Found, inspect
from web_helpers import zipped

PAIRS = [("A dog runs home.", "Un cane corre a casa."), ("Yes, it is.", "Sì, lo è."), ("No; never.", "No; mai.")]
QUOTED = [('He said "go".', 'Disse "va".'), ("a\ttab\nand a line", "una tabulazione"), *PAIRS]


class AskedError(Exception):
    """The question that a user would be asked."""


def ask(question: str, option: str, choices: Sequence[str]) -> str:
    raise AskedError(option)


def found_in(root: Path, name: str, given: Given | None = None) -> Found:
    return inspect([str(root / name)], given or Given(), ask)


def keys(found: Found) -> dict[str, Any]:
    [source] = found.sources
    return {key: value for key, value in source.items() if key not in ("file", "folder")}


def write_table(path: Path, rows: Sequence[Sequence[str]], delimiter: str, **dialect: Any) -> None:
    with path.open("w", newline="", encoding="utf-8-sig") as file:
        csv.writer(file, delimiter=delimiter, **dialect).writerows(rows)


@pytest.mark.parametrize(
    ("name", "rows", "delimiter", "expected", "languages"),
    [
        ("a.tsv", [("en", "it"), *PAIRS], "\t", {}, ("en", "it")),
        ("a.csv", [("id", "EN", "Italian"), *((1, *pair) for pair in PAIRS)], ";", {"delimiter": ";"}, ("en", "it")),
        ("a.tsv", QUOTED, "\t", {"quoting": True, "header": False}, (None, None)),
        ("a.tsv", PAIRS, "|", {"delimiter": "|", "header": False}, (None, None)),
        ("a.csv", [("score", "source", "target"), *(("1", *pair) for pair in PAIRS)], ",", {}, (None, None)),
        ("a.csv", [("it-IT", "en-US"), *PAIRS], ",", {}, ("it", "en")),
    ],
)
def test_the_format_of_a_table_is_detected(
    tmp_path: Path, name: str, rows: Any, delimiter: str, expected: dict[str, Any], languages: Any
) -> None:
    write_table(tmp_path / name, rows, delimiter)
    found = found_in(tmp_path, name)
    detected = keys(found)
    assert found.languages == languages
    columns = detected.pop("source_column", languages[0]), detected.pop("target_column", languages[1])
    assert detected == expected
    header = [column for column in rows[0] if column not in ("id", "score")] if "header" not in expected else None
    assert header is None or columns == tuple(header)
    data = dict(zip(("source_lang", "target_lang"), languages if languages[0] else ("en", "it"), strict=True))
    text = rows[1:] if "header" not in expected else rows
    expected_pairs = [(src.replace("\n", " "), tgt) for src, tgt in (row[-2:] for row in text)]
    assert pairs_of(tmp_path, {**found.sources[0], "file": name}, **data) == expected_pairs


@pytest.mark.parametrize("delimiter", [None, "tab"])
def test_a_long_cell_is_quoted_whoever_names_the_delimiter(tmp_path: Path, delimiter: str | None) -> None:
    before = csv.field_size_limit(2**17)  # as in a new process
    try:
        write_table(tmp_path / "a.tsv", [("en", "it"), ('"a" ' * 50_000, "b")], "\t")
        assert keys(found_in(tmp_path, "a.tsv", Given(delimiter=delimiter))) == {"quoting": True}
    finally:
        csv.field_size_limit(before)


def test_quotes_of_the_text_are_not_those_of_a_table(tmp_path: Path) -> None:
    """Excel leaves no quote in a bare cell, and quotes no cell without need."""
    write_lines(tmp_path / "a.tsv", ['"Go!"\tVa!', 'He said "no" to me.\tDisse di no.'])
    assert keys(found_in(tmp_path, "a.tsv")) == {"header": False}
    write_lines(tmp_path / "a.tsv", ['"Go!" he said, and he went.\tVa!'])
    assert keys(found_in(tmp_path, "a.tsv")) == {"header": False}
    write_lines(tmp_path / "a.tsv", ['"Go on and on now\tx', *["and so on, up and down\tx"] * 9000, 'a "b" c\td'])
    assert keys(found_in(tmp_path, "a.tsv", Given(header=False))) == {"header": False}
    write_table(tmp_path / "a.tsv", PAIRS, "\t", quoting=csv.QUOTE_ALL)
    assert keys(found_in(tmp_path, "a.tsv")) == {"quoting": True, "header": False}
    write_lines(tmp_path / "a.tsv", ['"Go to school!"\tVai a scuola!'])
    with pytest.raises(AskedError, match="--quoting or --no-quoting"):
        found_in(tmp_path, "a.tsv")
    assert keys(found_in(tmp_path, "a.tsv", Given(quoting=False))) == {"header": False}


def test_carriage_returns_within_sentences_end_no_row(tmp_path: Path) -> None:
    rows = ["A dog\rruns home.\tUn cane corre a casa.", *map("\t".join, PAIRS)]
    write_lines(tmp_path / "a.tsv", rows)
    assert keys(found_in(tmp_path, "a.tsv")) == {"header": False}
    source = {"file": "a.tsv", "header": False}
    assert pairs_of(tmp_path, source, source_lang="en", target_lang="it") == [
        ("A dog\rruns home.", PAIRS[0][1]),
        *PAIRS,
    ]
    write_table(tmp_path / "a.tsv", [('He said "go"\rto me.', 'Disse "va"'), *PAIRS], "\t", quoting=csv.QUOTE_ALL)
    assert keys(found_in(tmp_path, "a.tsv")) == {"quoting": True, "header": False}
    write_lines(tmp_path / "a.csv", ['No.\rnever,"No, mai"', "yes,sì"])
    with pytest.raises(InputError, match=r"a\.csv:1: a carriage return that ends no line"):
        found_in(tmp_path, "a.csv")
    (tmp_path / "a.tsv").write_bytes(b"A dog.\tUn cane.\rYes.\tS\xc3\xac.\r")
    with pytest.raises(AskedError, match="--columns"):
        found_in(tmp_path, "a.tsv")


def test_unclear_formats_are_asked_for(tmp_path: Path) -> None:
    write_lines(tmp_path / "a.csv", ["one, two; three", "four, five; six"])
    with pytest.raises(AskedError, match="--delimiter"):
        found_in(tmp_path, "a.csv", Given(header=False))
    assert keys(found_in(tmp_path, "a.csv", Given(header=False, delimiter="semicolon")))["delimiter"] == ";"
    write_lines(tmp_path / "a.csv", ["hello,ciao", "thanks,grazie"])
    with pytest.raises(AskedError, match="--header or --no-header"):
        found_in(tmp_path, "a.csv")
    write_lines(tmp_path / "a.csv", ["x,y,z", "a,b,c"])
    with pytest.raises(AskedError, match="--columns SOURCE:TARGET"):
        found_in(tmp_path, "a.csv", Given(header=True))
    for columns in ("z:1", "3:x"):
        found = keys(found_in(tmp_path, "a.csv", Given(header=True, columns=columns)))
        assert found == {"source_column": "z", "target_column": "x"}
    with pytest.raises(InputError, match=r"--columns x:x: not two columns of .*a\.csv"):
        found_in(tmp_path, "a.csv", Given(header=True, columns="x:x"))
    write_lines(tmp_path / "a.csv", [",y,z", "0,b,c"])  # as pandas writes a table with its index
    assert keys(found_in(tmp_path, "a.csv", Given(header=True, columns="1:z")))["source_column"] == ""
    with pytest.raises(InputError, match="--delimiter ab: not one character"):
        found_in(tmp_path, "a.csv", Given(delimiter="ab"))


def test_columns_of_other_tables(tmp_path: Path) -> None:
    rows = [{"n": 1, "en": "a", "it": "b"}]
    write_lines(tmp_path / "a.jsonl", [json.dumps(rows[0])])
    write_lines(tmp_path / "b.jsonl", [json.dumps({"translation": {"it": "b", "en": "a"}})])
    parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "a.parquet")
    nested = [{"id": "1", "translation": {"en": "a", "it": "b"}}]
    parquet.write_table(pyarrow.Table.from_pylist(nested), tmp_path / "b.parquet")
    flat = [{"text": "a", "translation": "b"}]
    parquet.write_table(pyarrow.Table.from_pylist(flat), tmp_path / "c.parquet")
    named = keys(found_in(tmp_path, "c.parquet", Given(columns="text:translation")))
    assert named == {"source_column": "text", "target_column": "translation"}
    source = {"file": "c.parquet", **named}
    assert pairs_of(tmp_path, source, source_lang="en", target_lang="it") == [("a", "b")]
    for name in ("d.jsonl", "d.parquet"):  # other keys than the codes
        nested = [{"n": 1, "translation": {"en_XX": "a", "it_IT": "b"}}]
        if name == "d.jsonl":
            write_lines(tmp_path / name, map(json.dumps, nested))
        else:
            parquet.write_table(pyarrow.Table.from_pylist(nested), tmp_path / name)
        source = {"file": name, **keys(found_in(tmp_path, name))}
        assert source == {"file": name, "source_column": "en_XX", "target_column": "it_IT"}
        assert pairs_of(tmp_path, source, source_lang="en", target_lang="it") == [("a", "b")]
    book = openpyxl.Workbook()
    book.active.append(["English", "Italian"])
    book.save(tmp_path / "a.xlsx")
    for name in ("a.jsonl", "a.parquet", "b.parquet"):
        assert (found_in(tmp_path, name).languages, keys(found_in(tmp_path, name))) == (("en", "it"), {})
    assert found_in(tmp_path, "b.jsonl").languages == ("it", "en")
    assert keys(found_in(tmp_path, "a.xlsx")) == {"source_column": "English", "target_column": "Italian"}


def test_languages_of_units(tmp_path: Path) -> None:
    def memory(*languages: str) -> str:
        texts = "".join(f'<tuv xml:lang="{code}"><seg>a</seg></tuv>' for code in languages)
        return f"<tmx><body><tu>{texts}</tu></body></tmx>"

    (tmp_path / "a.tmx").write_text(memory("en-US", "it-IT"))
    assert found_in(tmp_path, "a.tmx") == Found([{"file": str(tmp_path / "a.tmx")}], ("en", "it"))
    assert found_in(tmp_path, "a.tmx", Given("it")).languages == ("it", "en")
    (tmp_path / "a.tmx").write_text(memory("en-US", "it", "de", "en-GB"))
    with pytest.raises(AskedError, match="--source-lang and --target-lang"):
        found_in(tmp_path, "a.tmx")
    assert found_in(tmp_path, "a.tmx", Given("de", "it")).languages == ("de", "it")
    po = 'msgid ""\nmsgstr "Language: it\\n"\n\nmsgid "one"\nmsgstr "uno"\n'
    (tmp_path / "a.po").write_text(po)
    assert found_in(tmp_path, "a.po").languages == (None, "it")
    assert found_in(tmp_path, "a.po", Given("it", "en")) == Found([{"file": str(tmp_path / "a.po")}], ("it", "en"))
    (tmp_path / "a.po").write_text(po.replace('"uno"', '""'))
    with pytest.raises(InputError, match="no unit in two languages"):
        found_in(tmp_path, "a.po")


def test_the_splits_of_folders_and_archives_are_recognised(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(logging.getLogger("mt"), "propagate", True)
    caplog.set_level(logging.INFO, "mt")
    names = [f"{stem}.{code}" for stem in ("train", "val", "test_2016", "test_2017") for code in ("en", "it")]
    (tmp_path / "a.zip").write_bytes(zipped(dict.fromkeys(["README", *names], "a\n")))
    (tmp_path / "folder").mkdir()
    for name in names:
        write_lines(tmp_path / "folder" / name, ["a"])
    for key, name in (("file", "a.zip"), ("folder", "folder")):
        found = found_in(tmp_path, name)
        source = {key: str(tmp_path / name)}
        held_out = {"valid": source | {"stem": "val"}, "test": source | {"stem": "test_2016"}}
        assert found == Found([source | {"stem": "train"}], ("en", "it"), held_out)
        assert "for training; test_2016 as --test; test_2017 not used; val as --valid" in caplog.text
        caplog.clear()
    write_lines(tmp_path / "folder" / "train.de", ["a"])
    with pytest.raises(AskedError, match="--source-lang and --target-lang"):
        found_in(tmp_path, "folder")
    assert found_in(tmp_path, "folder", Given("de", "en")).sources == [{"folder": str(tmp_path / "folder")}]
    roles = {"new-testament": "a\n", "devices": "b\n", "dev2010": "c\n", "devtest": "d\n"}
    texts = {f"{stem}.{code}": text for stem, text in roles.items() for code in ("en", "it")}
    (tmp_path / "roles.zip").write_bytes(zipped(texts))
    found = found_in(tmp_path, "roles.zip")
    assert [source["stem"] for source in found.sources] == ["devices", "new-testament"]
    assert [found.held_out[split]["stem"] for split in ("valid", "test")] == ["dev2010", "devtest"]
    wanted = {split: found_in(tmp_path, "roles.zip", Given(split=split)) for split in ("valid", "test")}
    assert {split: found.sources for split, found in wanted.items()} == {
        split: [source] for split, source in found.held_out.items()
    }
    (tmp_path / "b.zip").write_bytes(zipped({"Books.en-it.it": "a\n", "Books.en-it.en": "a\n", "Books.en-it.ids": ""}))
    assert found_in(tmp_path, "b.zip", Given("it")).languages == ("it", "en")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.csv", None, "a.csv: no such file"),
        ("a.txt", b"a\n", "the file of its translation is missing"),
        *((name, b"", f"{name}: no ") for name in ("a.csv", "a.tsv", "a.jsonl", "a.po")),
        *((f"a{kind}", b"a\nb\n", f"a{kind}") for kind in (".tmx", ".xliff", ".xlsx", ".parquet", ".zip", ".tar.gz")),
        ("a.tsv", b"one\ntwo\n", "a.tsv: one column, but a source and a target are needed"),
        ("a.csv", b"caf\xe9,b\n", "a.csv:1: not valid UTF-8"),
        ("a.zip", zipped({"a.en": "a"}), "no two texts whose names differ in a language's code"),
    ],
)
def test_bad_input_is_refused(tmp_path: Path, name: str, content: bytes | None, message: str) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError) as caught:
        found_in(tmp_path, name)
    assert message in caught.value.message
    assert "\n" not in caught.value.message


def test_a_workbook_of_one_column_is_refused(tmp_path: Path) -> None:
    book = openpyxl.Workbook()
    book.active.append(["English"])
    book.save(tmp_path / "a.xlsx")
    with pytest.raises(InputError, match="one column, but a source and a target are needed"):
        found_in(tmp_path, "a.xlsx")


def test_two_texts_of_different_length_are_refused(tmp_path: Path) -> None:
    write_lines(tmp_path / "a.en", ["a", "b"])
    (tmp_path / "a.it").write_text("a")
    with pytest.raises(InputError, match=r"a\.en has 2 lines but .*a\.it has 1"):
        inspect([str(tmp_path / "a.en"), str(tmp_path / "a.it")], Given(), ask)


def test_texts_named_after_other_languages_are_refused(tmp_path: Path) -> None:
    for code in ("en", "it", "de-AT", "xx"):
        write_lines(tmp_path / f"a.{code}", ["a"])

    def found(source: str, target: str, *wanted: str | None) -> Found:
        return inspect([str(tmp_path / f"a.{code}") for code in (source, target)], Given(*wanted), ask)

    for wanted in (("en", "it"), ("en", None), ("en-GB", None), (None, None)):
        assert found("en", "it", *wanted).languages == ("en", "it")
    assert found("en", "de-AT", "en", "de").languages == ("en", "de-AT")
    assert found("en", "xx", "en", "it").languages == ("en", "xx")  # no code that is known
    for wanted in (("it", "en"), ("it", None), (None, "en"), ("en", "fr")):
        with pytest.raises(InputError, match="by their names from en into it, but the model translates"):
            found("en", "it", *wanted)


def test_tables_in_other_languages_are_refused(tmp_path: Path) -> None:
    write_lines(tmp_path / "a.tsv", ["en\tGerman", "a dog\tein Hund"])
    write_lines(tmp_path / "a.jsonl", [json.dumps({"translation": {"en": "a dog", "de_DE": "ein Hund"}})])
    for name, given in product(("a.tsv", "a.jsonl"), (Given("en", "fr"), Given("fr"), Given(None, "fr", split="test"))):
        with pytest.raises(InputError, match="by the names of its columns from en into de, but the model translates"):
            found_in(tmp_path, name, given)
    assert found_in(tmp_path, "a.tsv", Given("de_DE", "en-GB")).languages == ("de_DE", "en-GB")
    columns = {"source_column": "en", "target_column": "German"}
    assert keys(found_in(tmp_path, "a.tsv", Given("en", "gsw", columns="en:German"))) == columns
