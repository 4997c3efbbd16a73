"""`training.minutes`: as many steps as fit, recorded, and repeated by a resume."""

import contextlib
import json
import shutil
import signal
from pathlib import Path

import pytest

from command import Command
from mt.config import parse_config
from mt.errors import MachineError
from mt.storage.run_dir import RunDir
from mt.system.distributed import SINGLE_PROCESS
from mt.training.length_plan import LengthPlan
from mt.training.train_state import TrainState
from resume_helpers import overrides, run_of, train, wait_for_step, weights

SETTINGS = ("training.max_steps=300", "training.warmup_steps=40", "training.schedule=cosine")
LIMITED = (*SETTINGS, "training.minutes=0.05", "training.validate_every=50", "training.patience=null")


def plan(folder: Path, *changes: str, step: int = 0, elapsed: float = 0.0) -> LengthPlan:
    config = parse_config((folder / "tiny.yaml").read_text(), "tiny.yaml", [*LIMITED, *changes])
    folder.joinpath("run").mkdir(exist_ok=True)
    made = LengthPlan(RunDir(folder / "run"), config.training, SINGLE_PROCESS, step, elapsed)
    made.add_step(99.0)  # the first one of a session does not count
    return made


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


@pytest.mark.parametrize(("schedule", "steps"), [("linear", 300), ("constant", 1200)])
def test_a_rate_that_falls_to_zero_does_so_within_the_epochs(tiny: Path, schedule: str, steps: int) -> None:
    fast = plan(tiny, "training.minutes=1000", "training.max_epochs=9", f"training.schedule={schedule}")
    fast.add_step(0.001)
    assert fast.replan(40) == steps


@pytest.mark.parametrize("warm_up", [0, 1])
def test_slow_first_steps_do_not_end_a_training(tiny: Path, warm_up: int) -> None:
    """As on a GPU, where the first steps load kernels and compile."""
    changes = f"training.warmup_steps={warm_up}", "training.validate_every=1000", "training.max_steps=9000"
    fast, planned = plan(tiny, *changes, "training.minutes=10"), {}
    for step in range(1, 1000):
        if step > 1:  # plan() has added the first one
            fast.add_step(3.0 if step < 5 else 0.03)
        if fast.is_due(step):
            planned[step] = fast.replan(step)
        assert step < fast.at(step)
    assert list(planned) == [2**i for i in range(10)]
    assert planned[1] == 9000
    assert planned[512] == pytest.approx(512 + 600 / 0.0474, rel=0.01)


def test_a_resume_plans_nothing_from_its_first_step(tiny: Path) -> None:
    earlier = plan(tiny, step=40)
    earlier.add_step(0.01)
    steps = earlier.replan(40)
    assert plan(tiny, step=49).replan(50) == steps


def test_after_the_warm_up_and_the_first_validation_only_validations_replan(tiny: Path) -> None:
    each = plan(tiny, "training.validate_every=300")
    assert [step for step in range(1, 3000) if each.is_due(step)] == [40, 64, 128, 256]


def test_a_warm_up_longer_than_the_limit_is_planned_for_before_the_first_validation(tiny: Path) -> None:
    changes = "training.warmup_steps=4000", "training.max_steps=9000", "training.schedule=inverse_sqrt"
    slow, again = (plan(tiny, *changes, "training.validate_every=1000", "training.minutes=10") for _ in range(2))
    assert [step for step in range(1, 1000) if slow.is_due(step)] == [64, 128, 256, 512]
    slow.add_step(3.0)
    assert slow.replan(64) == pytest.approx(64 + 600 / 3, abs=1)
    again.add_step(3.0)
    again.replan(128)
    assert again.replan(64) == 9000, "a step before a recorded plan is repeated as it was"


def test_without_a_warm_up_the_second_step_tells_the_speed(tiny: Path) -> None:
    changes = ("training.schedule=constant", "training.warmup_steps=0", "training.minutes=0.0001")
    done = train(tiny, *changes, "training.max_steps=30", "training.validate_every=60")
    assert "step 2 is the last (training.minutes)" in done.stderr


def test_the_end_names_the_key_that_set_it(tiny: Path) -> None:
    settings = parse_config((tiny / "tiny.yaml").read_text(), "tiny.yaml", LIMITED).training
    assert "(training.max_steps)" in TrainState(step=300).end_reason(settings, 300, 0)
    assert "(training.minutes)" in TrainState(step=250).end_reason(settings, 250, 0)


