"""`mt report`: one HTML file with all of a training, and nothing from elsewhere."""

import json
import os
import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from command import mt
from html_helpers import checked
from mt.config import load_config
from mt.errors import InputError
from mt.extras.reporting.facts import read_facts
from mt.extras.reporting.report import _by_length, report_html
from mt.storage.run_dir import RunDir
from resume_helpers import events


@pytest.fixture
def run(two_languages: Path, tmp_path: Path) -> Path:
    """A copy of a finished run."""
    shutil.copytree(two_languages / "runs" / "two", tmp_path / "runs" / "two")
    return tmp_path / "runs" / "two"


def test_a_report_has_what_there_is_to_see(run: Path) -> None:
    assert mt("report", cwd=run.parents[1]).stdout == "runs/two/report.html\n"
    content = (run / "report.html").read_text()
    found = checked(content)
    assert len(content) < 5_000_000
    headings = ("Result", "Training", "Cost", "Data", "Test set", "Attention", "Configuration")
    for heading in headings:
        assert heading in found.text
    scores = json.loads((run / "eval" / "test.json").read_text())
    for result in scores["results"]:
        assert f"{result['bleu']:.1f}" in found.text
        assert result["signature"] in found.text
    assert "learning_rate: 0.005" in found.text
    assert "Worst of test.xx by chrF (beam)" in found.text
    assert content.count("<svg") >= 6
    assert content.count("data-maps=") == 1
    assert content == report_html(read_facts(RunDir(run))), "the same run gives the same report"


def test_it_is_written_at_the_end_of_a_training_and_once(tiny: Path) -> None:
    def train() -> str:
        return mt("train", "--config", "tiny.yaml", "--set", "training.report=true", cwd=tiny).stdout

    assert "report: runs/tiny/report.html" in train()
    path = tiny / "runs" / "tiny" / "report.html"
    checked(path.read_text())
    written = path.stat().st_mtime_ns
    assert "report: runs/tiny/report.html" in train()
    assert path.stat().st_mtime_ns == written
    os.utime(path, (0, 0))  # as after a clock that was ahead was set right
    train()
    assert path.stat().st_mtime_ns == 0
    # The second had nothing to do, so it is not counted, and what the first cost is still known.
    assert "tokens trained on" in checked(report_html(read_facts(RunDir(tiny / "runs" / "tiny")))).text
    assert not [event for event in events(tiny) if event["event"] == "resume"]


def test_it_is_written_again_for_another_model(tiny: Path) -> None:
    """Whatever the clock said when they were written."""
    command = ["train", "--config", "tiny.yaml", "--set", "training.report=true"]
    mt(*command, cwd=tiny)
    path = tiny / "runs" / "tiny" / "report.html"
    os.utime(path, (2**32, 2**32))
    mt(*command, "--set", "training.max_steps=32", cwd=tiny)
    assert "max_steps: 32" in checked(path.read_text()).text


def test_it_does_not_replace_a_folder(run: Path) -> None:
    said = mt("report", "--output", run, cwd=run.parents[1], code=2).stderr
    assert f"--output {run}: this is a folder, not a file" in said
    said = mt("report", "--output", "-", cwd=run.parents[1], code=2).stderr
    assert "--output -: this goes to a file, not to the standard output" in said


def test_a_training_under_way_has_a_report(run: Path) -> None:
    shutil.rmtree(run / "model")
    shutil.rmtree(run / "eval")
    found = checked(report_html(read_facts(RunDir(run))))
    assert "has not finished; it is at step 300 of at most 300" in found.text
    assert "Attention" not in found.text


def test_a_finished_training_that_goes_on_says_so(run: Path) -> None:
    more = [{"event": "resume", "step": 300, "time": 1.0}, {"event": "train", "step": 360, "time": 2.0, "loss": 1.0}]
    with (run / "metrics.jsonl").open("a") as file:
        file.write("".join(json.dumps(event) + "\n" for event in more))
    found = checked(report_html(read_facts(RunDir(run)))).text
    assert "This training goes on; it is at step 360 of at most 300" in found
    assert "The scores are those of the model made after step 300." in found
    assert "time in training" not in found


def test_a_run_whose_text_was_removed_to_save_space_has_a_report(run: Path) -> None:
    shutil.rmtree(run / "data")
    found = checked(report_html(read_facts(RunDir(run)))).text
    assert "BLEU" in found
    assert "split after cleaning" not in found


def test_scores_that_are_not_whole_are_named(run: Path) -> None:
    scores = json.loads((run / "eval" / "test.json").read_text())
    del scores["results"][0]["bleu"]
    (run / "eval" / "test.json").write_text(json.dumps(scores))
    with pytest.raises(InputError, match=re.escape(f"{run / 'eval' / 'test.json'}: damaged")):
        read_facts(RunDir(run))


def test_a_report_that_cannot_be_written_costs_no_summary(tiny: Path) -> None:
    (tiny / "runs" / "tiny" / "report.html").mkdir(parents=True)
    done = mt("train", "--config", "tiny.yaml", "--set", "training.report=true", cwd=tiny)
    assert "trained 24 steps" in done.stdout
    assert "report: not written: " in done.stdout


