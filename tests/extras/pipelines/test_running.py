"""Pipelines that run: order, skipped steps, kills, signals, costs and reports."""

import contextlib
import dataclasses
import hashlib
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from command import Command, mt
from conftest import made_once
from mt.api.pipelines import read_plan
from mt.errors import MtError
from mt.extras.pipelines import execution
from mt.extras.pipelines.records import note_attempt, output_digest, step_key, write_record
from mt.extras.pipelines.records import states as states_of
from mt.extras.pipelines.results import write_report
from mt.training.signals import StopRequest
from pipeline_helpers import TEACHERS, WHOLE, commands_of, make_pipeline, products, run, run_with_kills

STEPS = ["teacher_1", "teacher_2", "translated", "student", "final"]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A pipeline of two teachers and a student that has run; tests must not write into it."""

    def make(folder: Path) -> None:
        make_pipeline(folder)
        done = run(folder, "--jobs", "2")
        (folder / "stdout").write_text(done.stdout)
        (folder / "stderr").write_text(done.stderr)

    return made_once(tmp_path_factory, "pipeline", make)


@pytest.fixture
def copy(finished: Path, tmp_path: Path) -> Path:
    """A copy of the finished pipeline, which a test may change."""
    return shutil.copytree(finished, tmp_path / "again")


def attempts(folder: Path, step: str) -> list[dict]:
    path = folder / "runs" / "tiny-student" / ".pipeline" / f"{step}.attempts"
    return [json.loads(line) for line in path.read_text().splitlines()]


def states(folder: Path, *words: str) -> dict[str, str]:
    lines = mt("pipeline", "status", *(words or ["pipeline.yaml"]), cwd=folder).stdout.splitlines()[1:-1]
    return {line.split()[0]: line.split()[2] for line in lines}


def test_steps_run_side_by_side_and_after_those_that_they_need(finished: Path) -> None:
    spans = {}
    for step in STEPS:
        start, end = attempts(finished, step)
        # The seconds are rounded to hundredths, and the next step may start sooner than half of one later.
        spans[step] = (start["started"], start["started"] + end["seconds"] - 0.005)
        assert end["core_seconds"] > 0
    assert spans["teacher_2"][0] < spans["teacher_1"][1]
    assert spans["teacher_1"][0] < spans["teacher_2"][1]
    assert spans["translated"][0] >= max(spans["teacher_1"][1], spans["teacher_2"][1])
    assert spans["student"][0] >= spans["translated"][1]
    assert spans["final"][0] >= spans["student"][1]


@pytest.mark.slow
def test_a_step_that_runs_alone_gets_all_cores(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "6")
    plan = read_plan(copy / "pipeline.yaml", [f"root={copy}"], copy / "runs")
    assert [plan.cores(name, 8) for name in STEPS] == [3, 3, 6, 6, 6]
    assert [plan.cores(name, 1) for name in STEPS] == [6] * 5
    monkeypatch.undo()
    for name in ("teacher_2", "translated", "student", "final"):
        shutil.rmtree(copy / "runs" / "tiny-student" / name)
    run(copy, "--jobs", "2", OMP_NUM_THREADS="4")
    assert attempts(copy, "teacher_2")[-2]["cores"] == 2
    assert attempts(copy, "translated")[-2]["cores"] == 4


def test_the_plan_comes_first_and_scores_and_costs_last(finished: Path) -> None:
    log = (finished / "stderr").read_text()
    plan = re.search(r"translated +distill +waiting +teacher_1, teacher_2 +\S", log)
    assert plan
    assert plan.start() < log.index("teacher_1: mt train --config tiny.yaml")
    assert "teacher_1| " in log
    header, *rows, total = (finished / "stdout").read_text().splitlines()
    assert header.split() == "step command state needs BLEU chrF time core time MB".split()
    assert [row.split()[:3] for row in rows] == [
        ["teacher_1", "train", "done"],
        ["teacher_2", "train", "done"],
        ["translated", "distill", "done"],
        ["student", "train", "done"],
        ["final", "eval", "done"],
    ]
    assert re.search(r"student +\d+\.\d", rows[4]), "the score of the test text"
    assert total.startswith("all")
    page = (finished / "runs" / "tiny-student" / "report.html").read_text()
    assert "5 of 5 steps are done" in page
    assert "mt distill --model runs/tiny-student/teacher_1 --model runs/tiny-student/teacher_2" in page


@pytest.mark.slow
def test_the_steps_are_commands_that_a_user_could_type(finished: Path, tmp_path: Path) -> None:
    folder = make_pipeline(tmp_path)
    for line in re.findall(
        r"^\S+ (?:teacher_1|teacher_2|translated): mt (.*)$", (finished / "stderr").read_text(), re.M
    ):
        mt(*shlex.split(line), cwd=folder)
    ours, theirs = products(finished), products(folder)
    assert len(theirs) == 5
    assert ours | theirs == ours


def test_a_finished_pipeline_runs_nothing(copy: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in copy.rglob("*.safetensors")}
    done = run(copy)
    assert "mt train" not in done.stderr
    assert len(re.findall("done before", done.stderr)) == 5
    assert {path: path.stat().st_mtime_ns for path in copy.rglob("*.safetensors")} == before
    assert set(states(copy).values()) == {"done"}
    (copy / "tiny.yaml").rename(copy / "other.yaml")
    (copy / "pipeline.yaml").write_text(TEACHERS.replace("tiny.yaml", "other.yaml"))
    for paths in (["../again/pipeline.yaml"], [f"{copy}/pipeline.yaml", "--runs", f"{copy}/runs"]):
        assert set(states(copy, *paths).values()) == {"done"}, "paths may be spelled in other ways"


def test_a_changed_step_runs_again_and_others_only_if_their_input_changed(copy: Path) -> None:
    text = (copy / "pipeline.yaml").read_text()
    (copy / "pipeline.yaml").write_text(text.replace("valid.en, reference: valid.xx", "test.en, reference: test.xx"))
    assert states(copy) == dict.fromkeys(STEPS[:4], "done") | {"final": "changed"}
    done = run(copy)
    assert "final: runs again" in done.stderr
    assert len(re.findall(": done before", done.stderr)) == 4
    assert set(states(copy).values()) == {"done"}
    assert [path.name for path in (copy / "runs" / "tiny-student" / "final").glob("*.json")] == ["test.json"]


def test_a_training_is_never_continued_with_other_text(copy: Path) -> None:
    models = products(copy)
    (copy / "train.xx").write_text((copy / "train.xx").read_text().replace("p", "q", 1))
    refused = run(copy, code=2).stderr
    assert "pipeline.yaml:11: step teacher_1: runs/tiny-student/teacher_1: cannot resume" in refused
    assert products(copy) == models
    write = (copy / "pipeline.yaml").write_text
    make_pipeline(copy, TEACHERS.replace("beam: 2, closest", "beam: 3, closest"))
    refused = run(copy, code=2).stderr
    assert "pipeline.yaml:3: step student has a training in runs/tiny-student/student" in refused
    assert "step translated, runs again" in refused
    write(TEACHERS.replace("translated", "renamed"))
    assert "its input, step renamed, is new" in run(copy, code=2).stderr
    write(TEACHERS.replace("beam: 2, closest_to: train.xx", "output: test.xx"))
    assert "test.xx is there, and this step did not write it" in run(copy, code=2).stderr
    write(TEACHERS.replace("{step: teacher_2}]", "{step: new}]") + "  new: {train: {config: tiny.yaml}}\n")
    assert "its input, step new, is new" in run(copy, code=2).stderr
    (copy / "runs" / "tiny-student" / "translated" / "translations.txt").unlink()
    write(TEACHERS.replace("      set:\n", "      set:\n        seed: 5\n"))
    assert "student: cannot resume: seed is now 5, it was 1" in run(copy, code=2).stderr
    assert products(copy).items() <= models.items()
    write(TEACHERS.replace("beam: 2, closest", "beam: 3, closest").replace("tiny-student", "other"))
    script = mt("pipeline", "pipeline.yaml", "--emit", "slurm", cwd=copy).stdout
    assert script.count("sbatch") == 5


def test_a_training_is_not_deleted_by_a_step_of_another_kind(copy: Path) -> None:
    (copy / "pipeline.yaml").write_text("""\