@pytest.mark.parametrize(("schedule", "steps"), [("cosine", 41), ("linear", 41), ("constant", 33), ("noam", 33)])
def test_a_warm_up_that_does_not_fit_is_reported(tiny: Path, schedule: str, steps: int, notices: list[str]) -> None:
    changes = (f"training.schedule={schedule}", "training.learning_rate=0.1", "training.minutes=1")
    late = plan(tiny, *changes, step=0, elapsed=53.0)
    late.add_step(2.0)
    assert late.replan(30) == steps  # a rate that falls to zero does so after the warm-up
    assert notices[-1] == "training.minutes: the warm-up alone takes 1 min 13 s; lower training.warmup_steps"


def test_plans_are_repeated_until_the_limit_changes(tiny: Path) -> None:
    first = plan(tiny)
    first.add_step(0.01)
    steps = first.replan(40)
    again = plan(tiny)
    again.add_step(1.0)
    assert (again.at(39), again.at(40), again.replan(40)) == (300, steps, steps)
    other = plan(tiny, "training.minutes=7", step=39, elapsed=39.0)
    assert (other.at(39), other.at(40)) == (300, 300)


def test_a_recorded_plan_ends_after_a_longer_warm_up(tiny: Path) -> None:
    """Otherwise the cosine would have no step to fall in: a division by zero."""
    slow = plan(tiny)
    slow.add_step(99.0)
    assert slow.replan(40) == 41
    assert plan(tiny, "training.warmup_steps=41", step=40).at(40) == 42


def test_a_damaged_record_is_named(tiny: Path) -> None:
    plan(tiny)
    path = tiny / "run/length.json"
    for content in (path.read_bytes()[:-9], b"", b"[]", b"{}"):
        path.write_bytes(content)
        with pytest.raises(MachineError) as error:
            plan(tiny)
        assert error.value.message == f"{path}: damaged, so this run cannot be resumed exactly"
        assert error.value.hint.startswith("restore it; if you remove it")


def test_another_limit_is_planned_for_at_once(tiny: Path) -> None:
    """Otherwise the configured length, which may be past already, would hold until the next validation."""
    for minutes, steps in ((30, 900), (40, 1200), (10, 400)):
        for _ in range(2):  # a later resume repeats it
            changed = plan(tiny, f"training.minutes={minutes}", step=400, elapsed=800.0)
            assert changed.at(400) == changed.replan(400) == steps


@pytest.mark.slow
def test_more_minutes_resume_a_finished_training(tiny: Path) -> None:
    short = ("training.max_steps=50", "training.validate_every=60", "training.patience=null")
    train(tiny, *short, "training.minutes=0.0001", "training.warmup_steps=10")
    assert run_of(tiny).checkpoint_steps()[-1] == 10
    done = train(tiny, *short, "training.minutes=60", "training.warmup_steps=10")
    assert "resuming after step 10" in done.stderr
    assert "step 200 is the last (training.minutes)" in done.stderr


def test_a_killed_training_ends_with_the_weights_of_one_that_had_the_same_plans(tiny: Path, tmp_path: Path) -> None:
    whole, killed = (shutil.copytree(tiny, tmp_path / name) for name in ("whole", "killed"))
    settings = (*LIMITED, "training.final_weights=last")
    done = train(whole, *settings)
    assert "(training.minutes)" in done.stderr
    record = json.loads(run_of(whole).length.read_bytes())
    assert "40" in record["plans"]
    assert list(record["plans"].values())[-1] != 300
    train(killed, *settings, "training.max_epochs=1")  # nothing is planned yet
    shutil.copy(run_of(whole).length, run_of(killed).length)
    for step in (30, 60):
        command = Command("train", "--config", "tiny.yaml", *overrides(settings), cwd=killed)
        wait_for_step(killed, step, command)
        with contextlib.suppress(ProcessLookupError):  # a slow machine plans so few steps that the training has ended
            command.signal(signal.SIGKILL)
        command.wait()
    train(killed, *settings)
    assert json.loads(run_of(killed).length.read_bytes()) == record
    assert weights(killed) == weights(whole)


def test_a_finished_training_keeps_its_best_weights_when_the_measure_changes(tiny: Path) -> None:
    settings = (*LIMITED, "training.validate_every=20", "training.minutes=0.0001")
    train(tiny, *settings)
    assert run_of(tiny).checkpoint_steps()[-1] == 41
    before = weights(tiny)
    assert "no longer count" not in train(tiny, *settings, "training.best_metric=loss").stderr
    assert weights(tiny) == before
