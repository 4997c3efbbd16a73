"""The verdict in words, of real runs whose files say something else each time."""

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from command import mt
from data_helpers import write_lines
from html_helpers import checked
from mt.api.runs import Run
from mt.config import dump_config, parse_config
from mt.errors import InputError
from mt.extras.reporting.report import report_html
from mt.extras.reporting.run_data import RunData
from mt.extras.reporting.verdict import BANDS, CHECKS, Verdict, judge
from mt.storage.run_dir import RunDir

PAGE = Path(__file__).parents[3] / "docs" / "quality.md"


@pytest.fixture
def run(trained: Path, tmp_path: Path) -> RunDir:
    """A copy of a finished run of 24 steps, whose verdict would be a good one: no check holds."""
    shutil.copytree(trained / "runs" / "tiny", tmp_path / "runs" / "tiny")
    run = RunDir(tmp_path / "runs" / "tiny")
    references = (run.scores / "test.reference").read_text()
    for method in ("greedy", "beam"):
        (run.scores / f"test.{method}").write_text(references)
    rewrite_scores(run, bleu=35.0, length_ratio=1.0)
    rewrite_curve(run, [(8, 30.0), (16, 34.6), (24, 35.0)], epoch=40)
    return run


def rewrite_scores(run: RunDir, **values: float) -> None:
    path = run.scores / "test.json"
    document = json.loads(path.read_text())
    document["results"] = [{**result, **values} for result in document["results"]]
    path.write_text(json.dumps(document))


def rewrite_curve(run: RunDir, curve: list[tuple[int, float]], epoch: int) -> None:
    events: list[dict[str, Any]] = [{"event": "start", "step": 0}]
    events += [
        {"event": "validation", "step": step, "epoch": epoch, "bleu": bleu, "loss": step} for step, bleu in curve
    ]
    run.metrics.write_text("".join(json.dumps(event) + "\n" for event in events))


def rewrite_hypotheses(run: RunDir, *lines: str) -> None:
    """Replace the first translations."""
    path = run.scores / "test.beam"
    rest = path.read_text().splitlines()[len(lines) :]
    write_lines(path, (*lines, *rest))


def verdict_of(run: RunDir) -> Verdict:
    verdict = judge(RunData(run))
    assert verdict is not None
    return verdict


def reasons_of(run: RunDir) -> list[str]:
    return [check.reason for check in verdict_of(run).reasons]


@pytest.mark.parametrize(
    ("bleu", "words"),
    [
        (9.9, "of little use yet"),
        (10.0, "the gist is hard to get"),
        (29.9, "usable for the gist"),
        (49.9, "good"),
        (60.0, "only on formulaic text"),
        (100.0, "only on formulaic text"),
    ],
)
def test_bleu_in_words(run: RunDir, bleu: float, words: str) -> None:
    rewrite_scores(run, bleu=bleu)
    first = verdict_of(run).lines()[0]
    assert words in first
    assert f"BLEU {bleu:.1f}" in first
    assert "BLEU on other texts does not compare" in first


def test_without_a_reason_it_says_to_read(run: RunDir) -> None:
    verdict = verdict_of(run)
    assert verdict.reasons == []
    assert verdict.lines()[1:] == [f"next: {verdict.advice}"]
    assert "BLEU compares words, not meaning" in verdict.advice


def test_a_model_worse_than_its_start_is_reported(run: RunDir) -> None:
    rewrite_curve(run, [(0, 36.5), (8, 30.0), (16, 34.6), (24, 35.0)], epoch=40)
    [reason] = reasons_of(run)
    assert reason == "on the validation text the model it started from was better, by 1.5 BLEU"
    assert verdict_of(run).advice.startswith("keep that model")
    rewrite_curve(run, [(0, 34.9), (8, 30.0), (16, 34.6), (24, 35.0)], epoch=40)
    assert reasons_of(run) == []


def test_little_text_and_a_plateau(run: RunDir) -> None:
    rewrite_scores(run, bleu=12.0)
    pairs, plateau = reasons_of(run)
    assert pairs.startswith("282 training pairs are few")
    assert plateau == "BLEU had stopped rising"
    assert verdict_of(run).advice.startswith("more pairs")
    counts = json.loads(run.prepared_counts.read_text())
    counts["pairs"]["train"] = 30_000
    run.prepared_counts.write_text(json.dumps(counts))
    assert reasons_of(run) == ["BLEU had stopped rising"]