name: tiny-student
steps:
  teacher_2: {eval: {model: runs/tiny-student/teacher_1, source: test.en, reference: test.xx}}
""")
    refused = run(copy, code=2).stderr
    assert "pipeline.yaml:3: runs/tiny-student/teacher_2 holds a training" in refused
    assert (copy / "runs" / "tiny-student" / "teacher_2" / "checkpoints" / "step-00000008").is_dir()


def test_a_key_has_a_models_test_set_and_the_roles_of_models(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(copy)
    own = "  own: {eval: {model: {step: student}}}\n"
    Path("pipeline.yaml").write_text(TEACHERS + own)
    steps = read_plan("pipeline.yaml").steps
    before = {name: step_key(steps[name]) for name in ("own", "final", "student")}
    text = Path("test.en").read_text()
    Path("test.en").write_text(f"j{text[1:]}" if text[0] != "j" else f"a{text[1:]}")
    after = {name: step_key(steps[name]) for name in ("own", "final")}
    assert before["own"] != after["own"], "its scores would be those of the other text"
    assert before["final"] == after["final"]
    Path("test.en").unlink()
    assert step_key(steps["own"]), "the run has a copy"
    Path("test.en").write_text(text)
    Path("pipeline.yaml").write_text(
        TEACHERS.replace("init_from: {step: teacher_1}", "distill_from: [{step: teacher_1}]")
    )
    assert step_key(read_plan("pipeline.yaml").steps["student"]) != before["student"]


def test_steps_that_read_the_same_text_hash_it_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(make_pipeline(tmp_path))
    hashed, digest = [], hashlib.file_digest
    monkeypatch.setattr(hashlib, "file_digest", lambda file, name: hashed.append(file.name) or digest(file, name))
    teachers = [read_plan("pipeline.yaml").steps[name] for name in ("teacher_1", "teacher_2")]
    before = [*map(step_key, teachers), *map(step_key, teachers)]
    assert len(hashed) == len(set(hashed)) == 6
    text = Path("train.en").read_text()
    Path("other").write_text(text.swapcase())  # of the same size
    Path("other").replace("train.en")
    assert not {*before} & {*map(step_key, teachers)}
    Path("other").write_text(text)
    Path("other").replace("train.en")
    assert [*map(step_key, teachers)] * 2 == before


def test_damaged_records_and_scores_are_left_out(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    record = copy / "runs" / "tiny-student" / ".pipeline" / "final.json"
    content = json.loads(record.read_text())
    for changed in ({"seconds": "long"}, {"scores": [1]}, {"scores": [{"bleu": [1]}]}):
        record.write_text(json.dumps(content | changed))
        assert states(copy)["final"] == "new"
    record.write_text(json.dumps(content | {"scores": [{"bleu": "high"}, {}]}))
    assert states(copy)["final"] == "done"
    monkeypatch.chdir(copy)
    plan = read_plan("pipeline.yaml")
    for text in ("", "[]", "{}", '{"results": [1]}', '{"results": [{"bleu": []}]}'):
        (plan.steps["student"].output / "eval" / "test.json").write_text(text)
        assert write_record(plan, plan.steps["student"], "key").scores == []


@pytest.mark.slow
def test_another_test_set_does_not_stop_a_pipeline(copy: Path) -> None:
    models = products(copy)
    (copy / "test.en").write_text((copy / "test.en").read_text().replace("a", "b"))
    assert states(copy)["teacher_1"] == "changed"
    done = run(copy)
    assert "translated: done before" in done.stderr
    assert "final: done before" in done.stderr
    assert set(states(copy).values()) == {"done"}
    after = products(copy)
    assert {name: digest for name, digest in after.items() if "eval" not in name}.items() <= models.items()
    (copy / "test.en").write_text((copy / "test.en").read_text().replace("b", "a"))
    (copy / "pipeline.yaml").write_text(TEACHERS.replace("{seed: 1,", "{seed: 1, decoding.beam_size: 3,"))
    assert "step teacher_1, runs again" in run(copy, code=2).stderr


@pytest.mark.slow
def test_settings_that_come_too_late_are_refused(copy: Path) -> None:
    later = TEACHERS.replace("validate_every: 8", "validate_every: 8, learning_rate: 0.002")
    (copy / "pipeline.yaml").write_text(later)
    refused = run(copy, code=2).stderr
    assert "it is trained to its end, and training.learning_rate would change nothing" in refused
    assert "or remove runs/tiny-student/student" in refused
    script = ["pipeline", "pipeline.yaml", "--emit", "slurm"]
    (copy / "pipeline.yaml").write_text(later.replace("{max_steps: 8", "{max_steps: 9"))
    assert mt(*script, cwd=copy).stdout.count("sbatch") == 2, "it goes on with the new learning rate"
    (copy / "pipeline.yaml").write_text(TEACHERS)
    shutil.rmtree(copy / "runs" / "tiny-student" / ".pipeline")
    refused = mt(*script, cwd=copy, code=2).stderr
    assert "runs/tiny-student/final is there, and this step did not write it" in refused, "as far as it knows"
    shutil.rmtree(copy / "runs" / "tiny-student" / "final")
    assert mt(*script, cwd=copy).stdout.count("sbatch") == 5, "without records, each training compares its inputs"
    mt("pipeline", "pipeline.yaml", "--step", "teacher_1", cwd=copy)
    assert mt(*script, cwd=copy).stdout.count("sbatch") == 4, "with the first new one, too"


@pytest.mark.slow
def test_a_pipeline_with_an_output_may_move(copy: Path) -> None:
    (copy / "pipeline.yaml").write_text("""\
