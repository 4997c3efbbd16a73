"""The commands without what only POSIX has, as far as Linux can stand for Windows (`tests/windows`)."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlencode
from urllib.request import urlopen

import pytest

WINDOWS = Path(__file__).parents[1] / "windows"

# Several commands in one process: importing torch takes most of the time.
COMMANDS = """
import shlex, sys
from mt.cli import main

for line in sys.argv[1].splitlines():
    sys.argv = ["mt", *shlex.split(line)]
    print(f"$ {line}", flush=True)
    try:
        main()
    except SystemExit as end:
        if end.code:
            sys.exit(f"{line}: {end.code}")
"""

ENCODING = """
import sys
from pathlib import Path
import numpy as np
from mt.data.encode import encode_corpus
from mt.data.token_store import EncodedCorpus
from mt.data.tokenizer_kinds import TokenizerPair
from mt.storage.run_dir import RunDir

if __name__ == "__main__":
    run, folder = RunDir(Path(sys.argv[1])), Path(sys.argv[2])
    text = run.text_file("train", "source"), run.text_file("train", "target")
    encode_corpus(text, TokenizerPair.load(run.tokenizer, shared=True), folder, "key", None, workers=2)
    corpus = EncodedCorpus.open(folder)
    print(len(corpus), len(corpus.select(np.arange(3))))
"""


@pytest.fixture
def windows(monkeypatch: pytest.MonkeyPatch) -> None:
    paths = [str(WINDOWS), *filter(None, [os.environ.get("PYTHONPATH")])]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(paths))
    monkeypatch.setenv("PYTHONWARNDEFAULTENCODING", "1")


def run(folder: Path, commands: str, stdin: bytes = b"") -> str:
    words = [sys.executable, "-c", COMMANDS, commands]
    done = subprocess.run(words, cwd=folder, input=stdin, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()[-3000:]
    return done.stdout.decode()


@pytest.mark.slow
def test_training_and_the_other_commands(tiny: Path, windows: None) -> None:
    left = (
        tiny / "runs" / "tiny" / f".metrics.jsonl.{os.getpid()}.partial"
    )  # to see whether a process lives may kill it
    left.parent.mkdir(parents=True)
    left.touch()
    output = run(
        tiny,
        """\
--version
train tiny.yaml --set training.max_steps=5 --set training.report=true
train tiny.yaml --set training.max_steps=10 --set training.report=true
eval
translate "a b" "c d"
translate --input test.en --output out.xx
translate --engine torch --alignment "a b"
distill --input test.en --output distilled.xx
data check tiny.yaml
export ctranslate2 --output exported
export ctranslate2 --output exported --force
runs
report""",
    )
    assert "trained 10 steps" in output
    assert len((tiny / "out.xx").read_bytes().splitlines()) == 12
    written = [path.name for path in tiny.rglob("*")]
    assert not [name for name in written if name.endswith(".partial") or re.search(r'[<>:"|?*\\\\]', name)]


def test_worker_processes_and_mapped_files(trained: Path, tmp_path: Path, windows: None) -> None:
    words = [sys.executable, "-c", ENCODING, str(trained / "runs" / "tiny"), str(tmp_path / "encoded")]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (done.stdout, done.returncode) == ("282 3\n", 0), done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["encoded"]


def test_standard_input(trained: Path, windows: None) -> None:
    assert len(run(trained, "translate", b"a b\r\n\r\nc d").splitlines()) == 4


def test_serving(trained: Path, windows: None) -> None:
    words = [sys.executable, "-m", "mt", "serve", "--port", "0"]
    with subprocess.Popen(words, cwd=trained, stderr=subprocess.PIPE, text=True) as server:
        assert server.stderr is not None
        url = next(match[0] for line in server.stderr if (match := re.search(r"http://[^/\s]+", line)))
        question = urlencode({"q": "a b", "source": "en", "target": "xx"}).encode()
        with urlopen(f"{url}/translate", question, timeout=60) as answer:
            assert json.load(answer)["translatedText"]
        server.terminate()
