"""Plain text: split on LF only, strict UTF-8, and pairs that never shift."""

import bz2
import fcntl
import gzip
import io
import itertools
import lzma
import os
import queue
import random
import subprocess
import sys
import threading
import time
import tracemalloc
import unicodedata
from pathlib import Path

import pytest
from backports import zstd
from hypothesis import given
from hypothesis import strategies as st

from mt.cli.text import input_lines
from mt.errors import InputError
from mt.text.lines import (
    _MAX_BLOCK,
    _READ,
    TextFile,
    nfc,
    read_available,
    read_lines,
    read_parallel,
    take_block,
    with_plain_spaces,
)

BOM = b"\xef\xbb\xbf"


def lines_of(folder: Path, content: bytes, name: str = "text.en") -> list[str]:
    path = folder / name
    path.write_bytes(content)
    return list(read_lines(path))


def refusal(path: Path) -> str:
    with pytest.raises(InputError) as caught:
        list(read_lines(path))
    assert caught.value.exit_code == 2
    assert "\n" not in caught.value.message
    return caught.value.message


@pytest.mark.parametrize(
    "inside", ["\u2028", "\u2029", "\x85", "\r", "\x00", "\x0b", "\x0c", "\x1c", "\x1e", "\ufeff", "\t", " "]
)
def test_nothing_but_lf_ends_a_line(tmp_path: Path, inside: str) -> None:
    assert lines_of(tmp_path, f"a{inside}b\nc\n".encode()) == [f"a{inside}b", "c"]


@pytest.mark.parametrize(
    ("content", "lines"),
    [
        (b"", []),
        (b"\n", [""]),
        (b"\n\n", ["", ""]),
        (b"a", ["a"]),
        (b"a\n", ["a"]),
        (b"a\nb", ["a", "b"]),
        (b"a\n\nb\n", ["a", "", "b"]),
        (b"a\r\nb\r\n", ["a", "b"]),
        (b"a\r\n\r\nb\r", ["a", "", "b"]),
        (b"a\r\r\n", ["a\r"]),
        (b"\ra\n", ["\ra"]),
        (b" a \n", [" a "]),
    ],
)
def test_lines_end_where_they_should(tmp_path: Path, content: bytes, lines: list[str]) -> None:
    assert lines_of(tmp_path, content) == lines


def test_a_byte_order_mark_is_removed_at_the_start_of_the_file_only(tmp_path: Path) -> None:
    content = BOM + b"a" + BOM + b"\n" + BOM + b"b\n"
    assert lines_of(tmp_path, content) == ["a\ufeff", "\ufeffb"]
    assert lines_of(tmp_path, BOM) == [""]


KINDS = {".gz": (gzip, "gzip"), ".xz": (lzma, "xz"), ".zst": (zstd, "Zstandard")}


@pytest.mark.parametrize("kind", [*KINDS, ".ZST"])
def test_compressed_files_are_read_like_the_plain_one(tmp_path: Path, kind: str) -> None:
    compress = KINDS[kind.lower()][0].compress
    content = BOM + "è\u2028x\r\n\ny".encode()
    assert lines_of(tmp_path, compress(content), "text.en" + kind) == ["è\u2028x", "", "y"]
    assert lines_of(tmp_path, compress(b"a\nb") + compress(b"c\nd"), "two.en" + kind) == ["a", "bc", "d"]


def flip(content: bytes, position: int) -> bytes:
    position %= len(content)
    return content[:position] + bytes([content[position] ^ 1]) + content[position + 1 :]


