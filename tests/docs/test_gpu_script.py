"""scripts/bench/gpu.sh, the one call on a GPU machine: a rehearsal on the CPU, and its limits."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from conftest import write_corpus

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "scripts" / "bench" / "gpu.sh"
QUICK = {"machine", "profile", "train", "decode"}
LOGS = {*QUICK, "tests", "base", "big", "sweep"}
BLOCKED = ("datasets", "ctranslate2", "backports.zstd", "sentencex", "tensorboard")  # such a machine lacks them


def block_packages(folder: Path) -> str:
    """Write a `sitecustomize` without which these packages could be imported; return the variable PYTHONPATH."""
    folder.mkdir()
    lines = ["import sys", *(f"sys.modules[{name!r}] = None" for name in BLOCKED)]
    (folder / "sitecustomize.py").write_text("\n".join(lines))
    return str(folder)


@pytest.mark.slow
@pytest.mark.parametrize(("level", "steps"), [("quick", QUICK), ("1", LOGS)])
def test_all_steps_work_at_toy_size_without_optional_packages(tmp_path: Path, level: str, steps: set[str]) -> None:
    pytest.importorskip("transformers")
    write_corpus(tmp_path)
    for ours, theirs in {"train": "train", "valid": "val", "test": "test_2016_flickr"}.items():
        for language, suffix in {"en": "en", "xx": "de"}.items():
            (tmp_path / f"{ours}.{language}").rename(tmp_path / f"{theirs}.{suffix}")
    only = " ".join(sorted(steps - {"machine"}))
    variables = {"ONLY": only, "DRY": level, "DATA": str(tmp_path), "OUT": str(tmp_path / "out")}
    variables["PYTHON"] = sys.executable
    environment = os.environ | variables | {"PYTHONPATH": block_packages(tmp_path / "blocked")}
    done = subprocess.run([SCRIPT], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr
    logs = {path.stem: path.read_text() for path in (tmp_path / "out").iterdir()}
    assert set(logs) == steps
    assert len(logs) <= 8
    for name in {"base", "big"} & steps:
        assert re.search(r"^mt / marian: [\d.]+ \(", logs[name], re.MULTILINE)
    for name in {"base", "sweep"} & steps:
        assert re.search(r"^\| mt \| .* \d+% \| [\d.]+ s \|$", logs[name], re.MULTILINE)
    assert "| operator | share | ms an update | calls an update |" in logs["profile"]
    assert "work with torch only" in logs["train"]
    assert re.search(r"^beam +[\d.]+ ", logs["train"], re.MULTILINE)
    assert {"mt torch", "transformers"} <= set(re.findall(r"^\| ([a-z ]+) \|", logs["decode"], re.MULTILINE))


def test_the_limits_of_all_steps_leave_time_to_spare() -> None:
    limits = re.findall(r"^(?:phase|speed) \w+ (\d+)", SCRIPT.read_text(), re.MULTILINE)
    assert len(limits) == len(LOGS) - 1
    assert sum(map(int, limits)) + 3 * len(limits) <= 9 * 60 - 9  # what is stopped gets 3 s to end


def test_a_failed_download_is_reported(tmp_path: Path) -> None:
    pip = tmp_path / "python"
    pip.write_text("#!/bin/sh\nexit 1\n")
    pip.chmod(0o755)
    done = subprocess.run([SCRIPT, "prepare"], env=os.environ | {"PYTHON": str(pip)}, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (1, "gpu.sh: pip could not fetch the wheels\n")
