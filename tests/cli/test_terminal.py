"""A terminal, played by a pseudo-terminal: the status line, the prompt, and the model that is named."""

import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from fcntl import ioctl
from pathlib import Path

import pytest

from command import mt


def on_terminal(*words: str, cwd: Path, typed: str = "", columns: int = 60, **environment: str) -> str:
    """Run a command on a terminal of so many columns, type when it asks, and return what the terminal got."""
    master, slave = pty.openpty()
    ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    env = {**os.environ, "TERM": "xterm", **environment}
    command = [sys.executable, "-m", "mt", *words]
    process = subprocess.Popen(command, cwd=cwd, stdin=slave, stdout=slave, stderr=slave, env=env, close_fds=True)
    os.close(slave)
    seen, deadline = b"", time.monotonic() + 120
    while time.monotonic() < deadline:
        if typed and b"> " in seen:
            os.write(master, typed.encode())
            typed = ""
        if select.select([master], [], [], 0.1)[0]:
            try:
                seen += os.read(master, 65536)
            except OSError:  # the other end is closed
                break
    os.close(master)
    assert process.wait(10) == 0, seen
    return seen.decode()


def test_the_status_line_fits_and_the_log_does_not_repeat_it(tiny: Path) -> None:
    seen = on_terminal("train", "tiny.yaml", cwd=tiny)
    lines = [line for line in re.split(r"[\r\n]+", seen) if "step " in line and " left" in line]
    assert any(re.search(r"step \d+/24 \d+% \d+:\d+ left, loss \d\.\d+, [\d,]+ tok/s", line) for line in lines), seen
    assert max(map(len, lines)) <= 60
    assert "learning rate" not in seen
    samples = [line for line in seen.splitlines() if "(reference: " in line]
    assert len(samples) == 3  # one of each validation
    log = (tiny / "runs" / "tiny" / "train.log").read_text()
    assert log.count("learning rate") == 6
    assert "validation loss" in log
    assert "training has ended" in log


def test_all_sessions_are_in_the_log(tiny: Path) -> None:
    """Without a terminal, the steps are logged on stderr as well."""
    stderr = mt("train", "tiny.yaml", "--set", "training.max_steps=8", cwd=tiny).stderr
    assert stderr.count("learning rate") == 2
    mt("train", "--config", "tiny.yaml", cwd=tiny)
    log = (tiny / "runs" / "tiny" / "train.log").read_text()
    assert log.count("training has ended") == 2
    assert "\x1b" not in log


def test_the_prompt_names_the_model_and_says_how_to_leave(trained: Path) -> None:
    seen = on_terminal("translate", cwd=trained, typed="a b c\n\x04")
    assert "en to xx, BLEU 0.0 on its test set" in seen
    assert "\x1b[33m" in seen  # a warning, in colour
    assert "learned next to nothing" in seen
    assert "Ctrl-D ends" in seen
    assert mt("translate", "a b c", cwd=trained).stdout.strip() in seen
    assert "\x1b[33m" not in on_terminal("translate", "a", cwd=trained, NO_COLOR="1")


@pytest.mark.slow
def test_a_long_file_shows_how_far_it_is(trained: Path, tmp_path: Path) -> None:
    (tmp_path / "long.en").write_text("a b c\n" * 5000)
    (tmp_path / "long.md").write_text("a b.\n\n" * 600)
    seen = on_terminal("translate", "--input", str(tmp_path / "long.en"), "--output", str(tmp_path / "o"), cwd=trained)
    assert re.search(r"translating: +[1-9]\d?%.*/5000 ", seen), seen
    assert (tmp_path / "o").read_text().count("\n") == 5000
    words = ("translate", "--input", str(tmp_path / "long.md"), "--output", str(tmp_path / "o.md"))
    assert re.search(r"translating: .*/1 ", on_terminal(*words, cwd=trained)), "one sentence, 600 times"


def test_results_are_not_overwritten(trained: Path, tmp_path: Path) -> None:
    output = tmp_path / "out"
    words = ("translate", "--input", "test.en", "--output", output)
    mt(*words, cwd=trained)
    first = output.read_text()
    output.write_text("mine\n")
    assert "this file exists" in mt(*words, cwd=trained, code=2).stderr
    assert output.read_text() == "mine\n"
    mt(*words, "--force", cwd=trained)
    assert output.read_text() == first
    for option in ("--glossary", "--prefix-file"):
        refused = mt(*words, "--force", option, output, cwd=trained, code=2)
        assert "this is an input and would be overwritten" in refused.stderr


def test_a_configuration_is_no_pipe(tiny: Path) -> None:
    script = "cat tiny.yaml | $PYTHON -m mt train --dry-run /dev/stdin"
    environment = {**os.environ, "PYTHON": sys.executable}
    done = subprocess.run(["sh", "-c", script], cwd=tiny, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "/dev/stdin: a pipe, not a file" in done.stderr


def test_a_file_among_the_texts_is_a_slip(trained: Path) -> None:
    done = mt("translate", "test.en", cwd=trained, code=2)
    assert "did you mean --input test.en?" in done.stderr


@pytest.mark.parametrize("words", [["train"], ["data", "check"], ["data", "clean", "--output", "x"]], ids=" ".join)
def test_the_configuration_is_an_argument_or_an_option(tiny: Path, words: list[str]) -> None:
    assert "no configuration is named" in mt(*words, cwd=tiny, code=2).stderr
    both = mt(*words, "tiny.yaml", "--config", "tiny.yaml", cwd=tiny, code=2)
    assert "contradict each other" in both.stderr
    for given in (["none.yaml"], ["--config", "none.yaml"]):
        assert "none.yaml: no such file" in mt(*words, *given, cwd=tiny, code=2).stderr
