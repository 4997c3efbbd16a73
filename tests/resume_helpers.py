"""Helpers of tests that interrupt and resume real trainings."""

import json
import time
from collections.abc import Sequence
from pathlib import Path

from command import Command, Done, mt
from mt.storage.manifest import sha256
from mt.storage.run_dir import RunDir


def overrides(changes: Sequence[str]) -> list[str]:
    """Return the options that change a configuration."""
    return [word for change in changes for word in ("--set", change)]


def train(folder: Path, *changes: str, code: int | None = 0, **environment: str) -> Done:
    return mt("train", "--config", "tiny.yaml", *overrides(changes), cwd=folder, code=code, **environment)


def run_of(folder: Path) -> RunDir:
    return RunDir(folder / "runs" / "tiny")


def weights(folder: Path) -> str:
    return sha256(run_of(folder).model.weights)


def events(folder: Path) -> list[dict]:
    path = run_of(folder).metrics
    return [json.loads(line) for line in path.read_text().splitlines() if line.endswith("}")] if path.exists() else []


def wait_for_step(folder: Path, step: int, command: Command) -> None:
    """Returns once training has gone that far in this or an earlier session, or has ended."""
    deadline = time.monotonic() + 120
    while last_step(folder) < step and command.process.exitcode is None:
        assert time.monotonic() < deadline, "training does not get on"
        time.sleep(0.01)


LONG = ("training.max_steps=300", "training.save_every=10", "training.validate_every=100", "training.log_every=5")


def last_step(folder: Path) -> int:
    return max((event["step"] for event in events(folder)), default=0)


def resumes(folder: Path) -> int:
    """How often training went on from a checkpoint in the middle."""
    return len([event for event in events(folder) if event["event"] == "resume" and 0 < event["step"] < 300])


def hurt(path: Path, damage: str) -> None:
    content = bytearray(path.read_bytes())
    if damage == "delete":
        path.unlink()
    elif damage == "truncate":
        path.write_bytes(content[: len(content) // 2])
    else:
        content[len(content) // 2] ^= 1
        path.write_bytes(content)