name: other
steps:
  translated: {distill: {model: runs/tiny-student/teacher_1, input: test.en, output: out.xx, greedy: true}}
  final: {eval: {model: runs/tiny-student/teacher_1, source: test.en, reference: Out.xx}}
""")
    shutil.copy(copy / "test.xx", copy / "Out.xx")  # another file than the output
    mt("pipeline", "pipeline.yaml", "--step", "translated", cwd=copy)
    moved = shutil.copytree(copy, copy.with_name("moved"))
    assert states(moved) == {"translated": "done", "final": "new"}
    mt("pipeline", "pipeline.yaml", "--dry-run", cwd=moved)


@pytest.mark.slow
def test_a_lost_output_is_made_again(copy: Path) -> None:
    path = copy / "runs" / "tiny-student" / "translated" / "translations.txt"
    content = path.read_bytes()
    path.unlink()
    assert states(copy)["translated"] == "lost"
    done = run(copy)
    assert path.read_bytes() == content
    assert len(re.findall("done before", done.stderr)) == 4


@pytest.mark.slow
def test_altered_cleaned_text_is_made_again(tmp_path: Path) -> None:
    steps = "steps: {kept: {clean: {config: tiny.yaml, keep: [wrong-language]}}}"
    folder = make_pipeline(tmp_path, f"name: tiny-student\n{steps}\n")
    run(folder)
    path = folder / "runs" / "tiny-student" / "kept" / "train.en"
    content = path.read_bytes()
    path.write_bytes(b"a\n" + content)
    assert states(folder) == {"kept": "lost"}
    run(folder)
    assert path.read_bytes() == content
    (path.parent / "mine").touch()
    path.unlink()
    assert "mine would be lost" in run(folder, code=2).stderr
    assert (path.parent / "mine").exists()


@pytest.mark.slow
def test_outputs_are_compared_with_their_digests(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    more = """\
  kept: {clean: {config: tiny.yaml, keep: [wrong-language]}}
  fast: {export: {model: {step: student}, format: ctranslate2}}
  other: {eval: {model: {step: student}, source: {step: student, file: eval/test.beam}, reference: test.xx}}
