"""`mt report`: one self-contained HTML file."""

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
from mt.extras.reporting.charts import Line, line_chart
from mt.extras.reporting.html import table
from mt.extras.reporting.report import _bleu_by_length, _data, report_html
from mt.extras.reporting.run_data import RunData
from mt.storage.run_dir import RunDir
from resume_helpers import events


@pytest.fixture
def run(two_languages: Path, tmp_path: Path) -> Path:
    """Copy a finished run."""
    shutil.copytree(two_languages / "runs" / "two", tmp_path / "runs" / "two")
    return tmp_path / "runs" / "two"


def report_text(run: Path) -> str:
    return checked(report_html(RunData(RunDir(run)))).text


def test_a_report_is_complete_and_reproducible(run: Path) -> None:
    assert mt("report", cwd=run.parents[1]).stdout == "runs/two/report.html\n"
    content = (run / "report.html").read_text()
    text = checked(content).text
    assert len(content) < 5_000_000
    for heading in ("Translations", "Progress", "Training", "Scores", "Attention", "Data", "Cost", "Configuration"):
        assert heading in text
    for result in json.loads((run / "eval" / "test.json").read_text())["results"]:
        assert f"{result['bleu']:.1f}" in text
        assert result["signature"] in text
    assert "learning_rate: 0.005" in text
    assert "Worst by chrF of test.xx (beam)" in text
    assert "English to xx, yy" in text
    assert content.index("Translations</h2>") < content.index("<svg"), "translations come first"
    for folded in ("All settings", "Signatures"):
        assert f"<details><summary>{folded}" in content
    assert not re.search("<pre|<code|monospace", content)
    assert content.count("<svg") >= 6
    assert content.count("data-maps=") == 1
    assert content == report_html(RunData(RunDir(run)))


def test_a_training_writes_its_report_once_per_model(tiny: Path) -> None:
    def train(*settings: str) -> str:
        return mt("train", "--config", "tiny.yaml", "--set", "training.report=true", *settings, cwd=tiny).stdout

    assert "report: runs/tiny/report.html" in train()
    path = tiny / "runs" / "tiny" / "report.html"
    checked(path.read_text())
    written = path.stat().st_mtime_ns
    assert "report: runs/tiny/report.html" in train()
    assert path.stat().st_mtime_ns == written
    os.utime(path, (0, 0))  # as after a clock that was ahead was set right
    train()
    assert path.stat().st_mtime_ns == 0
    # The second training had nothing to do: it is not a resumption, and the cost of the first is still known.
    assert "tokens trained on" in report_text(tiny / "runs" / "tiny")
    assert not [event for event in events(tiny) if event["event"] == "resume"]
    os.utime(path, (2**32, 2**32))
    train("--set", "training.max_steps=32")
    assert "max_steps: 32" in checked(path.read_text()).text


def test_the_output_must_be_a_file_and_none_of_the_run(run: Path) -> None:
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    (run.parent / "link").symlink_to(run / "config.yaml")
    input_message = "this is an input and would be overwritten"
    for output, message in (
        (run, f"--output {run}: this is a folder, not a file"),
        ("-", "--output -: this goes to a file, not to the standard"),
        *((path, f"{path}: {input_message}") for path in ("runs/two/metrics.jsonl", "runs/two/model/MANIFEST.json")),
        ("runs/link", f"runs/link, the same file as runs/two/config.yaml: {input_message}"),
    ):
        assert message in mt("report", "--output", output, cwd=run.parents[1], code=2).stderr
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before
    for _ in range(2):
        mt("report", "--output", "runs/two/mine.html", cwd=run.parents[1])