def test_few_passes_and_a_rising_curve_ask_for_more_steps(run: RunDir) -> None:
    rewrite_scores(run, bleu=22.0)
    rewrite_curve(run, [(8, 10.0), (16, 19.0), (24, 21.5)], epoch=0)
    passes, rising = reasons_of(run)
    assert passes.startswith("complete passes over the text: 0")
    assert rising == "BLEU was still rising, by 2.5 in the last quarter of the training"
    assert verdict_of(run).advice.endswith("--set training.max_steps=480"), "about 20 passes"
    rewrite_curve(run, [(8, 10.0), (16, 19.0), (24, 21.5)], epoch=20)
    assert verdict_of(run).advice.endswith("--set training.max_steps=48"), "twice as many steps"
    rewrite_curve(run, [(24, 21.5)], epoch=40)  # a single validation says nothing of a curve
    assert reasons_of(run) == []


def test_a_training_that_ended_with_an_epoch_completed_it(run: RunDir) -> None:
    rewrite_scores(run, bleu=22.0)
    rewrite_curve(run, [(8, 10.0), (16, 19.0), (24, 21.5)], epoch=4)
    assert reasons_of(run)[0].startswith("complete passes over the text: 4")
    with run.metrics.open("a") as file:
        file.write('{"event": "done", "step": 24, "passes": 5}\n')
    assert reasons_of(run)[0].startswith("BLEU was still rising")


def test_passes_say_nothing_about_a_corpus_of_unknown_size(run: RunDir) -> None:
    rewrite_scores(run, bleu=22.0)
    rewrite_curve(run, [(8, 10.0), (16, 19.0), (24, 21.5)], epoch=0)
    shutil.rmtree(run.root / "data")
    (reason,) = reasons_of(run)
    assert reason.startswith("BLEU was still rising")
    assert verdict_of(run).advice.endswith("--set training.max_steps=48"), "twice as many steps"


@pytest.mark.parametrize(
    ("changes", "lifted"),
    [
        ({"max_steps": 24}, []),
        ({"max_steps": 24, "minutes": 5}, ["minutes"]),
        ({"max_steps": 90, "minutes": 5, "max_epochs": 2}, ["minutes", "max_epochs"]),
        ({"max_steps": 90, "patience": 1}, ["patience"]),
        ({"max_steps": 90, "patience": 1, "minutes": 5}, ["minutes", "patience"]),
        ({"max_steps": 24, "patience": 2}, []),
        ({"max_steps": 90, "patience": 2, "best_metric": "loss", "max_epochs": 2}, ["max_epochs", "patience"]),
    ],
)
def test_going_on_lifts_the_limits_that_ended_the_training(run: RunDir, changes: dict, lifted: list[str]) -> None:
    config = parse_config(run.config.read_text(), "x.yaml", [f"training.{key}={n}" for key, n in changes.items()])
    run.config.write_text(dump_config(config))
    rewrite_scores(run, bleu=22.0)
    rewrite_curve(run, [(8, 10.0), (16, 21.5), (24, 20.5)], epoch=0)  # and the loss rises
    *others, last = re.findall(r"--set training\.(\S+)", verdict_of(run).advice)
    assert (others, last) == ([f"{key}=null" for key in lifted], "max_steps=480")
    parse_config(dump_config(config), "x.yaml", [f"training.{each}" for each in (*others, last)])


@pytest.mark.parametrize(("ratio", "shown"), [(0.82, "82% of the length"), (1.25, "125% of the length")])
def test_length(run: RunDir, ratio: float, shown: str) -> None:
    rewrite_scores(run, length_ratio=ratio)
    [reason] = reasons_of(run)
    assert shown in reason
    command = f"mt eval --model {run.root} --tune-length-penalty"
    assert verdict_of(run).advice == f"another length penalty: {command}"
    moved = run.root.rename(run.root.with_name("a b"))
    assert f"mt eval --model '{moved}' --tune" in verdict_of(RunDir(moved)).advice


def test_a_damaged_score_file_names_the_command_for_its_run(run: RunDir) -> None:
    moved = RunDir(run.root.rename(run.root.with_name("a b")))
    (moved.scores / "test.json").write_text("{}")
    with pytest.raises(InputError) as caught:
        RunData(moved)
    assert caught.value.hint == f"score it again: mt eval --model '{moved.root}'"