def test_more_steps_that_are_no_better_are_in_the_report_and_the_model(tiny: Path) -> None:
    command = ["train", "--config", "tiny.yaml", "--set", "training.report=true", "--set"]
    mt(*command, "training.validate_every=8", cwd=tiny)
    best = "training.learning_rate=1e-9"  # it stays where it is
    for settings in ("training.max_steps=32", "training.max_steps=40"):
        done = mt(*command, settings, "--set", "training.validate_every=8", "--set", best, cwd=tiny)
    run = RunDir(tiny / "runs" / "tiny")
    manifest = json.loads(run.model.manifest.read_text())
    assert f"weights: {manifest['weights']}" in done.stdout
    assert manifest["steps"] == 40
    assert "40 steps" in run.model.readme.read_text()
    assert [event["step"] for event in events(tiny) if event["event"] == "done"] == [24, 32, 40]
    assert "max_steps: 40" in checked(run.report.read_text()).text


def test_steps_that_a_crash_lost_are_left_out(run: Path) -> None:
    events = [
        {"event": "start", "step": 0},
        {"event": "train", "step": 10, "loss": 5.0},
        {"event": "train", "step": 20, "loss": 77.0},
        {"event": "resume", "step": 10},
        {"event": "train", "step": 20, "loss": 3.0},
    ]
    torn = '{"event": "validation", "samples": ["д'.encode()[:-1]
    (run / "metrics.jsonl").write_bytes("".join(json.dumps(event) + "\n" for event in events).encode() + torn + b"\n")
    facts = read_facts(RunDir(run))
    assert [event["loss"] for event in facts.of_kind("train")] == [5.0, 3.0]


def test_a_validation_that_was_made_again_counts_once(run: Path) -> None:
    events = [
        {"event": "start", "step": 0},
        {"event": "validation", "step": 10, "bleu": 5.0},
        {"event": "resume", "step": 10},
        {"event": "validation", "step": 10, "bleu": 6.0},
    ]
    (run / "metrics.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))
    assert [event["bleu"] for event in read_facts(RunDir(run)).of_kind("validation")] == [6.0]


def test_lengths_and_bleu_are_as_the_run_has_them(run: Path) -> None:
    """Chinese has no words to count, and BLEU in the chart is the one of the table."""
    facts = read_facts(RunDir(run))
    chosen = next(test for test in facts.tests if test.scores["method"] == "beam")
    reference, hypothesis = "the cat sat on the mat", "the cat sat on the mud"
    one = replace(chosen, sources=["你好世界" * 5] * 2, references=[reference] * 2, hypotheses=[hypothesis] * 2)
    bars = {}
    for tokenize in ("13a", "char"):
        config = load_config(run / "config.yaml", [f"evaluation.bleu_tokenize={tokenize}", "data.source_lang=zh"])
        shown = _by_length(one, config)
        assert "by characters of the source" in shown
        assert "11-20" in shown or "16-20" in shown
        bars[tokenize] = shown
    assert bars["13a"] != bars["char"]


def test_text_in_a_report_is_text(run: Path) -> None:
    for name in ("test.xx.source", "test.xx.reference", "test.xx.beam"):
        path = run / "eval" / name
        path.write_text("<script>alert(1)</script> & é\n" + "".join(path.read_text().splitlines(keepends=True)[1:]))
    content = report_html(read_facts(RunDir(run)))
    assert "<script>alert" not in content
    assert "<script>alert(1)</script> & é" in checked(content).text


@pytest.mark.parametrize("name", ["config.yaml", "metrics.jsonl", "data/text/counts.json", "data/cleaning.json"])
def test_what_is_missing_is_named(run: Path, name: str) -> None:
    (run / name).unlink()
    with pytest.raises(InputError, match=re.escape(f"there is no {name} in it")):
        read_facts(RunDir(run))


@pytest.mark.parametrize("name", ["eval/test.json", "data/text/counts.json", "data/cleaning.json"])
@pytest.mark.parametrize("content", ['{"res', "[]", "7", "{}"])
def test_what_is_damaged_is_named(run: Path, name: str, content: str) -> None:
    if (name, content) == ("data/cleaning.json", "{}"):
        return  # nothing was dropped
    (run / name).write_text(content)
    if (name, content) == ("data/cleaning.json", "[]"):
        return
    with pytest.raises(InputError, match=re.escape(f"{run / name}: damaged")):
        read_facts(RunDir(run))


def test_translations_that_are_cut_off_are_named(run: Path) -> None:
    path = run / "eval" / "test.xx.beam"
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:5]))
    with pytest.raises(InputError, match="not as many lines as its source"):
        read_facts(RunDir(run))


def test_no_run_at_all(tmp_path: Path) -> None:
    assert "there is no config.yaml" in mt("report", "nowhere", cwd=tmp_path, code=2).stderr
    assert "no finished run here" in mt("report", cwd=tmp_path, code=2).stderr
