"""The estimated time of a pipeline: probes, kept timings, and steps side by side."""

import json
import platform
import shutil
from pathlib import Path
from typing import Any

import pytest

from bundle_helpers import make
from command import mt
from data_helpers import write_lines
from mt.api import pipelines
from mt.api.pipelines import read_plan, show_plan
from mt.config import dump_config
from mt.data.tokenizer_kinds import TokenizerPair
from mt.errors import InputError, MachineError
from mt.extras.pipelines.estimates import StepCost, _Estimator, estimate_costs, makespan
from mt.extras.pipelines.plan import Plan
from mt.extras.pipelines.records import output_digest
from mt.extras.planning.probe import Measurements
from mt.storage.run_dir import RunDir
from mt.text.lines import TextFile
from pipeline_helpers import REVERSE, TEACHERS, TWO, make_pipeline, plan_of


def timings_of(plan: Plan) -> list[dict[str, Any]]:
    return list(json.loads((plan.records / ".timings.json").read_text()).values())


@pytest.mark.slow
def test_a_dry_run_estimates_and_leaves_nothing(tmp_path: Path) -> None:
    make_pipeline(tmp_path, TEACHERS.replace("max_steps: 8", "max_steps: 800"))
    before = sorted(tmp_path.rglob("*"))
    shown = mt("train", "--config", "pipeline.yaml", "--dry-run", cwd=tmp_path).stdout
    assert sorted(tmp_path.rglob("*")) == before
    times = {line.split()[0]: line for line in shown.splitlines()[1:]}
    for name in ("teacher_1", "teacher_2", "translated", "student", "final"):
        assert " s " in times[name] or " min " in times[name], shown
    assert shown.splitlines()[-1].startswith("estimated: ")
    assert "unknown" not in shown


@pytest.mark.slow
def test_scores_are_estimated_by_the_models_in_float32_with_random_pairs(tmp_path: Path) -> None:
    values = "set: {training.max_steps: 800, training.precision: bf16}\nsteps:"
    teachers = TEACHERS.replace("training.max_steps: 8, ", "").replace("steps:", values, 1)
    models = "forward: {step: teacher_1}, backward: {step: reverse}"
    score = f"score: {{config: tiny.yaml, set: {{model.d_model: 64}}, {models}}}"
    plan = plan_of(make_pipeline(tmp_path), f"{teachers}  {REVERSE}\n  scores:\n    {score}\n")
    plan.records.mkdir(parents=True)
    cost = estimate_costs(plan, ["scores"])["scores"]
    [timings] = timings_of(plan)
    assert timings["precision"] == "fp32"
    forward = timings["steps_per_pair"] * timings["seconds_per_step"] * 0.28
    pairs = len((tmp_path / "train.en").read_text().splitlines())
    assert cost.seconds == pytest.approx(12 + 4 * (2 * pairs) * forward), "each source has another target, too"


@pytest.mark.slow
def test_other_texts_and_machines_are_timed_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = plan_of(make_pipeline(tmp_path), TEACHERS.replace("max_steps: 8", "max_steps: 800"))
    plan.records.mkdir(parents=True)

    def timings() -> list[dict[str, Any]]:
        estimate_costs(plan, ["teacher_1"])
        return timings_of(plan)

    assert len(timings()) == len(timings()) == 1
    for name in ("train.en", "train.xx"):
        lines = (tmp_path / name).read_text().splitlines()
        write_lines(tmp_path / name, [f"{line} {line}" for line in lines])
    first, longer = timings()
    assert longer["steps_per_pair"] > 1.5 * first["steps_per_pair"]
    monkeypatch.setattr(platform, "node", lambda: "another")
    assert len(timings()) == 3


@pytest.mark.slow
def test_other_settings_are_timed_apart_and_a_given_tokenizer_is_read(tmp_path: Path) -> None:
    folder = make_pipeline(tmp_path)
    text = [TextFile(folder / name) for name in ("train.en", "train.xx")]
    TokenizerPair.train(*text, 290, shared=True).write(folder)
    steps = {"plain": "", "frozen": ", training.freeze: [encoder]", "eager": ", training.compile: false"}
    steps["given"] = f", tokenizer: {{file: {folder / 'tokenizer.json'}}}"
    lines = [
        f"  {name}: {{train: {{config: tiny.yaml, set: {{training.max_steps: 800{values}}}}}}}"
        for name, values in steps.items()
    ]
    plan = plan_of(folder, "\n".join(["name: four", "steps:", *lines]))
    plan.records.mkdir(parents=True)
    estimate_costs(plan, list(steps))
    smallest, *others = sorted(timings["parameters"] for timings in timings_of(plan))
    assert len(others) == 3
    assert smallest < min(others) == max(others)  # the given tokenizer has fewer pieces


