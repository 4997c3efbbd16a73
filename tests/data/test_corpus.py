"""Sources of sentence pairs: every sentence arrives as it was written."""

import errno
import gzip
import json
import lzma
import os
import subprocess
import sys
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import datasets
import pyarrow
import pytest
from backports import zstd
from pyarrow import parquet

from data_helpers import make_data_config, pairs_of, write_lines, write_pairs
from mt.config import TableFile
from mt.data import phrasebook
from mt.data.corpus import Pair
from mt.data.tables import table_rows
from mt.errors import InputError, MachineError
from mt.text.lines import raise_issue

# Text that other software reads as nothing, as a number, as a date, or as the end of a line.
AWKWARD = [
    ("NA", "null"),
    ("007", "1e5"),
    ("None", "nan"),
    ("true", "1.0"),
    ("2020-01-01", "12:30"),
    ("#REF!", "-"),
    ('"quoted" word', 'l\'altro "uno"'),
    ('"open', "x"),
    ("\\N", "\\t is no tab"),
    ("a\u2028b", "c\x85d"),
    ("😀 e\u0301", "è"),
    ("</s>", "<pad>"),
]

COMPRESS = {".gz": gzip.compress, ".xz": lzma.compress, ".zst": zstd.compress}
SEPARATED = [("t.tsv", "\t"), ("t.csv", ",")]
KINDS = ["t.tsv", "t.csv", "t.jsonl", "t.parquet"]


def write_table(path: Path, pairs: list[Pair], names: tuple[str, str] = ("en", "it"), shape: str = "") -> None:
    """Write a table by hand, so that no library's writer hides its quirks."""
    kind = next(s for s in reversed(path.suffixes) if s.lower() not in COMPRESS).lower()
    rows: list[dict[str, Any]] = [dict(zip(names, pair, strict=True)) for pair in pairs]
    if shape == "translation":
        rows = [{"translation": row} for row in rows]
    if kind == ".parquet":
        parquet.write_table(pyarrow.Table.from_pylist(rows), path)
        return
    if kind == ".jsonl":
        lines = [json.dumps(row) for row in rows]
    elif kind == ".tsv":
        lines = ["\t".join(cells) for cells in [names, *pairs]]
    else:
        lines = [",".join('"' + cell.replace('"', '""') + '"' for cell in cells) for cells in [names, *pairs]]
    content = "".join(line + "\n" for line in lines).encode()
    path.write_bytes(COMPRESS.get(path.suffix.lower(), bytes)(content))


def refusal(root: Path, train: Any, **data: Any) -> str:
    with pytest.raises(InputError) as caught:
        pairs_of(root, train, **data)
    assert caught.value.exit_code == 2
    assert "\n" not in caught.value.message
    return caught.value.message


def test_plain_files_keep_their_order_and_white_space_inside(tmp_path: Path) -> None:
    pairs = [("  a  b ", "c\t"), ("", " "), ("a\rb\u2028c", "d")]
    source = write_pairs(tmp_path, "train", pairs)
    expected = [("a  b", "c"), ("", ""), ("a\rb\u2028c", "d")]
    assert pairs_of(tmp_path, source) == expected
    (tmp_path / "train.en.gz").write_bytes(gzip.compress((tmp_path / "train.en").read_bytes()))
    assert pairs_of(tmp_path, source | {"source": "train.en.gz"}) == expected


COMPRESSED = ["t.tsv.gz", "t.csv.gz", "t.jsonl.gz", "t.tsv.xz", "t.jsonl.zst", "my.1.tsv", "T.TSV", "T.JSONL.GZ"]


@pytest.mark.parametrize("name", [*KINDS, *COMPRESSED])
def test_a_table_gives_every_cell_as_it_was_written(tmp_path: Path, name: str) -> None:
    write_table(tmp_path / name, AWKWARD)
    assert pairs_of(tmp_path, {"file": name}) == AWKWARD


