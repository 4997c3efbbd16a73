"""Sharded encoding by several processes: the same bytes, and resuming after a kill."""

import contextlib
import multiprocessing
import os
import random
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from data_helpers import write_lines
from mt.data import encode
from mt.data.encode import encode_corpus
from mt.data.tokenizer import TokenizerPair
from mt.errors import InputError, MachineError
from mt.storage.atomic import MANIFEST

WORDS = "uno due tre quattro cinque è \u2028 \u0085 \ufeff x\ry".split(" ")


def text_of(folder: Path, size: int) -> tuple[tuple[Path, Path], TokenizerPair]:
    rng = random.Random(size)
    sides = [[" ".join(rng.choices(WORDS, k=rng.randint(0, 9))) for _ in range(size)] for _ in range(2)]
    pair = TokenizerPair.train(sides[0][:200], sides[1][:200], 300, shared=False)
    return (write_lines(folder / "a.en", sides[0]), write_lines(folder / "a.it", sides[1])), pair


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.name != MANIFEST}


@pytest.mark.parametrize(("size", "shard"), [(1000, 100), (1000, 333), (1000, 999), (1000, 1000), (64, 1), (0, 5)])
def test_shards_joined_are_the_corpus(tmp_path: Path, size: int, shard: int) -> None:
    text, pair = text_of(tmp_path, max(size, 200))
    for path in text:
        path.write_bytes(b"".join(line + b"\n" for line in path.read_bytes().split(b"\n")[:size]))
    whole = encode_corpus(text, pair, tmp_path / "whole", "key", 9)
    joined = encode_corpus(text, pair, tmp_path / "joined", "key", 9, shard=shard)
    assert joined == whole
    assert sum(whole.kept) + whole.too_long == size
    assert contents(tmp_path / "joined") == contents(tmp_path / "whole")
    assert not (tmp_path / "joined.shards").exists()


@pytest.mark.parametrize("block", [7, 64, 1 << 20])
def test_line_offsets_for_any_block_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block: int) -> None:
    monkeypatch.setattr(encode, "_BLOCK", block)
    lines = [b"a" * (n % 13) for n in range(100)]
    path = tmp_path / "a"
    path.write_bytes(b"\n".join(lines) + b"\n")
    for every in (1, 3, 50, 99, 100, 101):
        offsets, number = encode._line_offsets(path, every)
        assert number == 100
        content = path.read_bytes()
        assert offsets == [len(b"\n".join(lines[:n])) + (n > 0) for n in range(0, 100, every)]
        assert all(offset == 0 or content[offset - 1 : offset] == b"\n" for offset in offsets)


def test_an_invalid_line_is_named_by_its_number_in_the_file(tmp_path: Path) -> None:
    text, pair = text_of(tmp_path, 500)
    lines = text[1].read_bytes().split(b"\n")
    lines[433] = b"\xff"
    text[1].write_bytes(b"\n".join(lines))
    with pytest.raises(InputError, match=r"a\.it:434: not valid UTF-8"):
        encode_corpus(text, pair, tmp_path / "encoded", "key", None, shard=100)
    assert not (tmp_path / "encoded").exists()


SCRIPT = """
import sys
from pathlib import Path
from mt.data.encode import encode_corpus
from mt.data.tokenizer import TokenizerPair
folder = Path(sys.argv[1])
if __name__ == "__main__":
    pair = TokenizerPair.load(folder / "tokenizer", shared=False)
    encode_corpus((folder / "a.en", folder / "a.it"), pair, folder / "joined", "key", None, shard=2000)
"""


def test_a_killed_encoding_resumes(tmp_path: Path) -> None:
    text, pair = text_of(tmp_path, 60_000)
    (tmp_path / "tokenizer").mkdir()
    for name, content in pair.files().items():
        (tmp_path / "tokenizer" / name).write_text(content)
    (tmp_path / "encode.py").write_text(SCRIPT)
    command = [sys.executable, str(tmp_path / "encode.py"), str(tmp_path)]
    process = subprocess.Popen(command, start_new_session=True)
    shards = tmp_path / "joined.shards"
    deadline = time.monotonic() + 120
    while len(list(shards.glob("[0-9]*"))) < 5:
        assert time.monotonic() < deadline
        assert process.poll() is None, "it finished before the kill"
        time.sleep(0.01)
    process.kill()
    process.wait()
    while running_in(process.pid):  # its workers notice that it ended
        assert time.monotonic() < deadline
        time.sleep(0.05)
    before = {path.name: path.stat().st_mtime_ns for path in shards.glob("[0-9]*")}
    assert 5 <= len(before) < 30
    (first := shards / min(before)).joinpath("counts.json").write_text("{}")  # damaged in the meantime
    mtimes: dict[str, int] = {}
    process = subprocess.Popen(command)
    while process.poll() is None:
        mtimes |= {path.name: path.stat().st_mtime_ns for path in list(shards.glob("[0-9]*")) if path.exists()}
        time.sleep(0.005)
    assert process.returncode == 0
    assert {name for name in before if mtimes[name] != before[name]} == {first.name}
    encode_corpus(text, pair, tmp_path / "whole", "key", None)
    assert contents(tmp_path / "joined") == contents(tmp_path / "whole")


def running_in(session: int) -> list[int]:
    """Return the processes of a session."""
    processes = []
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(ProcessLookupError):
            if os.getsid(int(path.name)) == session:
                processes.append(int(path.name))
    return processes


def test_a_killed_worker_is_reported(tmp_path: Path) -> None:
    text, pair = text_of(tmp_path, 60_000)

    def kill() -> None:
        while not (children := multiprocessing.active_children()):
            time.sleep(0.01)
        children[0].kill()

    killer = threading.Thread(target=kill)
    killer.start()
    with pytest.raises(MachineError, match="was killed"):
        encode_corpus(text, pair, tmp_path / "encoded", "key", None, shard=2000)
    killer.join()
    assert not (tmp_path / "encoded").exists()