@pytest.mark.slow
def test_scoring_is_estimated_by_the_size_of_the_test_set(tmp_path: Path) -> None:
    plan = plan_of(make_pipeline(tmp_path), TEACHERS.replace("max_steps: 8", "max_steps: 800"))
    plan.records.mkdir(parents=True)
    before = estimate_costs(plan, ["teacher_1"])["teacher_1"].seconds
    [timings] = timings_of(plan)
    added = 0
    for name in ("test.en", "test.xx"):
        lines = (tmp_path / name).read_text().splitlines()
        write_lines(tmp_path / name, lines * 10)
        added = 9 * len(lines)
    after = estimate_costs(plan, ["teacher_1"])["teacher_1"].seconds
    assert before is not None
    assert after == pytest.approx(before + 5 * added * timings["seconds_per_sentence"])


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> Measurements:
    """Replace the timing of training steps by fixed numbers."""
    numbers = Measurements("fp32", 1000, 5, 0.5, 100.0, 0.1, 0.02, 10**9, None, 0.0)
    monkeypatch.setattr(_Estimator, "_measure", lambda *_: numbers)
    return numbers


def test_only_what_is_left_of_a_training_is_estimated(tmp_path: Path, measured: Measurements) -> None:
    plan = plan_of(make_pipeline(tmp_path), TEACHERS.replace("max_steps: 8", "max_steps: 800"))
    run = RunDir(plan.steps["teacher_1"].output)

    def seconds() -> float:
        return estimate_costs(plan, ["teacher_1"], keep=False)["teacher_1"].seconds or 0.0

    new = seconds()
    run.checkpoint(200).mkdir(parents=True)
    quarter = seconds()
    run.checkpoint(800).mkdir()
    scoring = seconds()
    assert new - scoring > 800 * measured.seconds_per_step
    assert quarter - scoring == pytest.approx((new - scoring) * 3 / 4)
    run.checkpoint(800).rmdir()
    run.model.root.mkdir()
    run.model.manifest.write_text('{"files": {}, "steps": 200}')  # training.patience has ended it
    config = plan.steps["teacher_1"].config
    assert config is not None
    run.config.write_text(dump_config(config))
    assert seconds() == scoring
    training = config.training.model_copy(update={"max_steps": 400})
    run.config.write_text(dump_config(config.model_copy(update={"training": training})))
    assert seconds() == quarter, "it has been extended since"


def test_a_models_own_test_set_is_estimated(folder: Path, measured: Measurements) -> None:
    lines = ["m: {train: {config: tiny.yaml}}", "own: {eval: {model: {step: m}}}"]
    lines.append("given: {eval: {model: {step: m}, source: test.en, reference: test.xx}}")
    plan = plan_of(folder, "\n  ".join(["name: own\nsteps:", *lines]))
    costs = estimate_costs(plan, ["own", "given"], keep=False)
    assert costs["own"].seconds == costs["given"].seconds
    assert costs["own"].disk == costs["given"].disk
    assert costs["own"].seconds is not None


def test_only_the_directions_that_are_evaluated_are_estimated(folder: Path, measured: Measurements) -> None:
    write_lines(folder / "other.yy", TextFile(folder / "train.xx"))
    tests = (
        "[{source: valid.en, target: valid.xx, target_lang: xx}, {source: test.en, target: test.xx, target_lang: yy}]"
    )
    two = TWO.replace("test: null", f"test: {tests}")
    lines = [f"m: {{train: {{config: tiny.yaml, set: {{{two}}}}}}}", "all: {eval: {model: {step: m}}}"]
    lines += [f"{to}: {{eval: {{model: {{step: m}}, to: {to}}}}}" for to in ("xx", "yy")]
    plan = plan_of(folder, "\n  ".join(["name: own\nsteps:", *lines]))
    costs = estimate_costs(plan, ["all", "xx", "yy"], keep=False)
    sizes = {name: cost.disk for name, cost in costs.items()}
    assert sizes["xx"] == (folder / "valid.en").stat().st_size
    assert sizes["yy"] == (folder / "test.en").stat().st_size
    assert sizes["all"] == sizes["xx"] + sizes["yy"]


