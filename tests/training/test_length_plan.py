"""`training.minutes`: as many steps as fit, recorded, and repeated by a resume."""

import json
import shutil
import signal
from pathlib import Path

import pytest

from command import Command
from mt.config import parse_config
from mt.storage.run_dir import RunDir
from mt.system.distributed import SINGLE_PROCESS
from mt.training.length_plan import LengthPlan
from resume_helpers import overrides, run_of, train, wait_for_step, weights

SETTINGS = ("training.max_steps=300", "training.warmup_steps=40", "training.schedule=cosine")
LIMITED = (*SETTINGS, "training.minutes=0.05", "training.validate_every=50", "training.patience=null")


def plan(folder: Path, *changes: str) -> LengthPlan:
    config = parse_config((folder / "tiny.yaml").read_text(), "tiny.yaml", [*LIMITED, *changes])
    folder.joinpath("run").mkdir(exist_ok=True)
    return LengthPlan(RunDir(folder / "run"), config.training, SINGLE_PROCESS, elapsed=0.0)


def test_validations_count_and_a_slow_machine_makes_fewer_steps(tiny: Path) -> None:
    minutes = "training.minutes=10"
    fast, slow = plan(tiny, minutes), plan(tiny, minutes, "training.max_steps=290")
    for each, seconds in ((fast, 1.0), (slow, 3.0)):
        for _ in range(50):
            each.add_step(seconds)
        each.add_validation(50.0)
    assert fast.replan(50) == pytest.approx(50 + 600 / 2, abs=1)
    assert slow.replan(50) == pytest.approx(50 + 600 / 4, abs=1)


def test_the_configured_length_bounds_the_plan_and_its_end_stays(tiny: Path) -> None:
    fast = plan(tiny, "training.minutes=1000")
    fast.add_step(0.001)
    assert fast.replan(40) == 4 * 300
    assert fast.replan(1100) == fast.at(2000) == 1200
    late = plan(tiny, "training.minutes=0.0001")
    late.add_step(100.0)
    assert late.replan(30) == 41  # a schedule's warm-up is shorter than its steps


def test_plans_are_repeated_until_the_limit_changes(tiny: Path) -> None:
    first = plan(tiny)
    first.add_step(0.01)
    steps = first.replan(40)
    again = plan(tiny)
    again.add_step(1.0)
    assert (again.at(39), again.at(40), again.replan(40)) == (300, steps, steps)
    other = plan(tiny, "training.minutes=7")
    assert other.at(40) == 300


def test_a_killed_training_ends_with_the_weights_of_one_that_had_the_same_plans(tiny: Path, tmp_path: Path) -> None:
    whole, killed = (shutil.copytree(tiny, tmp_path / name) for name in ("whole", "killed"))
    done = train(whole, *LIMITED)
    assert "(training.minutes)" in done.stderr
    record = json.loads(run_of(whole).length.read_bytes())
    assert "40" in record["plans"]
    assert list(record["plans"].values())[-1] != 300
    run_of(killed).root.mkdir(parents=True)
    shutil.copy(run_of(whole).length, run_of(killed).length)
    for step in (30, 60):
        command = Command("train", "--config", "tiny.yaml", *overrides(LIMITED), cwd=killed)
        wait_for_step(killed, step, command)
        command.signal(signal.SIGKILL)
        command.wait()
    train(killed, *LIMITED)
    assert json.loads(run_of(killed).length.read_bytes()) == record
    assert weights(killed) == weights(whole)


def test_a_finished_training_keeps_its_best_weights_when_the_measure_changes(tiny: Path) -> None:
    settings = (*LIMITED, "training.validate_every=20")
    run_of(tiny).root.mkdir(parents=True)
    record = {"limit": {"minutes": 0.05, "max_steps": 300}, "plans": {"40": 60}}
    run_of(tiny).length.write_text(json.dumps(record))
    train(tiny, *settings)
    before = weights(tiny)
    assert "no longer count" not in train(tiny, *settings, "training.best_metric=loss").stderr
    assert weights(tiny) == before
