"""Logging to Weights & Biases, without a network: the numbers arrive, and a resume goes on in the same run."""

import importlib.util
import json
import os
import signal
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from command import mt
from config_helpers import configured, messages

OFFLINE = {"WANDB_MODE": "offline", "WANDB_SILENT": "true"}
TRAIN = ["train", "--config", "tiny.yaml"]

found = importlib.util.find_spec("wandb")
is_there = found is not None and found.origin is not None
needs_wandb = pytest.mark.skipif(not is_there, reason="wandb is not installed")


def chunks(content: bytes) -> Iterator[bytes]:
    """The records of a file of theirs: a header of 7 bytes, then LevelDB's log format (blocks of 32 KiB)."""
    place, begun = 7, b""
    while place + 7 <= len(content):
        left = 32768 - place % 32768
        if left < 7:
            place += left
            continue
        _, size, kind = struct.unpack("<IHB", content[place : place + 7])
        begun += content[place + 7 : place + 7 + size]
        place += 7 + size
        if kind in (1, 4):  # whole, or the last part
            yield begun
            begun = b""


def records(folder: Path, kind: str) -> list[Any]:
    """What lies in a run's files for Weights & Biases, session by session."""
    from wandb.proto.wandb_internal_pb2 import Record

    all_of_them = []
    for path in sorted(folder.glob("offline-run-*/*.wandb")):
        for chunk in chunks(path.read_bytes()):
            record = Record()
            record.ParseFromString(chunk)
            if record.WhichOneof("record_type") == kind:
                all_of_them.append(getattr(record, kind))
    return all_of_them


def told(folder: Path) -> list[dict[str, float]]:
    """The values of each time that it was told some."""
    return [{i.nested_key[0]: json.loads(i.value_json) for i in one.item} for one in records(folder, "history")]


@needs_wandb
def test_its_numbers_are_those_of_the_metrics_and_a_resume_goes_on(tiny: Path) -> None:
    asked = ["--set", "training.wandb=letters"]
    mt(*TRAIN, *asked, "--set", "training.max_steps=8", cwd=tiny, **OFFLINE)
    folder = tiny / "runs" / "tiny" / "wandb"
    assert len(list(folder.glob("offline-run-*"))) == 1
    [run] = records(folder, "run")
    assert (run.project, run.display_name) == ("letters", "tiny")
    config = {item.key: item.value_json for item in run.config.update}
    assert json.loads(config["training"])["max_steps"] == 8
    done = mt(*TRAIN, *asked, cwd=tiny, **OFFLINE)
    assert "wandb" not in done.stdout
    assert len(list(folder.glob("offline-run-*"))) == 2
    names = {path.stem.removeprefix("run-") for path in folder.glob("offline-run-*/*.wandb")}
    assert names == {(folder / "mt-run-id.txt").read_text()}

    events = [json.loads(line) for line in (tiny / "runs" / "tiny" / "metrics.jsonl").read_text().splitlines()]
    for event, key in (("train", "loss"), ("train", "learning_rate"), ("validation", "bleu")):
        ours = [(one["step"], one[key]) for one in events if one["event"] == event]
        theirs = [(one["step"], one[f"{event}/{key}"]) for one in told(folder) if f"{event}/{key}" in one]
        assert len(ours) >= 3
        assert theirs == ours


@needs_wandb
def test_it_is_closed_when_training_is_stopped(tiny: Path) -> None:
    words = ["--set", "training.wandb=true", "--set", "training.max_steps=100000"]
    command = [sys.executable, "-m", "mt", *TRAIN, *words]
    streams = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE}
    environment = os.environ | OFFLINE
    process = subprocess.Popen(command, cwd=tiny, env=environment, start_new_session=True, text=True, **streams)
    assert process.stderr is not None
    for line in process.stderr:
        if "step 20," in line:
            break
    os.killpg(process.pid, signal.SIGINT)  # as Ctrl-C: it reaches the package's own process, too
    said = process.stderr.read()
    assert process.wait(60) == 130, said
    assert "everything is saved" in said
    folder = tiny / "runs" / "tiny" / "wandb"
    assert max(one["step"] for one in told(folder)) >= 20
    assert [run.project for run in records(folder, "run")] == ["mt"]


@needs_wandb
def test_without_a_login_it_is_one_sentence(tiny: Path) -> None:
    done = mt(
        *TRAIN, "--set", "training.wandb=true", cwd=tiny, code=2, WANDB_MODE="online", HOME=str(tiny), NETRC="none"
    )
    assert "training.wandb: Weights & Biases does not start" in done.stderr
    assert "wandb login" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.skipif(is_there, reason="wandb is installed")
@pytest.mark.parametrize("options", [[], ["--dry-run"]], ids=["train", "dry run"])
def test_without_the_package_it_is_one_sentence_before_anything_is_done(tiny: Path, options: list[str]) -> None:
    (tiny / "wandb").mkdir()  # looks like a package without a file
    done = mt(*TRAIN, "--set", "training.wandb=true", *options, cwd=tiny, code=2)
    assert "training.wandb: the package wandb cannot be imported" in done.stderr
    assert "pip install 'mt-train[wandb]'" in done.stderr
    assert not (tiny / "runs").exists()


def test_it_is_off_unless_asked_for(tiny: Path) -> None:
    mt(*TRAIN, "--set", "training.max_steps=2", cwd=tiny, **OFFLINE)
    assert not (tiny / "runs" / "tiny" / "wandb").exists()


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (5, "training.wandb: must be true, false or a name, not 5; put quotes around it"),
        ("", "training.wandb: must not be empty"),
        (None, "training.wandb: must be true, false or a name, not empty (null)"),
    ],
)
def test_other_values_are_refused(value: object, message: str) -> None:
    assert messages(configured("training", wandb=value)) == [message]
    assert messages(configured("training", wandb="project")) == messages(configured("training", wandb=True)) == []
