"""What reaches the terminal: lines that it cannot mistake for commands, and never an end of the work."""

import errno
import io
import logging
import os
import pickle
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from mt.cli import _as_known
from mt.console import log, logged_to, progress, quoted, set_up_logging
from mt.errors import InputError, MtError, StoppedError
from mt.extras.pipelines.execution import StepError


@pytest.fixture
def logging_as_usual():
    before = log.handlers[:], log.level, log.propagate
    set_up_logging()
    yield
    log.handlers[:], log.propagate = before[0], before[2]
    log.setLevel(before[1])


@pytest.mark.usefixtures("logging_as_usual")
def test_text_is_shown_and_not_obeyed(capsys: pytest.CaptureFixture[str]) -> None:
    ordinary = "Größe\t好\u3000晴れ, vraiment\xa0? می\u200cخواهم 👨\u200d👩"
    log.info("source: %s\nsecond", f"\x1b]0;title\x07 {ordinary}\r\x9b\u202e")
    shown = capsys.readouterr().err
    assert shown.endswith(f"source: ⟨U+001B⟩]0;title⟨U+0007⟩ {ordinary}⟨U+000D⟩⟨U+009B⟩⟨U+202E⟩\nsecond\n")


@pytest.mark.usefixtures("logging_as_usual")
def test_a_mistake_in_a_line_ends_nothing(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logging, "raiseExceptions", True)
    log.handlers[0].handle(logging.makeLogRecord({"msg": "%g minutes", "args": (None,)}))
    assert "must be real number" in capsys.readouterr().err


class _Shell(io.StringIO):
    """A terminal without a file descriptor, as IDLE's."""

    def isatty(self) -> bool:
        return True


def _closed() -> io.StringIO:
    stream = io.StringIO()
    stream.close()
    return stream


@pytest.mark.usefixtures("logging_as_usual")
@pytest.mark.parametrize(
    "stream", [None, _Shell(), SimpleNamespace(write=len), _closed()], ids=["none", "shell", "plain", "closed"]
)
def test_a_stream_that_is_no_terminal_shows_no_bar(stream: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", stream)
    with progress(total=2) as bar:
        bar.set_postfix_str("loss")
        bar.update()
    assert bar.disable


def test_trainings_of_two_threads_share_the_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log, "propagate", True)
    before = log.level
    first, second = logged_to(tmp_path / "a"), logged_to(tmp_path / "b")
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    log.debug("late")
    second.__exit__(None, None, None)
    assert (log.propagate, log.level) == (True, before)
    assert [len((tmp_path / name).read_text().splitlines()) for name in "ab"] == [0, 1]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a full disk")
def test_a_log_on_a_full_disk_does_not_hide_an_error() -> None:
    def fail() -> None:
        with logged_to(Path("/dev/full")):
            log.warning("a line")
            raise KeyError("the reason")

    with pytest.raises(KeyError, match="the reason"):
        fail()


def test_a_programs_own_log_keeps_its_level(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(log, "propagate", True)
    monkeypatch.setattr(log, "handlers", [])
    caplog.set_level(logging.WARNING)  # of the root, as by logging.basicConfig
    caplog.set_level(logging.NOTSET, "mt")
    with logged_to(tmp_path / "log"):
        for level in (logging.DEBUG, logging.INFO, logging.WARNING):
            log.log(level, "level %d", level)
    assert caplog.messages == ["level 30"]
    assert len((tmp_path / "log").read_text().splitlines()) == 3
    assert (log.propagate, log.handlers, log.level) == (True, [], logging.NOTSET)


def test_names_in_errors_are_shown_and_not_obeyed() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "mt", "train", "--config", "a\x1b[31m.yaml"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "a⟨U+001B⟩[31m.yaml" in done.stderr
    assert "\x1b" not in done.stderr


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (MemoryError(), 4),
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB"), 4),
        (RuntimeError("[enforce fail at alloc_cpu.cpp:121] DefaultCPUAllocator: can't allocate memory: 9 bytes"), 4),
        (RuntimeError("CUDA failed with error out of memory"), 4),
        (RuntimeError("shape mismatch"), 1),
        (ValueError("out of memory"), 1),
    ],
)
def test_memory_that_runs_out_is_no_bug_and_other_errors_are(error: Exception, code: int) -> None:
    assert _as_known(error).exit_code == code


@pytest.mark.parametrize(
    "error",
    [InputError("a", "b"), StoppedError(15, "a", "b"), StepError(3, "a", "b")],
    ids=lambda error: type(error).__name__,
)
@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_an_error_reaches_another_process(error: MtError, protocol: int) -> None:
    received = pickle.loads(pickle.dumps(error, protocol))
    assert (type(received), vars(received), str(received)) == (type(error), vars(error), "a\n  b")


def test_the_folder_of_temporary_files_is_named_where_it_may_be_full() -> None:
    full, broken = (_as_known(OSError(number, os.strerror(number))) for number in (errno.ENOSPC, errno.EIO))
    assert str(full).startswith("No space left on device\n  free some space")
    assert "TMPDIR" in full.hint
    assert not broken.hint


def test_words_are_quoted_for_the_systems_shell(monkeypatch: pytest.MonkeyPatch) -> None:
    assert quoted("mt", "a b", r"runs\demo") == r"mt 'a b' 'runs\demo'"
    with monkeypatch.context() as patched:
        patched.setattr(os, "name", "nt")
        on_windows = quoted("mt", "a b", r"runs\demo")
    assert on_windows == r'mt "a b" runs\demo'
