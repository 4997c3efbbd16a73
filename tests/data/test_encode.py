"""Encoding by several processes: the same bytes, and whole or absent after a kill."""

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
from mt.data.encode import encode_corpus, read_counts
from mt.data.sentence_format import NO_TAGS, Tags
from mt.data.tokenizer_kinds import TokenizerPair
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


@pytest.mark.parametrize(
    ("size", "block", "workers"), [(1000, 333, 1), (1000, 1000, 1), (64, 1, 1), (0, 5, 1), (1000, 90, 2)]
)
def test_blocks_and_workers_change_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int, block: int, workers: int
) -> None:
    text, pair = text_of(tmp_path, max(size, 200))
    for path in text:
        path.write_bytes(b"".join(line + b"\n" for line in path.read_bytes().split(b"\n")[:size]))
    parts = [(size // 4, Tags((5,))), (size - size // 4, NO_TAGS)]
    encode_corpus(text, pair, tmp_path / "whole", "key", 9, parts)
    monkeypatch.setattr(encode, "_BLOCK", block)
    encode_corpus(text, pair, tmp_path / "in_blocks", "key", 9, parts, workers)
    counts = read_counts(tmp_path / "whole" / "counts.json")
    assert sum(counts.kept) + counts.too_long == size
    assert contents(tmp_path / "in_blocks") == contents(tmp_path / "whole")


def test_few_long_lines_are_encoded_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lines of 10,000 characters would need half a megabyte each as tokens."""
    text, pair = text_of(tmp_path, 20)
    for path in text:
        write_lines(path, ["x" * 2**20] * 20)
    sizes, encode_block = [], encode._encode
    monkeypatch.setattr(encode, "_encode", lambda *a: sizes.append(len(a[-1][-1])) or encode_block(*a))
    encode_corpus(text, pair, tmp_path / "encoded", "key", 9)
    assert sizes == [4] * 5


def test_an_invalid_line_is_named_by_its_number_in_the_file(tmp_path: Path) -> None:
    text, pair = text_of(tmp_path, 500)
    lines = text[1].read_bytes().split(b"\n")
    lines[433] = b"\xff"
    text[1].write_bytes(b"\n".join(lines))
    with pytest.raises(InputError, match=r"a\.it:434: not valid UTF-8"):
        encode_corpus(text, pair, tmp_path / "encoded", "key", None, workers=2)
    assert not (tmp_path / "encoded").exists()


SCRIPT = """
import sys
from pathlib import Path
from mt.data import encode
from mt.data.tokenizer_kinds import TokenizerPair
folder = Path(sys.argv[1])
if __name__ == "__main__":
    pair = TokenizerPair.load(folder / "tokenizer", shared=False)
    encode._BLOCK = 1000
    encode.encode_corpus((folder / "a.en", folder / "a.it"), pair, folder / "encoded", "key", None, workers=2)
"""


def test_a_killed_encoding_is_absent_and_its_workers_end(tmp_path: Path) -> None:
    text, pair = text_of(tmp_path, 30_000)
    (tmp_path / "tokenizer").mkdir()
    for name, content in pair.files().items():
        (tmp_path / "tokenizer" / name).write_text(content)
    (tmp_path / "encode.py").write_text(SCRIPT)
    command = [sys.executable, str(tmp_path / "encode.py"), str(tmp_path)]
    process = subprocess.Popen(command, start_new_session=True)
    deadline = time.monotonic() + 120
    while not any(path.stat().st_size for path in tmp_path.glob(".encoded.*/source_tokens.*")):
        assert time.monotonic() < deadline
        assert process.poll() is None, "it finished before the kill"
        time.sleep(0.01)
    process.kill()
    process.wait()
    while running_in(process.pid):  # its workers notice that it ended
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert not (tmp_path / "encoded").exists()
    subprocess.run(command, check=True)
    encode_corpus(text, pair, tmp_path / "whole", "key", None, workers=1)
    assert contents(tmp_path / "encoded") == contents(tmp_path / "whole")
    assert not list(tmp_path.glob(".encoded*"))


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
        encode_corpus(text, pair, tmp_path / "encoded", "key", None, workers=2)
    killer.join()
    assert not (tmp_path / "encoded").exists()