def test_an_extended_training_has_a_report(run: Path) -> None:
    more = [{"event": "resume", "step": 300, "time": 1.0}, {"event": "train", "step": 360, "time": 2.0, "loss": 1.0}]
    with (run / "metrics.jsonl").open("a") as file:
        file.write("".join(json.dumps(event) + "\n" for event in more))
    text = report_text(run)
    assert "This training goes on; it is at step 360 of at most 300" in text
    assert "The scores are those of the model made after step 300." in text
    assert "time in training" not in text
    config = RunDir(run).config
    config.write_text(config.read_text().replace("  minutes: null", "  minutes: 5"))
    assert "This training goes on; it is at step 360. The scores" in report_text(run), "max_steps is no limit"


def test_a_run_without_its_data_or_unfinished_has_a_report(run: Path) -> None:
    (run / "data").rename(run / "removed")
    text = report_text(run)
    assert "BLEU" in text
    assert "split after cleaning" not in text
    (run / "removed").rename(run / "data")
    for folder in ("model", "eval"):
        shutil.rmtree(run / folder)
    text = report_text(run)
    assert "has not finished; it is at step 300 of at most 300" in text
    assert "Attention" not in text


def test_counts_and_lengths_are_those_of_the_encoded_text(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept, counts = (
        json.loads((run / "data" / "cleaning.json").read_text())["kept"],
        run / "data" / "text" / "counts.json",
    )
    assert "Lengths of training sentences, in tokens" in report_text(run)
    prepared = json.loads(counts.read_text())
    prepared["pairs"]["train"] = kept + 1000  # so many more are longer than max_length
    counts.write_text(json.dumps(prepared))
    monkeypatch.setattr("mt.extras.reporting.run_data._MAX_LENGTHS", -(-kept // 2))
    content = _data(RunData(RunDir(run)))
    assert f"{kept + 1000:,}" not in content
    assert f"Lengths of {-(-kept // 2):,} evenly spaced training sentences, in tokens" in content


def test_a_report_that_cannot_be_written_costs_no_summary(tiny: Path) -> None:
    (tiny / "runs" / "tiny" / "report.html").mkdir(parents=True)
    done = mt("train", "--config", "tiny.yaml", "--set", "training.report=true", cwd=tiny)
    assert "trained 24 steps" in done.stdout
    assert "report: not written: " in done.stdout


@pytest.mark.slow
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


def test_lost_steps_and_repeated_validations_are_left_out(run: Path) -> None:
    lost = [
        {"event": "start", "step": 0},
        {"event": "train", "step": 10, "loss": 5.0},
        {"event": "validation", "step": 10, "bleu": 5.0},
        {"event": "train", "step": 20, "loss": 77.0},
        {"event": "resume", "step": 10},
        {"event": "validation", "step": 10, "bleu": 6.0},
        {"event": "train", "step": 20, "loss": 3.0},
    ]
    truncated = '{"event": "validation", "samples": ["д'.encode()[:-1]
    (run / "metrics.jsonl").write_bytes(
        "".join(json.dumps(event) + "\n" for event in lost).encode() + truncated + b"\n"
    )
    data = RunData(RunDir(run))
    assert [event["loss"] for event in data.of_kind("train")] == [5.0, 3.0]
    assert [event["bleu"] for event in data.of_kind("validation")] == [6.0]


def test_bleu_by_length_uses_the_configured_units_and_tokenizer(run: Path) -> None:
    """Chinese has no words to count; the chart's BLEU is that of the table."""
    data = RunData(RunDir(run))
    chosen = next(test for test in data.tests if test.scores["method"] == "beam")
    reference, hypothesis = "the cat sat on the mat", "the cat sat on the mud"
    one = replace(chosen, sources=["你好世界" * 5] * 2, references=[reference] * 2, hypotheses=[hypothesis] * 2)
    bars = {}
    for tokenize in ("13a", "char"):
        config = load_config(run / "config.yaml", [f"evaluation.bleu_tokenize={tokenize}", "data.source_lang=zh"])
        shown = _bleu_by_length(one, config)
        assert "by characters of the source" in shown
        assert "11-20" in shown or "16-20" in shown
        bars[tokenize] = shown
    assert bars["13a"] != bars["char"]


def test_the_points_of_a_curve_have_their_values_where_they_are_drawn() -> None:
    drawing = line_chart("T", [Line("a<b", [100, 200, 4000], [0.5, 1.25, 700.0]), Line("c", [1], [1.0])], True)
    titles = re.findall(r"<title>(.*?)</title>", drawing)
    assert sorted(titles) == [*(f"a&lt;b, step {at}" for at in ("100: 0.5", "200: 1.25", "4,000: 700")), "c, step 1: 1"]
    marks = re.findall(r'<use [^>]*x="([\d.]+)" y="([\d.]+)" style="fill: var\(--line-', drawing)
    circles = re.findall(r'<circle cx="([\d.]+)" cy="([\d.]+)"', drawing)
    assert len(circles) == 4
    for circle in circles:
        assert any(all(abs(float(a) - float(b)) < 0.1 for a, b in zip(circle, mark, strict=True)) for mark in marks)
    large = line_chart("T", [Line("a", [2_500_000], [13_048.0]), Line("b", [1], [2.5e-5])])
    assert re.findall(r"<title>(.*?)</title>", large) == ["a, step 2,500,000: 13,048", "b, step 1: 2.5e-05"]
    many = line_chart("T", [Line("a", range(10_000), range(10_000))])
    assert 100 < many.count("<title>") <= 200, "a long curve is no burden"
    assert "step 9,999: 9,999" in many, "the last value is the one people look for"


def test_text_in_a_report_is_text(run: Path) -> None:
    for name in ("test.xx.source", "test.xx.reference", "test.xx.beam"):
        path = run / "eval" / name
        path.write_text("<script>alert(1)</script> & é\n" + "".join(path.read_text().splitlines(keepends=True)[1:]))
    content = report_html(RunData(RunDir(run)))
    assert "<script>alert" not in content
    assert "<script>alert(1)</script> & é" in checked(content).text


def test_names_are_text_in_attributes_and_charts_too() -> None:
    name = '"><script>alert(1)</script> $\\frac$'
    content = table([name], [["x"]]) + line_chart(name, [Line(n, [1, 2], [1.0, 2.0]) for n in (name, "b")])
    assert "<script" not in content
    assert name in checked(content).text


def check_refusal(run: Path, name: str, content: str | None, message: str) -> None:
    """Check the refusal of a run with another content of a file, or without the file."""
    before = (run / name).read_text()
    (run / name).write_text(content) if content is not None else (run / name).unlink()
    with pytest.raises(InputError, match=re.escape(message)):
        RunData(RunDir(run))
    (run / name).write_text(before)


def test_missing_and_damaged_files_are_reported(run: Path) -> None:
    for name in ("config.yaml", "metrics.jsonl", "data/text/counts.json", "data/cleaning.json"):
        check_refusal(run, name, None, f"there is no {name} in it")
    scores = json.loads((run / "eval" / "test.json").read_text())
    del scores["results"][0]["bleu"]
    broken = ['{"res', "7", "[]", "{}"]
    damaged = {"eval/test.json": [*broken, json.dumps(scores)], "data/text/counts.json": broken}
    damaged["data/cleaning.json"] = broken[:2]  # in the others no pair was counted
    for name, contents in damaged.items():
        for content in contents:
            check_refusal(run, name, content, f"{run / name}: damaged")
    lines = (run / "eval" / "test.xx.beam").read_text().splitlines(keepends=True)
    check_refusal(run, "eval/test.xx.beam", "".join(lines[:5]), "not as many lines as its source")


def test_no_run(tmp_path: Path) -> None:
    assert "there is no config.yaml" in mt("report", "nowhere", cwd=tmp_path, code=2).stderr
    (tmp_path / "file").touch()
    assert "file: a file, not a run folder" in mt("report", "file", cwd=tmp_path, code=2).stderr
    assert "no finished run here" in mt("report", cwd=tmp_path, code=2).stderr
