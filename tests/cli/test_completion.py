"""Tab completion in real shells."""

import os
import pty
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

SHELLS = {"bash": "complete -o nosort -F", "zsh": "#compdef mt", "fish": "complete --no-files --command mt"}


@pytest.fixture
def project(trained: Path, tmp_path: Path) -> Path:
    """Runs, configurations, and a command named mt."""
    for name in ("old", "new"):
        shutil.copytree(trained / "runs" / "tiny", tmp_path / "runs" / name)
    os.utime(tmp_path / "runs" / "old", (1, 1))
    (tmp_path / "runs" / "nothing").mkdir()
    (tmp_path / "runs" / "odd").symlink_to("x" * 300)  # cannot be looked at, like others' runs in a shared folder
    for name in ("mine.yaml", "configs/demo.yaml", "configs/notes.txt", "other/deep.yml"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("")
    command = tmp_path / "bin" / "mt"
    command.parent.mkdir()
    command.write_text(f"#!{sys.executable}\nfrom mt.cli import main\nmain()\n")
    command.chmod(0o755)
    return tmp_path


def in_bash(project: Path, script: str) -> subprocess.CompletedProcess[str]:
    path = f"{project / 'bin'}:{os.environ['PATH']}"
    command = ["bash", "--norc", "-c", f'eval "$(mt completion bash)"; {script}']
    return subprocess.run(
        command, cwd=project, env=os.environ | {"PATH": path}, capture_output=True, text=True, check=True
    )


def offered(project: Path, *lines: str) -> list[list[str]]:
    """Return what bash's completion function offers for each beginning of a command line."""
    each = ""
    for line in lines:
        words = " ".join(f"'{word}'" for word in line.split(" "))
        each += f"COMPREPLY=(); COMP_WORDS=({words}); COMP_CWORD={len(line.split(' ')) - 1}; _mt_completion mt; "
        each += 'echo "${COMPREPLY[*]}"; '
    return [
        found.split() for found in in_bash(project, f'compopt() {{ COMPREPLY+=("$2"); }}; {each}').stdout.splitlines()
    ]


def test_commands_and_options(project: Path) -> None:
    commands, options, dry, choices = offered(project, "mt tr", "mt train --", "mt train --dr", "mt completion ")
    assert commands == ["train", "translate"]
    assert {"--config", "--set", "--dry-run"} <= set(options)
    assert dry == ["--dry-run"]
    assert choices == ["bash", "zsh", "fish"]


def test_runs_newest_first(project: Path) -> None:
    lines = (
        "mt translate --model ",
        "mt report ",
        "mt compare runs/old runs/n",
        "mt eval --model runs/o",
        "mt serve --model ",
    )
    assert offered(project, *lines) == [
        ["runs/new", "runs/old"],
        ["runs/new", "runs/old"],
        ["runs/new"],
        ["runs/old"],
        ["runs/new", "runs/old"],
    ]


def test_runs_that_lie_elsewhere(project: Path) -> None:
    (project / "runs").rename(project / "elsewhere")
    found = offered(project, "mt report --runs elsewhere ", "mt report ", "mt compare ", "mt translate --model /tm")
    assert found == [["elsewhere/new", "elsewhere/old"], ["dirnames"], ["default"], ["dirnames"]]


def test_configurations(project: Path) -> None:
    lines = ("mt train --config ", "mt train --config configs/", "mt train --config other/", "mt train --config x")
    assert offered(project, *lines) == [
        ["mine.yaml", "configs/demo.yaml"],
        ["configs/demo.yaml"],
        ["other/deep.yml"],
        ["default"],
    ]


def test_languages_and_values(project: Path) -> None:
    lines = ("mt translate --to ", "mt translate --model runs/old --to x", "mt translate --model gone --to ")
    assert offered(project, *lines) == [["xx"], ["xx"], []]
    assert offered(project, "mt export o") == [["onnx"]]
    lines = ("mt score --model gone --to ", "mt score --model runs/old --to ")
    assert offered(project, *lines) == [[], ["xx"]]
    lines = ("mt eval --metrics ", "mt eval --metrics bleu,t", "mt translate --engine c", "mt eval --device ")
    assert offered(project, *lines) == [
        ["bleu", "chrf", "ter", "comet"],
        ["bleu,ter"],
        ["ctranslate2"],
        ["auto", "cpu", "cuda", "mps"],
    ]


@pytest.mark.slow
def test_the_tab_key_in_an_interactive_bash(project: Path) -> None:
    """What the user types is completed on the line and runs."""
    main, other = pty.openpty()
    environment = os.environ | {"PATH": f"{project / 'bin'}:{os.environ['PATH']}", "PS1": "ready> ", "TERM": "dumb"}
    bash = subprocess.Popen(
        ["bash", "--norc", "-i"], cwd=project, stdin=other, stdout=other, stderr=other, env=environment
    )
    os.close(other)
    os.write(main, b'eval "$(mt completion bash)"; echo set\\ up\n')
    seen = read_until(main, b"\nset up\nready> ")  # only then does bash listen to the key
    os.write(main, b"mt rep\truns/o\t--output made.html\n")
    seen += read_until(main, b"made.html\n")
    os.write(main, b"exit\n")
    bash.wait(60)
    os.close(main)
    assert b"mt report runs/old --output made.html" in seen.replace(b"\a", b"")


def read_until(terminal: int, wanted: bytes) -> bytes:
    seen, end = b"", time.monotonic() + 60
    while wanted not in seen.replace(b"\r", b""):
        assert time.monotonic() < end, seen
        seen += os.read(terminal, 4096)
    return seen


@pytest.mark.parametrize("shell", SHELLS)
def test_every_shell_gets_its_script(project: Path, shell: str) -> None:
    done = in_bash(project, f"mt completion {shell}")
    assert SHELLS[shell] in done.stdout
    assert f"_MT_COMPLETE={shell}_complete" in done.stdout
    if shutil.which(shell):
        subprocess.run([shell, "-n", "/dev/stdin"], input=done.stdout, text=True, check=True)