"""
    (copy / "pipeline.yaml").write_text(TEACHERS + more)
    run(copy, "--jobs", "2")
    files = {"teacher_1": "model/model.safetensors", "kept": "train.en", "fast": "model.bin"}
    monkeypatch.chdir(copy)
    plan = read_plan("pipeline.yaml")
    for name, file in files.items():
        path = plan.steps[name].output / file
        content = path.read_bytes()
        assert output_digest(plan, plan.steps[name]) is not None
        path.write_bytes(content.replace(b"a", b"b"))
        assert output_digest(plan, plan.steps[name]) is None
        path.unlink()
        assert output_digest(plan, plan.steps[name]) is None
    named = plan.steps["student"].output / "eval" / "test.beam"
    named.unlink()
    found = states(copy)
    assert [found[name] for name in ("teacher_1", "kept", "student", "fast")] == ["lost", "lost", "waiting", "waiting"]
    assert f"step student has not written {named}" in run(copy, code=2).stderr
    shutil.rmtree(plan.steps["student"].output / "model")
    run(copy)
    assert set(states(copy).values()) == {"done"}


def test_a_file_that_a_training_does_not_write_leaves_it_done(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(copy)
    other = "  other: {distill: {model: {step: student}, input: {step: student, file: eval/test.baem}}}\n"
    (copy / "pipeline.yaml").write_text(TEACHERS + other)
    assert states(copy)["student"] == "done"
    assert "pipeline.yaml:19: steps.other.distill.input: step student writes eval/test.json" in run(copy, code=2).stderr
    (copy / "pipeline.yaml").write_text(TEACHERS + other.replace("test.baem", "test.beam"))
    plan = read_plan("pipeline.yaml")
    student, content = plan.steps["student"], (plan.steps["student"].output / "eval" / "test.beam").read_bytes()
    (student.output / "eval" / "test.beam").unlink()
    assert states_of(plan)["student"] == "lost"
    with pytest.raises(MtError, match=r"pipeline.yaml:19: step student has not written .*/eval/test.beam"):
        write_record(plan, student, step_key(student))
    (student.output / "eval" / "test.beam").write_bytes(content)
    assert states_of(plan)["student"] == "done"


def test_the_status_is_shown_without_the_texts(copy: Path) -> None:
    (copy / "test.en").unlink()
    assert states(copy)["teacher_1"] == "changed"
    assert "there is no test.en" in run(copy, code=2).stderr


def test_one_step_runs_alone(copy: Path) -> None:
    shutil.rmtree(copy / "runs" / "tiny-student" / "final")
    refused = mt("pipeline", "run", "pipeline.yaml", "--step", "fianl", cwd=copy, code=2)
    assert "--step fianl: there is no such step" in refused.stderr
    assert "one of final" in refused.stderr
    done = mt("pipeline", "run", "pipeline.yaml", "--step", "final", cwd=copy)
    assert "final: done in" in done.stderr
    assert "before" not in done.stderr
    shutil.rmtree(copy / "runs" / "tiny-student" / "student" / "model")
    assert "needs student" in mt("pipeline", "run", "pipeline.yaml", "--step", "final", cwd=copy, code=2).stderr


def submitted(folder: Path, *options: str) -> tuple[str, list[str], list[list[str]]]:
    """Run the script for Slurm with a stand-in for sbatch; return its output, the jobs, and what each depends on."""
    script = mt("pipeline", "pipeline.yaml", "--emit", "slurm", *options, cwd=folder).stdout
    (folder / "sbatch").write_text('#!/bin/sh\necho "$@" >> jobs\nwc -l < jobs | tr -d " "\n')
    (folder / "sbatch").chmod(0o755)
    environment = {"PATH": f"{folder}:{os.environ['PATH']}"}
    done = subprocess.run(["sh", "-c", script], cwd=folder, env=environment, capture_output=True, text=True, check=True)
    jobs = (folder / "jobs").read_text().splitlines()
    return done.stdout, jobs, [re.findall(r"--dependency=(\S+)", job) for job in jobs]


def test_slurm_gets_jobs_with_dependencies(tmp_path: Path) -> None:
    output, jobs, needed = submitted(make_pipeline(tmp_path), "--set", "steps.final.eval.beam=3")
    assert output == "submitted: 1 2 3 4 5\n"
    assert needed == [[], [], ["afterok:1:2"], ["afterok:3:1"], ["afterok:4"]]
    assert jobs[2].endswith(
        f"--wrap {sys.executable} -P -m mt pipeline run pipeline.yaml --step translated --runs runs "
        "--set steps.final.eval.beam=3"
    )


def test_jobs_of_similar_names_do_not_wait_for_each_other(tmp_path: Path) -> None:
    clean = "{clean: {config: tiny.yaml, keep: [wrong-language]}}"
    text = "data.train: {source: {step: a-b, file: train.en}, target: {step: a-b, file: train.xx}}"
    last = f"{{train: {{config: tiny.yaml, set: {{{text}}}}}}}"
    pipeline = f"name: tiny-student\nsteps:\n  a-b: {clean}\n  a_2d_b: {clean}\n  last: {last}\n"
    _, _, needed = submitted(make_pipeline(tmp_path, pipeline))
    assert needed == [[], [], ["afterok:1"]]


def test_a_failed_step_names_itself_and_the_reason(copy: Path) -> None:
    runs = copy / "runs" / "tiny-student"
    shutil.rmtree(runs / "student")
    (runs / "translated" / "translations.txt").unlink()
    (runs / "translated" / "translations.txt").mkdir()
    done = run(copy, "--jobs", "2", code=2)
    assert "pipeline.yaml:15: step translated failed: " in done.stderr
    assert "translations.txt: this is a folder, not a file" in done.stderr
    assert "student: mt train" not in done.stderr


def test_all_failures_are_named_and_reported(copy: Path) -> None:
    model = "model: runs/tiny-student/teacher_1, input: test.en, greedy: true"
    steps = "".join(f"  {name}: {{distill: {{{model}}}}}\n" for name in ("one", "two"))
    (copy / "pipeline.yaml").write_text(f"name: both\nsteps:\n{steps}")
    for name in ("one", "two"):
        (copy / "runs" / "both" / name / "translations.txt").mkdir(parents=True)
    done = run(copy, "--jobs", "2", code=2)
    error = done.stderr[done.stderr.index("mt: ") :]
    assert "pipeline.yaml:3: step one failed: " in error
    assert "pipeline.yaml:4: step two failed: " in error
    assert "0 of 2 steps are done" in (copy / "runs" / "both" / "report.html").read_text()


def test_new_scores_leave_notes_beside_them(copy: Path) -> None:
    final = copy / "runs" / "tiny-student" / "final"
    (final / "notes.txt").write_text("mine")
    run(copy, "--set", "steps.final.eval.beam=3")
    for name in ("test.json", "test.beam"):  # as of another test set
        (final / name).write_text("{}")
    run(copy, "--set", "steps.final.eval.beam=4")
    assert (final / "notes.txt").read_text() == "mine"
    assert not (final / "test.json").exists()
    assert not (final / "test.beam").exists()


def test_scorers_of_an_earlier_text_are_trained_again(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(copy)
    (copy / "pipeline.yaml").write_text(f"{TEACHERS}  own: {{score: {{config: tiny.yaml, train: true}}}}\n")
    plan = read_plan("pipeline.yaml")
    own = plan.steps["own"]
    note_attempt(plan, own, "before", 1.0, text="of another text")
    for name in ("en-xx", "notes"):
        (own.output / name).mkdir(parents=True)
        (own.output / name / "config.yaml").write_text("name: earlier")
    with pytest.raises(MtError, match="own failed"):  # since notes are there
        execution.execute(plan, jobs=1, only="own")
    assert [path.name for path in own.output.iterdir()] == ["notes"]


@pytest.mark.slow
def test_ctrl_c_does_not_hide_a_failure(copy: Path) -> None:
    long = "training.max_steps: 100000, training.report: false"
    model = "model: runs/tiny-student/teacher_1, input: test.en, greedy: true"
    steps = f"one: {{distill: {{{model}}}}}, two: {{train: {{config: tiny.yaml, set: {{{long}}}}}}}"
    (copy / "pipeline.yaml").write_text(f"name: both\nsteps: {{{steps}}}\n")
    runs = copy / "runs" / "both"
    (runs / "one" / "translations.txt").mkdir(parents=True)
    command = Command("train", "--config", "pipeline.yaml", "--jobs", "2", cwd=copy)
    record = runs / ".pipeline" / "one.attempts"
    while not record.exists() or len(record.read_text().splitlines()) < 2:
        assert command.process.is_alive()
        time.sleep(0.05)
    command.signal(signal.SIGINT)
    done = command.wait()
    assert done.code == 130
    assert "was stopped" in done.stderr
    assert "step one failed: " in done.stderr
    assert (runs / "report.html").is_file()


def test_a_step_runs_with_the_configuration_of_the_plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    steps = "steps: {kept: {clean: {config: tiny.yaml, set: {seed: 3}, keep: [wrong-language]}}}"
    make_pipeline(tmp_path, f"name: tiny-student\n{steps}\n")
    plan = read_plan("pipeline.yaml")
    edited = Path("tiny.yaml").read_text().replace("train: {source: train.en, target: train.xx}", "train: 3")
    Path("tiny.yaml").write_text(edited)
    execution.execute(plan, jobs=1)
    assert states_of(plan) == {"kept": "done"}
    assert (plan.steps["kept"].output / "train.en").is_file()


def test_a_report_does_not_read_the_pipeline_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(make_pipeline(tmp_path))
    plan = read_plan("pipeline.yaml")
    Path("pipeline.yaml").unlink()
    assert "teacher_2:\n    train: {config: tiny.yaml" in Path(write_report(plan)).read_text()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a full disk")
def test_a_full_disk_under_its_log_does_not_end_a_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(make_pipeline(tmp_path))
    plan = read_plan("pipeline.yaml")
    plan.records.mkdir(parents=True)
    (plan.records / "final.log").symlink_to("/dev/full")
    step = dataclasses.replace(plan.steps["final"], words=("--version",))
    with StopRequest() as stop, Path("lock").open("w") as lock:
        execution._Runner(plan, 1, stop)._run_command(step, "key", {}, lock.fileno())
    assert attempts(tmp_path, "final")[-1]["seconds"] > 0


@pytest.mark.skipif(not hasattr(os, "waitid"), reason="the system cannot wait without reaping")
def test_a_signal_to_a_command_that_has_ended_does_not_lose_its_time() -> None:
    process = subprocess.Popen([sys.executable, "-c", "sum(range(10**6))"])
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    execution._send_signal(process, signal.SIGTERM)
    assert execution._wait(process) > 0
    assert process.returncode == 0


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=str)
def test_a_signal_stops_all_commands_cleanly(number: signal.Signals, tmp_path: Path) -> None:
    slow = TEACHERS.replace("max_steps: 8", "max_steps: 100000").replace("validate_every: 4", "validate_every: 10000")
    folder = make_pipeline(tmp_path, slow)
    records = folder / "runs" / "tiny-student" / ".pipeline"
    records.mkdir(parents=True)
    (records / ".timings.json").write_text("{}")
    command = Command("train", "--config", "pipeline.yaml", "--jobs", "2", cwd=folder)
    logs = [records / f"teacher_{n}.log" for n in (1, 2)]
    deadline = time.monotonic() + 120
    while not all(log.is_file() and "step 4," in log.read_text() for log in logs):
        assert time.monotonic() < deadline
        assert command.process.exitcode is None, command.wait().stderr
        time.sleep(0.05)
    children = commands_of(command.process.pid or 0)
    command.signal(number)
    done = command.wait()
    assert done.code == 128 + number
    assert "pipeline tiny-student was stopped" in done.stderr
    assert len(children) >= 2
    assert not any(Path(f"/proc/{child}").exists() for child in children)
    for log in logs:
        assert "saving a checkpoint and stopping" in log.read_text()


@pytest.mark.slow
def test_kills_change_no_byte(finished: Path, tmp_path: Path) -> None:
    folder = make_pipeline(tmp_path)
    assert run_with_kills(folder, kills=2, seed=4, longest=9) >= 1
    assert products(folder) == products(finished)
    assert len(products(folder)) == 8


@pytest.mark.slow
def test_twenty_kills_over_all_kinds_of_steps_change_no_byte(tmp_path: Path) -> None:
    whole, killed = (tmp_path / name for name in ("whole", "killed"))
    for folder in (whole, killed):
        folder.mkdir()
        make_pipeline(folder, WHOLE)
    run(whole, "--jobs", "2")
    assert run_with_kills(killed, kills=20, seed=1, longest=2.5) >= 10
    assert products(killed) == products(whole)
    assert len(products(whole)) == 14


def test_a_step_gets_the_gpu_with_the_fewest_running_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(make_pipeline(tmp_path))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,5")
    with StopRequest() as stop, contextlib.ExitStack() as running:
        runner = execution._Runner(read_plan("pipeline.yaml"), 4, stop)
        gpus = [running.enter_context(runner._own_gpu())]
        with runner._own_gpu() as ended:
            gpus.append(ended)
        gpus += [running.enter_context(runner._own_gpu()) for _ in range(2)]
    assert [gpu["CUDA_VISIBLE_DEVICES"] for gpu in gpus] == ["3", "5", "5", "3"]


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc").is_dir(), reason="reads the environment of processes in /proc")
def test_steps_side_by_side_share_the_gpus(tmp_path: Path) -> None:
    folder = make_pipeline(tmp_path, TEACHERS.replace("max_steps: 8", "max_steps: 2000"))
    command = Command("train", "--config", "pipeline.yaml", "--jobs", "2", cwd=folder, CUDA_VISIBLE_DEVICES="3,5")
    seen: set[str] = set()
    deadline = time.monotonic() + 120
    while len(seen) < 2 and time.monotonic() < deadline:
        for child in commands_of(command.process.pid or 0):
            with contextlib.suppress(OSError):
                seen.update(re.findall(r"CUDA_VISIBLE_DEVICES=([^\0]*)", Path(f"/proc/{child}/environ").read_text()))
        time.sleep(0.1)
    command.signal(signal.SIGTERM)
    command.wait()
    assert seen == {"3", "5"}, "each of the two teachers has one of its own"