def test_a_plan_is_refused_where_it_cannot_be_written(
    folder: Path, measured: Measurements, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "pipeline.yaml").write_text(TEACHERS)
    arguments = folder / "pipeline.yaml", [f"root={folder}"]
    (folder / "link").symlink_to(folder / "nowhere")
    with pytest.raises(MachineError, match="cannot write here"):
        show_plan(*arguments, runs=folder / "link")
    plan = read_plan(*arguments, folder / "runs")
    output = plan.steps["translated"].output  # a file
    output.parent.mkdir(parents=True)
    shutil.copyfile(folder / "train.xx", output)
    needed = sum(cost.disk or 1 for cost in estimate_costs(plan, list(plan.steps), keep=False).values())
    free = needed - output.stat().st_size
    monkeypatch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(needed, 0, free))
    assert "estimated: " in show_plan(*arguments, runs=folder / "runs")
    free -= 1
    with pytest.raises(MachineError, match="GB free on this disk, but the run may need"):
        show_plan(*arguments, runs=folder / "runs")
    shutil.rmtree(folder / "runs")


def test_a_finished_plan_is_shown_where_it_cannot_be_written(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "pipeline.yaml").write_text(TEACHERS)
    (folder / "link").unlink(missing_ok=True)
    (folder / "link").symlink_to(folder / "nowhere")
    monkeypatch.setattr(pipelines, "states", lambda plan: dict.fromkeys(plan.steps, "done"))
    shown = show_plan(folder / "pipeline.yaml", [f"root={folder}"], runs=folder / "link")
    assert "estimated: 0 s" in shown


def test_the_estimated_time_is_that_of_steps_side_by_side(folder: Path) -> None:
    plan = plan_of(folder, TEACHERS)
    seconds = {"teacher_1": 50.0, "teacher_2": 70.0, "translated": 10.0, "student": 90.0, "final": None}
    costs = {name: StepCost(each) for name, each in seconds.items()}
    assert makespan(plan, costs, 1) == 220
    assert makespan(plan, costs, 2) == makespan(plan, costs, 5) == 170
    assert makespan(plan, {"student": costs["student"]}, 2) == 90


def test_a_waiting_step_leaves_its_slot_to_later_ones_in_the_estimate(folder: Path) -> None:
    train = "{train: {config: tiny.yaml}}"
    both, *first = names = ["both", "first_1", "first_2", "first_3"]
    steps = dict.fromkeys(names, train) | {"text": "{distill: {model: {step: both}, input: train.en}}"}
    lines = [f"  {name}: {steps[name]}" for name in (both, "text", *first)]
    plan = plan_of(folder, "\n".join(["name: two", "steps:", *lines]))
    assert list(plan.steps) == [both, "text", *first]
    costs = {name: StepCost(60.0 if name == "text" else 600.0) for name in plan.steps}
    assert makespan(plan, costs, 2) == 1260
    assert makespan(plan, {}, 2) == 0


def test_the_readme_of_a_trained_model_may_be_edited(folder: Path, tmp_path: Path) -> None:
    (folder / "pipeline.yaml").write_text(TEACHERS)
    plan = read_plan(folder / "pipeline.yaml", [f"root={folder}"], tmp_path)
    step = plan.steps["teacher_1"]
    model, _, _ = make(step.output)
    digest = output_digest(plan, step)
    assert digest is not None
    model.readme.write_text("Our model")
    assert output_digest(plan, step) == digest
    model.config.write_text("")
    assert output_digest(plan, step) is None


def test_text_that_a_training_would_refuse_is_refused_before_it_runs(folder: Path) -> None:
    (folder / "one.tsv").write_text("en\txx\n" + "a\n" * 9)
    plan = plan_of(folder, "name: one\nsteps:\n  a: {train: {config: tiny.yaml, set: {data.train: {file: one.tsv}}}}\n")
    with pytest.raises(InputError, match=r"pipeline.yaml:3: step a: .*/one.tsv:2: "):
        estimate_costs(plan, list(plan.steps))


def test_damaged_timings_are_measured_again(folder: Path) -> None:
    plan = plan_of(folder, TEACHERS)
    plan.records.mkdir(parents=True)
    (plan.records / ".timings.json").write_text("[]")
    try:
        assert estimate_costs(plan, ["teacher_1"])["teacher_1"].seconds is None  # of few steps
    finally:
        shutil.rmtree(folder / "runs")