def test_copies_and_loops(run: RunDir) -> None:
    source = (run.scores / "test.source").read_text().splitlines()[0]
    rewrite_hypotheses(run, source, "p of the of the of the of the")
    assert reasons_of(run) == [
        "8 % of the translations repeat the source",
        "8 % of the translations repeat a phrase again and again",
    ]
    assert "mt data clean" in verdict_of(run).advice


def test_translations_in_another_language(run: RunDir) -> None:
    rewrite_scores(run, wrong_language=0.9)
    assert reasons_of(run) == []
    rewrite_scores(run, wrong_language=4.2)
    assert reasons_of(run) == ["4 % of the translations are in another language than asked for"]


def test_what_a_reference_has_too_is_no_fault(run: RunDir) -> None:
    """Names are copied, songs repeat themselves; numbers with many zeros are no loop."""
    for suffix in ("reference", "beam"):
        lines = (run.scores / f"test.{suffix}").read_text().splitlines()
        lines[:2] = [(run.scores / "test.source").read_text().splitlines()[0], "la la la la la"]
        write_lines(run.scores / f"test.{suffix}", lines)
    lines = (run.scores / "test.beam").read_text().splitlines()
    rewrite_hypotheses(run, *lines[:2], "1000000000 ........ no no no")
    assert reasons_of(run) == []


def test_the_built_in_corpus_says_nothing_about_real_text(run: RunDir) -> None:
    config = run.config.read_text()
    sources = re.compile(r"^  test: .*$", re.MULTILINE)
    run.config.write_text(sources.sub("  test: [{builtin: phrasebook, split: test}]", config))
    rewrite_scores(run, bleu=91.0)
    first, reasons, following = verdict_of(run).lines()
    assert first == (
        "verdict: BLEU 91.0: a demonstration, not a measure of quality "
        "(a score on generated sentences says nothing about real text)"
    )
    assert "generated from templates" in reasons
    assert following == "next: your own text: mt init --help"


def test_it_is_silent_without_a_score_or_when_the_score_is_old(run: RunDir) -> None:
    assert len(Run(run.root).verdict) == 2
    with run.metrics.open("a") as file:
        file.write('{"event": "resume", "step": 24}\n{"event": "train", "step": 28, "epoch": 41}\n')
    assert Run(run.root).verdict == []
    rewrite_curve(run, [(24, 35.0)], epoch=40)
    assert Run(run.root).verdict != []
    rewrite_scores(run, bleu=None)  # type: ignore[arg-type]
    assert Run(run.root).verdict == []
    assert "No test set was scored with BLEU" in checked(report_html(RunData(run))).text
    (run.scores / "test.json").write_text("{}")
    assert Run(run.root).verdict == [], "a damaged run is no bug"
    shutil.rmtree(run.scores)
    assert Run(run.root).verdict == []


def test_a_training_and_an_evaluation_end_with_it(tiny: Path) -> None:
    done = mt("train", "--config", "tiny.yaml", cwd=tiny)
    for text in (done.stderr, mt("eval", cwd=tiny).stderr):
        lines = [line[9:] for line in text.splitlines() if re.match(r"\S+ (verdict|reasons|next): ", line)]
        assert lines[:3] == Run(tiny / "runs" / "tiny").verdict
    assert "verdict" not in done.stdout
    assert "verdict" not in mt("eval", "--output", "elsewhere", cwd=tiny).stderr
    assert "verdict" not in mt("eval", "--beam", "3", cwd=tiny).stderr, "these are not the scores that it is about"


def test_the_report_shows_it_with_sources(run: RunDir) -> None:
    rewrite_scores(run, bleu=12.0)
    text = checked(report_html(RunData(run))).text
    for part in (
        "12.0",
        "the gist is hard to get",
        "282 training pairs are few",
        "Sennrich and Zhang 2019",
        "Next: more pairs",
    ):
        assert part in text


def test_every_rule_and_its_source_is_in_the_documentation() -> None:
    page = " ".join(PAGE.read_text().split())
    for _, words in BANDS[:-1]:
        assert words in page
    for check in CHECKS:
        for source in check.source.split("; "):
            name, _, year = source.rpartition(" ")
            if year.isdigit():
                assert re.search(rf"{re.escape(name)}[^.]{{0,5}}{year}", page), source
