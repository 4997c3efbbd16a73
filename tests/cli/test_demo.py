"""`mt demo`."""

import signal
import time
from pathlib import Path

import pytest

from command import Command, mt
from mt.config import load_config
from mt.data.phrasebook import DEMO

VALUES = "training.warmup_steps=2 training.save_every=2 training.validate_every=500 decoding.max_length=8".split()
SHORT = [word for value in VALUES for word in ("--set", value)]


def test_it_trains_what_the_repository_shows() -> None:
    assert DEMO.read_bytes() == (Path(__file__).parents[2] / "configs" / "demo.yaml").read_bytes()


@pytest.mark.slow
def test_the_same_command_resumes_a_killed_one(tmp_path: Path) -> None:
    first = Command("demo", "--quick", *SHORT, cwd=tmp_path)
    run = tmp_path / "runs" / "demo-quick"
    while not list(run.glob("checkpoints/step-*/MANIFEST.json")):
        assert first.process.is_alive()
        time.sleep(0.05)
    first.signal(signal.SIGKILL)
    first.wait()
    steps = max(int(path.name.removeprefix("step-")) for path in run.glob("checkpoints/step-*")) + 2
    done = mt("demo", "--quick", *SHORT, "--set", f"training.max_steps={steps}", cwd=tmp_path)
    assert "resuming after step" in done.stderr
    assert f"trained {steps} steps" in done.stdout
    assert "verdict: " in done.stderr
    assert "I love you very much → " in done.stdout
    assert "the run is in runs/demo-quick" in done.stdout
    assert load_config(run / "config.yaml").model.encoder_layers == 2


def test_its_options_reach_the_training(tmp_path: Path) -> None:
    changed = ("--set", "name=mine", "--set", "model.d_model=0")
    done = mt("demo", *changed, "--runs", "elsewhere", cwd=tmp_path, code=2)
    assert "model.d_model" in done.stderr
    assert not list(tmp_path.iterdir())