@pytest.mark.parametrize("kind", KINDS)
def test_damaged_compressed_files_are_refused(tmp_path: Path, kind: str) -> None:
    library, name = KINDS[kind]
    path = tmp_path / f"text{kind}"
    options = {"options": {zstd.CompressionParameter.checksum_flag: 1}} if library is zstd else {}
    whole, second = (library.compress(os.urandom(3000).hex().encode() + b"\n", **options) for _ in range(2))
    checksum = {".gz": -8, ".xz": len(whole) // 2, ".zst": -1}[kind]  # all of an .xz file is covered
    damaged = {
        "truncated": whole[:-20],
        "flipped bit": flip(whole, checksum),
        "impossible block": whole[:10] + b"\x07" + whole[11:],
        "not compressed": b"not compressed at all\n",
        "second header": whole + b"\0x" + second[2:],
        "second body": whole + (flip(second, -5) if kind == ".gz" else second[:60] + second[61:]),
        "second truncated": whole + second[:-6],
        "second header truncated": whole + second[:4],
        "trailing bytes": whole + b"more text\n",
    }
    for damage, content in damaged.items():
        path.write_bytes(content)
        assert refusal(path).startswith(f"{path}: damaged or truncated {name} file"), damage
    path.write_bytes(b"")
    if kind == ".gz":
        assert list(TextFile(path)) == []  # as Python and the gzip program read it
    else:
        assert refusal(path).startswith(f"{path}: damaged or truncated {name} file")


def test_an_xz_file_of_many_streams_is_read_to_its_end(tmp_path: Path) -> None:
    lines = [f"line {number}" for number in range(40_000)]
    streams = [
        lzma.compress("".join(f"{line}\n" for line in lines[n : n + 8_000]).encode()) for n in range(0, 40_000, 8_000)
    ]
    content = bytes(8).join(streams) + bytes(4)  # with padding, which the format allows
    assert lines_of(tmp_path, content, "text.en.xz") == lines
    assert lines_of(tmp_path, lzma.compress(b"") + streams[0], "text.en.xz") == lines[:8_000]


@pytest.mark.parametrize("name", ["text.en", "text.en.gz", "text.en.xz", "text.en.zst"])
def test_a_line_without_an_end_is_refused_in_little_memory(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    compress = KINDS[path.suffix][0].compress if path.suffix in KINDS else bytes
    path.write_bytes(compress(b"one\n" + bytes(60_000_000)))
    tracemalloc.start()
    assert refusal(path) == f"{path}:2: a line of more than 16 MB"
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 50e6


@pytest.mark.parametrize("name", ["text.en", "text.en.gz"])
def test_invalid_utf8_names_file_and_line(tmp_path: Path, name: str) -> None:
    content = b"one\r\ntwo\xe2\x80\xa8\n\nfa\xe7ade\nfive\n"
    path = tmp_path / name
    path.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    message = refusal(path)
    assert message.startswith(f"{path}:4: not valid UTF-8")
    assert "0xe7" in message
    assert "column 3" in message


@pytest.mark.parametrize(
    ("content", "hint"),
    [
        (gzip.compress(b"text\n" * 9, mtime=0), "looks like a gzip file"),
        (bz2.compress(b"text\n" * 9), "looks like a bzip2 file"),
        (b"PK\x03\x04\n\xff", "looks like a zip file"),  # its first line is good UTF-8
        ("wörter\n".encode("latin1"), "iconv -f latin1"),
        ("wörter\n".encode("utf-16"), "iconv -f utf-16"),
    ],
)
def test_hints_for_other_encodings(tmp_path: Path, content: bytes, hint: str) -> None:
    path = tmp_path / "text.en"
    path.write_bytes(content)
    with pytest.raises(InputError) as caught:
        list(TextFile(path))
    assert hint in str(caught.value.hint)


@pytest.mark.parametrize("bad", [b"\xff", b"\xc0\x80", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xe2\x82"])
def test_utf8_is_strict(tmp_path: Path, bad: bytes) -> None:
    path = tmp_path / "text.en"
    path.write_bytes(b"a\n" + bad + b"\n")
    assert refusal(path).startswith(f"{path}:2: not valid UTF-8")


def test_a_text_file_can_be_read_repeatedly(tmp_path: Path) -> None:
    text = TextFile(tmp_path / "text.en")
    lines_of(tmp_path, b"a\n\nb")
    assert [list(text), list(text), list(zip(text, text, strict=True))] == [
        ["a", "", "b"],
        ["a", "", "b"],
        [("a", "a"), ("", ""), ("b", "b")],
    ]


def test_a_missing_file_and_a_folder(tmp_path: Path) -> None:
    assert refusal(tmp_path / "none.en") == f"{tmp_path / 'none.en'}: no such file"
    assert refusal(tmp_path / "none.en.gz") == f"{tmp_path / 'none.en.gz'}: no such file"
    assert "is a folder" in refusal(tmp_path)


def test_a_file_without_permission(tmp_path: Path) -> None:
    path = tmp_path / "text.en"
    path.write_bytes(b"a\n")
    path.chmod(0)
    if os.access(path, os.R_OK):
        pytest.skip("root reads everything")
    assert "cannot be read: Permission denied" in refusal(path)


@pytest.mark.skipif(not Path("/proc/self/mem").exists(), reason="needs a file that fails while reading")
def test_a_file_that_fails_while_reading() -> None:
    assert refusal(Path("/proc/self/mem")) == "/proc/self/mem: cannot be read: Input/output error"


@pytest.mark.parametrize(("n_source", "n_target"), [(3, 5), (5, 3), (0, 2), (2, 0), (0, 1), (1, 400), (400, 1)])
@pytest.mark.parametrize("last", [b"", b"end"])
def test_different_line_counts_name_both(tmp_path: Path, n_source: int, n_target: int, last: bytes) -> None:
    source, target = tmp_path / "a.en", tmp_path / "a.it"
    source.write_bytes(b"x\n" * n_source)
    target.write_bytes(b"\n" * (n_target - 1) + (last or b"\n") if n_target else b"")
    with pytest.raises(InputError) as caught:
        list(read_parallel(source, target))
    expected = f"{source} has {n_source} lines but {target} has {n_target}"
    if not n_source * n_target:
        empty, other = (target, source) if n_source else (source, target)
        expected = f"{empty}: this text is empty, but {other} has " + ("1 line" if n_target == 1 else "2 lines")
    assert caught.value.message == expected


def test_pairs_are_read_lazily(tmp_path: Path) -> None:
    source, target = tmp_path / "a.en", tmp_path / "a.it"
    source.write_bytes(b"a\n" * 100_000 + b"\xff\n")
    target.write_bytes(b"b\n" * 100_001)
    assert next(read_parallel(source, target)) == ("a", "b")


# Text with many characters that other software treats as the end of a line.
TEXT = st.text(st.sampled_from("ab \r\x85\u2028\u2029\x0b\x0c\x1c\x00\ufeffé😀") | st.characters(codec="utf-8")).map(
    lambda text: text.replace("\n", "")
)


def expected_lines(lines: list[str]) -> list[str]:
    """Return raw lines as read: without a CR at the end and a byte order mark at the start of the file."""
    without_cr = [line.removesuffix("\r") for line in lines]
    return [line.removeprefix("\ufeff") if index == 0 else line for index, line in enumerate(without_cr)]


@given(pairs=st.lists(st.tuples(TEXT, TEXT), max_size=12), last_lf=st.booleans())
def test_pairing_never_shifts(
    tmp_path_factory: pytest.TempPathFactory, pairs: list[tuple[str, str]], last_lf: bool
) -> None:
    folder = tmp_path_factory.mktemp("pairs")
    sides = [[pair[side] for pair in pairs] for side in (0, 1)]
    for name, side in zip(("a.en", "a.it"), sides, strict=True):
        text = "".join(line + "\n" for line in side)
        # Without its LF an empty last line would be no line.
        if not last_lf and side and side[-1]:
            text = text[:-1]
        (folder / name).write_bytes(text.encode())
    expected = list(zip(*map(expected_lines, sides), strict=True))
    assert list(read_parallel(folder / "a.en", folder / "a.it")) == expected


@given(
    content=st.lists(st.sampled_from([b"\n", b"\r", b"a", b"\xc3\xa9", b"\xe2\x80\xa8", b"\xff", b"\x00", BOM])).map(
        b"".join
    )
)
def test_any_bytes_give_one_line_for_each_lf_or_are_refused(
    tmp_path_factory: pytest.TempPathFactory, content: bytes
) -> None:
    path = tmp_path_factory.mktemp("bytes") / "text.en"
    path.write_bytes(content)
    if b"\xff" in content:
        line = content[: content.index(b"\xff")].count(b"\n") + 1
        assert refusal(path).startswith(f"{path}:{line}: not valid UTF-8")
    else:
        assert len(list(read_lines(path))) == content.count(b"\n") + (content[-1:] not in (b"", b"\n"))


class Pipe:
    """A pipe that is read in a thread, so that a reader that waits too long fails instead of hanging."""

    def __init__(self) -> None:
        reading, self._writing = os.pipe()
        self._groups: queue.Queue[list[str] | InputError | None] = queue.Queue()
        threading.Thread(target=self._read, args=(reading,), daemon=True).start()

    def _read(self, reading: int) -> None:
        with os.fdopen(reading, "rb") as stream:
            try:
                for group in read_available(stream, "stdin"):
                    self._groups.put(group)
                self._groups.put(None)
            except InputError as error:
                self._groups.put(error)

    def write(self, content: bytes) -> None:
        os.write(self._writing, content)

    def close(self) -> None:
        os.close(self._writing)

    def next(self) -> list[str] | InputError | None:
        return self._groups.get(timeout=60)


def test_a_line_is_delivered_before_the_pipe_closes() -> None:
    pipe = Pipe()
    pipe.write(b"one\ntw")
    assert pipe.next() == ["one"]
    pipe.write(b"o\nthree\ncaf\xc3")
    assert pipe.next() == ["two", "three"]
    pipe.write(b"\xa9\r")
    pipe.write(b"\nwithout end")
    assert pipe.next() == ["café"]
    pipe.close()
    assert pipe.next() == ["without end"]
    assert pipe.next() is None
    empty = Pipe()
    empty.close()
    assert empty.next() is None


def test_a_pipe_without_line_ends_is_refused_in_little_memory() -> None:
    stream = io.BufferedReader(_Chunks([bytes(4000)] * 15_000))
    tracemalloc.start()
    with pytest.raises(InputError, match="stdin:1: a line of more than 16 MB"):
        next(read_available(stream, "stdin"))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 50e6


def test_few_long_lines_are_held_together(tmp_path: Path) -> None:
    (tmp_path / "text").write_text(f"{'a' * 2**20}\n" * 20 + "a\n" * 5000)
    sizes = [len(block) for block in input_lines((), tmp_path / "text", 4000)]
    assert sizes[:2] == [_MAX_BLOCK // 2**20] * 2
    assert sizes[2:] == [4000, 1004]
    assert len(take_block(iter([("a" * 2**20, "a" * 2**20)] * 20), 4000)) == _MAX_BLOCK // 2**21
    assert take_block(iter([1, 2, 3]), 2) == [1, 2]  # what is no text is refused later


def test_a_large_text_comes_in_large_groups(tmp_path: Path) -> None:
    """Batches are made of the lines of a group."""
    content = b"one line\n" * 50_000
    (tmp_path / "text").write_bytes(content)
    with (tmp_path / "text").open("rb") as stream:
        assert len(next(read_available(stream, "stdin"))) == _READ // len(b"one line\n")
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    os.write(writing, b"one\n")
    with os.fdopen(reading, "rb") as stream:
        groups = read_available(stream, "stdin")
        assert next(groups) == ["one"]
        written = os.write(writing, content)  # as much as the pipe takes
        assert len(next(groups)) == written // len(b"one line\n")
        assert sys.platform != "linux" or written > 0.9 * min(_READ, fcntl.fcntl(writing, fcntl.F_GETPIPE_SZ))
        os.close(writing)


def test_invalid_utf8_in_a_pipe_names_the_line() -> None:
    pipe = Pipe()
    pipe.write(b"one\ntwo\n")
    assert pipe.next() == ["one", "two"]
    pipe.write(b"three\n\xff\n")
    assert pipe.next() == ["three"], "valid lines before it are not lost"
    error = pipe.next()
    assert isinstance(error, InputError)
    assert error.message.startswith("stdin:4: not valid UTF-8")
    pipe.close()


class _Chunks(io.RawIOBase):
    """A stream that delivers the given chunks, as a slow pipe does."""

    def __init__(self, chunks: list[bytes]) -> None:
        self._chunks = [chunk for chunk in chunks if chunk]

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        chunk = self._chunks.pop(0) if self._chunks else b""
        buffer[: len(chunk)] = chunk
        return len(chunk)


@given(text=TEXT.map(lambda text: text.replace("a", "\n")), cuts=st.lists(st.integers(0, 60), max_size=8))
def test_lines_do_not_depend_on_the_chunks_of_a_pipe(text: str, cuts: list[int]) -> None:
    content = text.encode()
    edges = [0, *sorted(cuts), len(content)]
    chunks = [content[start:end] for start, end in itertools.pairwise(edges)]
    groups = list(read_available(io.BufferedReader(_Chunks(chunks)), "stdin"))
    lines = content.decode().split("\n")
    if lines[-1] == "":
        lines.pop()
    assert [line for group in groups for line in group] == expected_lines(lines)
    assert all(groups)


def test_a_python_without_lzma_reads_other_text(tmp_path: Path) -> None:
    program = """
import sys
sys.modules["_lzma"] = None
from pathlib import Path
from mt.errors import InputError
from mt.text import archives
from mt.text.lines import TextFile
print(list(TextFile(Path("a.gz"))))
try:
    list(TextFile(Path("a.xz")))
except InputError as error:
    print(error)
"""
    (tmp_path / "a.gz").write_bytes(gzip.compress(b"one\ntwo\n"))
    (tmp_path / "a.xz").write_bytes(lzma.compress(b"one\n"))
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[0] == "['one', 'two']"
    assert "a.xz: this Python was built without lzma" in done.stdout


def test_a_non_breaking_space_stays_beside_marks_and_digits() -> None:
    text = "Quoi\u00a0? Un{}mot\u202f! 10\u202f000\u00a0km"
    assert with_plain_spaces(text.format("\u00a0")) == text.format(" ")


def test_long_runs_of_combining_marks_are_normalized_in_linear_time() -> None:
    """Also behind marks and letters that consist of others."""
    marks = "".join(map(chr, range(sys.maxunicode + 1)))
    assert not [mark for mark in marks if unicodedata.combining(mark) and mark.isalnum()]
    draw = random.Random(1)
    some = [mark for mark in marks if unicodedata.combining(mark)] + [*"\u0344\u0f73\u0f75\u0f81" * 50]
    for _ in range(20):
        runs = (draw.choice("a\u1eadé\uac00\u1100 ") + "".join(draw.choices(some, k=150)) for _ in range(8))
        text = "".join(runs)
        assert nfc(text) == unicodedata.normalize("NFC", text)
    started = time.process_time()
    assert nfc("a" + "\u0301\u0323" * 100_000).startswith("\u1ea1\u0323")
    assert time.process_time() - started < 2