@pytest.mark.parametrize("name", KINDS)
def test_a_table_with_named_columns(tmp_path: Path, name: str) -> None:
    write_table(tmp_path / name, AWKWARD, names=("German text", "en"))
    swapped = {"file": name, "source_column": "en", "target_column": "German text"}
    assert pairs_of(tmp_path, swapped) == [(target, source) for source, target in AWKWARD]
    assert pairs_of(tmp_path, {"file": name, "source_column": "German text", "target_column": "en"}) == AWKWARD


def test_few_rows_of_a_parquet_file_are_held_in_memory(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    write_table(path, [("a" * 1000, "b" * 1000)] * 10_000)
    rows = table_rows(path, TableFile(file=path.name), ("en", "it"), raise_issue)
    tracemalloc.start()
    try:
        assert [number for number, _ in rows][-1] == 10_000
        assert tracemalloc.get_traced_memory()[1] < 8_000_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("name", ["t.jsonl", "t.jsonl.gz", "t.parquet"])
def test_a_table_with_translation_dictionaries(tmp_path: Path, name: str) -> None:
    write_table(tmp_path / name, AWKWARD, shape="translation")
    assert pairs_of(tmp_path, {"file": name}) == AWKWARD


@pytest.mark.parametrize(
    "text", ["2020-01-01", "2020-01-01T12:30:00Z", "2020-01-01 12:30:00", "12:30:00", "007", "true"]
)
def test_a_column_that_looks_like_another_type_stays_text(tmp_path: Path, text: str) -> None:
    for name, shape in [*((kind, "") for kind in KINDS), ("t.jsonl", "translation")]:
        write_table(tmp_path / name, [(text, "x")] * 2, shape=shape)
        assert pairs_of(tmp_path, {"file": name}) == [(text, "x")] * 2, (name, shape)


@pytest.mark.parametrize("name", ["t.csv", "t.jsonl", "t.parquet"])
def test_a_line_break_inside_a_sentence_becomes_a_space(tmp_path: Path, name: str) -> None:
    write_table(tmp_path / name, [("two\nlines", "due\r\nrighe\n"), ("a", "b")])
    assert pairs_of(tmp_path, {"file": name}) == [("two lines", "due righe"), ("a", "b")]


@pytest.mark.parametrize("inside", ["\r", "\x00", "\x0b", "\x0c", "\x1c", "\u2028"])
@pytest.mark.parametrize("name", KINDS[:3])
def test_a_control_character_in_a_cell_ends_no_row(tmp_path: Path, name: str, inside: str) -> None:
    pairs = [(f"a{inside}b", f"c{inside}d"), ("e", "f")]
    write_table(tmp_path / name, pairs)
    assert pairs_of(tmp_path, {"file": name}) == pairs


@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
@pytest.mark.parametrize(("name", "content"), [("t.tsv", b"en\tit\r\na\tb\r\n"), ("t.csv", b'en,it\r\n"a",b\r\n')])
def test_a_table_from_windows(tmp_path: Path, name: str, content: bytes, mark: bytes) -> None:
    (tmp_path / name).write_bytes(mark + content)
    assert pairs_of(tmp_path, {"file": name}) == [("a", "b")]


@pytest.mark.parametrize("name", ["a[1]*", "what?", "#1 {a,b} 100%"])
@pytest.mark.parametrize("suffix", [".tsv", ".parquet"])
def test_a_file_name_is_not_a_pattern(tmp_path: Path, name: str, suffix: str) -> None:
    for other in ("a1x", "whatX"):
        write_table(tmp_path / f"{other}{suffix}", [("wrong", "wrong")])
    write_table(tmp_path / f"{name}{suffix}", [("a", "b")])
    assert pairs_of(tmp_path, {"file": f"{name}{suffix}"}) == [("a", "b")]


def test_absent_cells_are_empty_sentences(tmp_path: Path) -> None:
    write_lines(tmp_path / "t.jsonl", ['{"en": null, "it": "x"}', '{"en": "y", "it": null}'])
    assert pairs_of(tmp_path, {"file": "t.jsonl"}) == [("", "x"), ("y", "")]
    write_lines(tmp_path / "t.tsv", ["en\tit\tscore", "\tx", "y\t", "z\tw\t1"])
    assert pairs_of(tmp_path, {"file": "t.tsv"}) == [("", "x"), ("y", ""), ("z", "w")]


@pytest.mark.parametrize(("name", "mark"), [*SEPARATED, ("t.tsv.gz", "\t")])
def test_without_a_header_columns_are_counted(tmp_path: Path, name: str, mark: str) -> None:
    content = "".join(f"{mark.join(cells)}\n" for cells in [("en", "it", "0.9"), ("a b", "c", "0.8")]).encode()
    (tmp_path / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    source = {"file": name, "header": False}
    assert pairs_of(tmp_path, source) == [("en", "it"), ("a b", "c")]
    other = {**source, "source_column": 3, "target_column": "1"}
    assert pairs_of(tmp_path, other) == [("0.9", "en"), ("0.8", "a b")]
    assert "no column '4', only 1, 2, 3" in refusal(tmp_path, {**source, "target_column": 4})
    assert pairs_of(tmp_path, {"file": name}) == [("a b", "c")]


def test_the_error_for_a_table_without_a_header_says_how_to_declare_it(tmp_path: Path) -> None:
    write_lines(tmp_path / "t.tsv", ["a\tb", "c\td"])
    with pytest.raises(InputError, match=r"t\.tsv:2: no column 'en', only a, b") as caught:
        pairs_of(tmp_path, {"file": "t.tsv"})
    assert "header: false" in str(caught.value)


@pytest.mark.parametrize(("name", "mark"), SEPARATED)
def test_rows_of_the_wrong_length_are_refused(tmp_path: Path, name: str, mark: str) -> None:
    """A missing tab would give an empty reference, a stray one would cut or shift a sentence."""
    header, short, long, good = (mark.join(cells) for cells in (["en", "it"], ["c"], ["a", "b", "c"], ["d", "e"]))
    write_lines(tmp_path / name, [header, good, short])
    assert refusal(tmp_path, {"file": name}) == f"{tmp_path / name}:3: ends before column 'it'"
    for rows in ([long, good], [good, long], [long]):
        write_lines(tmp_path / name, [header, *rows])
        message = f"{tmp_path / name}:{2 + rows.index(long)}: 3 cells, but the first line has 2 columns"
        assert refusal(tmp_path, {"file": name}) == message


@pytest.mark.parametrize(("name", "mark"), SEPARATED)
def test_repeated_column_names_are_refused_if_they_are_read(tmp_path: Path, name: str, mark: str) -> None:
    write_lines(tmp_path / name, [mark.join(["en", "it", "x", "x"]), mark.join(["a", "b", "c", "d"])])
    assert pairs_of(tmp_path, {"file": name}) == [("a", "b")]
    assert "two columns are named 'x'" in refusal(tmp_path, {"file": name, "source_column": "x"})


def test_repeated_parquet_column_names_are_refused_if_they_are_read(tmp_path: Path) -> None:
    path, cells = tmp_path / "t.parquet", [pyarrow.array([value]) for value in "abcd"]
    parquet.write_table(pyarrow.table(cells, names=["en", "it", "x", "x"]), path)
    assert pairs_of(tmp_path, {"file": path.name}) == [("a", "b")]
    message = refusal(tmp_path, {"file": path.name, "source_column": "x", "target_column": "it"})
    assert message == f"{path}: two columns are named 'x'"
    pairs = pyarrow.StructArray.from_arrays(cells[:3], names=["en", "it", "it"])
    parquet.write_table(pyarrow.table({"translation": pairs}), path)
    assert refusal(tmp_path, {"file": path.name}) == f"{path}: two columns are named 'translation.it'"


@pytest.mark.parametrize("name", KINDS)
def test_a_missing_column_lists_the_existing_ones(tmp_path: Path, name: str) -> None:
    write_table(tmp_path / name, [("a", "b")], names=("src", "dst"))
    line = {"t.parquet": "", "t.jsonl": ":1"}.get(name, ":2")
    columns = {"source_column": "src", "target_column": "tgt"}
    for options, missing in (({}, "en"), (columns, "tgt")):
        message = refusal(tmp_path, {"file": name, **options})
        assert message == f"{tmp_path / name}{line}: no column '{missing}', only src, dst"


def test_a_table_with_another_delimiter_names_the_key(tmp_path: Path) -> None:
    write_lines(tmp_path / "t.csv", ["en;it", "a;b"])
    with pytest.raises(InputError, match="no column 'en', only en;it") as caught:
        pairs_of(tmp_path, {"file": "t.csv"})
    assert caught.value.hint == "set `delimiter: ;`"
    assert pairs_of(tmp_path, {"file": "t.csv", "delimiter": ";"}) == [("a", "b")]


def test_a_null_translation_in_a_parquet_file_is_named(tmp_path: Path) -> None:
    rows = [{"translation": {"en": "a", "it": "b"}}, {"translation": None}]
    parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "t.parquet")
    message = f"{tmp_path / 't.parquet'}: row 2: 'translation' is null"
    assert refusal(tmp_path, {"file": "t.parquet"}) == message


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (['{"en": "a", "it": "b"}', "", '{"en": 7, "it": "b"}'], "3: column 'en' is not text but 7"),
        (['{"en": "a", "it": ["b"]}'], "1: column 'it' is not text but ['b']"),
        (['{"en": "a", "it": {"x": "b"}}'], "1: column 'it' is not text but {'x': 'b'}"),
        (['{"en": "\\ud800", "it": "b"}'], "1: column 'en' contains half of a surrogate pair"),
        (['{"translation": {"en": "a", "de": "b"}}'], "1: no column 'it', only en, de"),
        (['{"translation": {"en": "a", "it": "b"}}', '{"translation": null}'], "2: 'translation' is null"),
        (['["a", "b"]'], '1: not a JSON object but ["a", "b"]'),
    ],
)
def test_a_json_row_without_two_sentences_is_named(tmp_path: Path, rows: list[str], message: str) -> None:
    write_lines(tmp_path / "t.jsonl", rows)
    assert refusal(tmp_path, {"file": "t.jsonl"}) == f"{tmp_path / 't.jsonl'}:{message}"


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("t.jsonl", b'{"en": "a", "it": "b"}\n{"en": "a", "it": \n', ":2: not valid JSON"),
        ("t.jsonl.gz", gzip.compress(b'{"en": "a", "it": "b"}\n' * 500, mtime=0)[:-9], ": damaged"),
        ("t.tsv.gz", gzip.compress(b"en\tit\na\tb\n" * 500, mtime=0)[:-9], ": damaged"),
        ("t.tsv.gz", b"en\tit\na\tb\n", ": damaged"),
        ("t.csv", b'en,it\n"a,b\n', ":2: not valid CSV"),
        ("t.csv", b"en,it\na\rb,c\n", ":2: a carriage return that ends no line"),
        ("t.csv", b"en,it\ra,b\r", ":1: a carriage return that ends no line"),
        ("t.csv", b'en,it\na,b\nc,"d\ne,f\ng,h\n', ":3: not valid CSV"),  # where the quote opens
        ("t.csv", b'en,it\na,b\n"c\nd",e,f\ng,h\n', ":3: 3 cells"),
        ("t.parquet", b"PAR1 is not enough PAR1", ": cannot be read as Parquet"),
        ("t.parquet", b"", ": cannot be read as Parquet"),
        ("t.tsv", b"en\tit\na\tb\nc\td\xff\n", ":3: not valid UTF-8"),
        ("t.csv", b"en,it\na,b\nc,d\xff\n", ":3: not valid UTF-8"),
        ("t.jsonl", b'{"en": "a", "it": "b"}\n\n{"en": "c", "it": "d\xff"}\n', ":3: not valid UTF-8"),
    ],
)
def test_a_damaged_table_is_refused_by_name(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    (tmp_path / name).write_bytes(content)
    assert refusal(tmp_path, {"file": name}).startswith(f"{tmp_path / name}{message}")


def test_an_unclosed_quote_does_not_read_all_of_a_large_table(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_bytes(b'en,it\n"a,b\n' + (b"c" * 2**20 + b",d\n") * 40)
    tracemalloc.start()
    with pytest.raises(InputError) as error:
        pairs_of(tmp_path, {"file": "t.csv"})
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert error.value.message.startswith(f"{tmp_path / 't.csv'}:2: not valid CSV: field larger than")
    assert error.value.hint.startswith("close the quote")
    assert peak < 120e6, "a cell of 2**24 characters, and a few copies of a line"


@pytest.mark.parametrize("name", KINDS[:3])
def test_an_empty_table_has_no_pairs(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"")
    assert pairs_of(tmp_path, {"file": name}) == []


def test_a_missing_table_and_a_folder(tmp_path: Path) -> None:
    (tmp_path / "folder.jsonl").mkdir()
    for name in ("none.tsv", "none.csv.gz", "none.jsonl", "none.parquet", "folder.jsonl"):
        assert refusal(tmp_path, {"file": name}) == f"{tmp_path / name}: no such file"


def test_unwanted_parquet_columns_are_not_decoded(tmp_path: Path) -> None:
    beyond = pyarrow.array([2**40], pyarrow.int64()).cast(pyarrow.timestamp("s"))  # too large for Python
    parquet.write_table(pyarrow.table({"en": ["a"], "when": beyond, "it": ["b"]}), tmp_path / "t.parquet")
    assert pairs_of(tmp_path, {"file": "t.parquet"}) == [("a", "b")]


def test_parquet_text_that_is_not_utf8_names_its_row(tmp_path: Path) -> None:
    offsets, data = pyarrow.array([b"a", b"c", b"\xff\xfe", b"e"], pyarrow.binary()).buffers()[1:]
    text = pyarrow.StringArray.from_buffers(4, offsets, data)
    parquet.write_table(pyarrow.table([text, ["b", "d", "x", "f"]], names=["en", "it"]), tmp_path / "t.parquet")
    assert refusal(tmp_path, {"file": "t.parquet"}) == f"{tmp_path / 't.parquet'}: row 3: not valid UTF-8"


def test_an_unknown_kind_of_table_is_a_configuration_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"must end in \.tsv"):
        make_data_config(tmp_path, {"file": "t.ods"})


def test_sources_are_read_in_their_order(tmp_path: Path) -> None:
    first = write_pairs(tmp_path, "first", [("1", "uno"), ("2", "due")])
    write_table(tmp_path / "t.tsv", [("3", "tre")])
    write_table(tmp_path / "t.jsonl", [("4", "quattro")], shape="translation")
    sources = [{"file": "t.jsonl"}, first, {"file": "t.tsv"}, first]
    assert [source for source, _ in pairs_of(tmp_path, sources)] == ["4", "1", "2", "3", "1", "2"]


@pytest.fixture
def hub(tmp_path: Path) -> Callable[..., list[Pair]]:
    """Read a data set in a folder, whose path `load_dataset` accepts as a name on the hub."""
    folder = tmp_path / "set"
    folder.mkdir()
    write_table(folder / "train.jsonl", [("hello", "ciao"), ("NA", "null")], shape="translation")
    write_table(folder / "validation.jsonl", [("good", "buono")], shape="translation")
    return lambda **source: pairs_of(tmp_path, {"hub": str(folder), **source})


def test_a_switch_of_the_network_holds_for_the_hubs_library(
    hub: Callable[..., list[Pair]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    monkeypatch.setenv("MT_OFFLINE", "1")
    assert hub(split="validation") == [("good", "buono")]
    assert os.environ.pop("HF_HUB_OFFLINE") == "1"


def test_a_hub_data_set_and_its_splits(hub: Callable[..., list[Pair]]) -> None:
    assert hub() == [("hello", "ciao"), ("NA", "null")]
    assert hub(split="validation") == [("good", "buono")]
    with pytest.raises(InputError, match=r"split dev.*cannot be loaded: .*train.*validation"):
        hub(split="dev")
    with pytest.raises(InputError, match=r"config en-it.*cannot be loaded: .*en-it"):
        hub(config="en-it")


@pytest.mark.parametrize(
    "cause",
    [
        OSError(errno.ENOSPC, "No space left on device"),
        OSError("Not enough disk space. Needed: 9 GB"),
        PermissionError(errno.EACCES, "Permission denied"),
        None,
    ],
)
def test_a_cache_that_cannot_be_written_is_not_the_hub_data_sets_fault(
    hub: Callable[..., list[Pair]], monkeypatch: pytest.MonkeyPatch, cause: OSError | None
) -> None:
    def load_dataset(*_: object, **__: object) -> None:
        raise datasets.exceptions.DatasetGenerationError("An error occurred") from (cause or MemoryError())

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    expected = r"\(config None, split train\): the library's cache cannot be written" if cause else None
    with pytest.raises(MachineError if cause else MemoryError, match=expected):
        hub()


def run_python(program: str, *arguments: object, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a program in a new process: libraries read the environment once."""
    return subprocess.run(
        [sys.executable, "-c", program, *map(str, arguments)],
        env={**os.environ, **environment},
        cwd=Path(__file__).parent.parent,
        capture_output=True,
        text=True,
        timeout=60,
    )


STREAMED = """
import sys
from pathlib import Path
from data_helpers import pairs_of
print(pairs_of(Path(), {"hub": sys.argv[1], "streaming": sys.argv[2] == "yes"}))
"""


@pytest.mark.slow
def test_a_streamed_hub_data_set_is_the_same_and_is_not_stored(hub: Callable[..., list[Pair]], tmp_path: Path) -> None:
    stored = {}
    for streaming in ("no", "yes"):
        home = tmp_path / streaming
        done = run_python(STREAMED, tmp_path / "set", streaming, HF_HOME=str(home))
        assert done.stdout == "[('hello', 'ciao'), ('NA', 'null')]\n", done.stderr
        stored[streaming] = len(list(home.rglob("*.arrow")))
    assert stored["no"] > 0 == stored["yes"]
    with pytest.raises(InputError, match=r"split dev.*cannot be loaded: "):
        hub(split="dev", streaming=True)


UNREACHABLE = """
from pathlib import Path
from data_helpers import pairs_of
from mt.errors import InputError
try:
    pairs_of(Path(), {"hub": "nobody/no-such-set", "config": "en-it"})
except InputError as error:
    print(error.message)
"""


def test_an_unreachable_hub_data_set_is_one_sentence(tmp_path: Path) -> None:
    done = run_python(UNREACHABLE, HF_HUB_OFFLINE="1", HF_HOME=str(tmp_path))
    assert done.stdout.count("\n") == 1, done.stderr
    assert done.stdout.startswith("nobody/no-such-set (config en-it, split train): cannot be loaded: ")
    assert "Traceback" not in done.stderr


LOCAL = """
import sys
from pathlib import Path
from data_helpers import pairs_of
attempts = []
sys.addaudithook(lambda event, arguments: event in ("socket.connect", "socket.getaddrinfo") and attempts.append(event))
print(pairs_of(Path(sys.argv[1]), [{"file": "t.tsv"}, {"file": "t.parquet"}]), attempts)
"""


def test_reading_a_table_does_not_use_the_network(tmp_path: Path) -> None:
    write_table(tmp_path / "t.tsv", [("a", "b")])
    write_table(tmp_path / "t.parquet", [("c", "d")])
    online = {"HF_HUB_OFFLINE": "0", "HF_UPDATE_DOWNLOAD_COUNTS": "AUTO", "HF_HOME": str(tmp_path)}
    done = run_python(LOCAL, tmp_path, **online)
    assert done.stdout == "[('a', 'b'), ('c', 'd')] []\n", done.stderr


def test_the_phrasebook_in_both_directions(tmp_path: Path) -> None:
    expected = list(phrasebook.sentence_pairs("test"))
    source = {"builtin": "phrasebook", "split": "test"}
    assert pairs_of(tmp_path, source) == expected
    assert len(expected) == 500
    mirrored = pairs_of(tmp_path, source, source_lang="it", target_lang="en")
    assert mirrored == [(italian, english) for english, italian in expected]


@pytest.mark.parametrize(("source", "target"), [("en", "de"), ("fr", "it"), ("en", "IT")])
def test_the_phrasebook_refuses_other_languages(tmp_path: Path, source: str, target: str) -> None:
    message = refusal(tmp_path, {"builtin": "phrasebook"}, source_lang=source, target_lang=target)
    assert message == f"data: the built-in phrasebook is English-Italian, not {source}-{target}"
