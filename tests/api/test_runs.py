"""Training, evaluation and runs from Python."""

import json
from pathlib import Path
from shlex import quote, split
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
import torch
import yaml

import mt
from command import mt as command
from conftest import TWO_LANGUAGES
from mt.api.corpora import in_words
from mt.api.runs import Run, next_command
from mt.api.training import _arguments, read_config
from mt.config import PairFiles, load_config
from mt.storage.run_dir import RunDir


@pytest.mark.slow
def test_a_training_from_python_is_that_of_the_command_line(
    tiny: Path, trained: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tiny)
    events: list[dict[str, Any]] = []
    content = yaml.safe_load(Path("tiny.yaml").read_text())
    run = mt.train(content, progress=lambda event: events.append(dict(event)))
    theirs = mt.Run(trained / "runs" / "tiny")
    assert run.is_finished
    assert (run.model / "model.safetensors").read_bytes() == (theirs.model / "model.safetensors").read_bytes()
    assert run.summary.splitlines()
    assert [event for event in events if event["event"] in ("train", "validation")] == [
        event for event in run.history if event["event"] in ("train", "validation")
    ]
    assert run.load().translate("a b") == theirs.load().translate("a b")
    assert run.scores == json.loads((run.path / "eval" / "test.json").read_text())["results"]
    assert run.bleu is not None
    assert run.config["training"]["max_steps"] == 24


def test_overrides_and_a_callback_that_stops(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tiny)

    def stop(event: Any) -> None:
        if event["event"] == "train" and event["step"] >= 8:
            raise RuntimeError("enough")

    overrides: dict[str, Any] = {"training": {"max_steps": 12}, "training.warmup_steps": 2}
    random = torch.get_rng_state()
    with pytest.raises(RuntimeError, match="enough"):
        mt.train("tiny.yaml", progress=stop, **overrides)
    [unfinished] = mt.list_runs()
    assert torch.equal(torch.get_rng_state(), random)
    assert (unfinished.name, unfinished.is_finished, unfinished.scores, unfinished.bleu) == ("tiny", False, [], None)
    run = mt.train("tiny.yaml", **overrides)
    assert (run.steps, run.config["training"]["warmup_steps"]) == (12, 2)
    assert torch.equal(torch.get_rng_state(), random)
    assert [event["step"] for event in run.history if event["event"] == "resume"]


def test_values_that_yaml_does_not_know() -> None:
    data = {"source_lang": "en", "target_lang": ("de", "nl"), "root": Path("a/я😀"), "max_ratio": np.float32(100)}
    sources = [{"source": "a", "target": Path("b"), "target_lang": code} for code in ("de", "nl")]
    read = read_config({"name": "x", "data": MappingProxyType({**data, "train": sources})}, ["seed=2"]).data
    assert (read.root, read.max_ratio, read.target_lang) == ("a/я😀", 100.0, ("de", "nl"))
    assert [source.name for source in read.train] == ["a and b"] * 2


def test_an_override_may_be_a_string() -> None:
    data = {"source_lang": "en", "target_lang": "de", "train": {"source": "a", "target": "b"}}
    assert read_config({"name": "x", "data": data}, "seed=2").seed == 2
    assert in_words("x.yaml", "seed=2") == "x.yaml --set seed=2"


def test_values_of_sections_are_merged_and_others_replaced() -> None:
    data = {"source_lang": "en", "target_lang": "de", "train": {"source": "a", "target": "b"}}
    data |= {"valid": {"file": "a.csv", "delimiter": ";"}}
    valid = MappingProxyType({"source": "c", "target": "d"})
    changed: dict[str, Any] = {"training": {}, "data": {"valid": valid}, "model": MappingProxyType({"d_ff": 8})}
    config = read_config({"name": "x", "data": data, "training": {"max_steps": 7}}, _arguments(changed))
    assert (config.training.max_steps, config.model.d_ff) == (7, 8)
    assert config.data.valid == (PairFiles(source="c", target="d"),)


def test_wrong_configurations(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tiny)
    with pytest.raises(mt.InputError, match=r"configuration.*\n.*training.lr"):
        mt.train({**yaml.safe_load(Path("tiny.yaml").read_text()), "training": {"lr": 1}})
    with pytest.raises(mt.InputError, match=r'--set training\.max_steps="x"'):
        mt.train("tiny.yaml", training={"max_steps": "x"})
    with pytest.raises(mt.InputError, match=r"data\.1: unknown key"):
        mt.train("tiny.yaml", data={1: 2})
    with pytest.raises(mt.InputError, match="no such file"):
        mt.train("none.yaml")


def test_a_training_leaves_no_switch_of_torch(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tiny)
    (tiny / "valid.xx").write_text("k\n")
    before = torch.utils.deterministic.fill_uninitialized_memory  # type: ignore[attr-defined]
    with pytest.raises(mt.InputError, match=r"valid\.xx has 1"):
        mt.train("tiny.yaml", training={"deterministic": True})
    assert not torch.are_deterministic_algorithms_enabled()
    assert torch.utils.deterministic.fill_uninitialized_memory == before  # type: ignore[attr-defined]


@pytest.mark.parametrize("use", [mt.load, mt.evaluate, mt.evaluate_robustness])
def test_an_empty_list_is_not_the_newest_run(use: Any, tmp_path: Path) -> None:
    with pytest.raises(mt.InputError, match="an empty list names no model"):
        use([], runs=tmp_path)


def test_the_folder_of_a_run_may_be_a_string(tmp_path: Path) -> None:
    RunDir(tmp_path).scores.mkdir()
    score = {"method": "beam", "target_lang": "xx", "bleu": 1.0}
    (RunDir(tmp_path).scores / "test.json").write_text(json.dumps({"results": [score]}))
    run = Run(str(tmp_path))  # type: ignore[arg-type]
    assert (run.name, run.model, run.scores) == (tmp_path.name, Run(tmp_path).model, [score])
    assert run == Run(tmp_path)


def test_an_evaluation_from_python_is_that_of_the_command_line(trained: Path, tmp_path: Path) -> None:
    run, output = trained / "runs" / "tiny", tmp_path / "eval"
    found = mt.evaluate(run, source=trained / "valid.en", reference=trained / "valid.xx", output=output)
    files = ("--source", trained / "valid.en", "--reference", trained / "valid.xx", "--output", tmp_path / "theirs")
    theirs = json.loads(command("eval", "--model", run, *files, "--json", cwd=trained).stdout)
    ours = found.as_dict()
    for result in (*ours["results"], *theirs["results"]):
        del result["sentences_per_second"]
    assert ours == theirs
    assert found["beam"]["bleu"] == ours["results"][1]["bleu"]
    assert "BLEU" in str(found)
    assert not output.exists()
    found.write()
    assert (output / "valid.beam").read_bytes() == (tmp_path / "theirs" / "valid.beam").read_bytes()
    with pytest.raises(mt.InputError, match="source and reference go together"):
        mt.evaluate(run, source=trained / "valid.en")
    with pytest.raises(KeyError):
        found["sample"]
    chosen = mt.evaluate(run, source=trained / "valid.en", reference=trained / "valid.xx", metrics="chrf")["beam"]
    assert (chosen["bleu"], chosen["chrf"]) == (None, found["beam"]["chrf"])
    with pytest.raises(mt.InputError, match="metrics: 'BLEU' is none of bleu"):
        mt.evaluate(run, metrics=["BLEU"])


def test_searches_from_python_act_or_are_refused(two_languages: Path, tmp_path: Path) -> None:
    run, files = two_languages / "runs" / "two", {"source": tmp_path / "a", "reference": tmp_path / "b"}
    for path, letter in zip(files.values(), "ak", strict=True):
        path.write_text(f"{letter} {letter} {letter}\n")
    for size, is_repeated in ((0, True), (1, False)):
        _, beam = mt.evaluate(run, **files, to="xx", no_repeat_ngram_size=size).results
        [words] = map(str.split, beam.translated.hypotheses)
        assert (len(set(words)) < len(words)) == is_repeated
    with pytest.raises(mt.InputError, match="mbr has no effect here"):
        mt.evaluate_robustness(run, **files, to="xx", mbr=2)
    with pytest.raises(mt.InputError, match="mbr has no effect here"):
        mt.synthesize(tmp_path / "a", tmp_path / "out", run, to="xx", mbr=2)


def test_the_table_of_runs(trained: Path, tiny: Path) -> None:
    listed = command("runs", cwd=trained).stdout.splitlines()
    assert listed[0].split()[:2] == ["name", "languages"]
    [run] = mt.list_runs(trained / "runs")
    row = listed[1].split()
    assert row[:2] == ["tiny", "en-xx"]
    assert f"{run.bleu:.1f}" in row
    assert "finished" in row
    assert command("runs", cwd=tiny).stdout.strip() == "no run in runs"
    assert mt.list_runs(tiny / "none") == []
    facts = json.loads(command("runs", "--json", cwd=trained).stdout)
    assert facts == [run.facts()]


def test_a_run_is_shown(trained: Path) -> None:
    shown = command("runs", "show", "tiny", cwd=trained).stdout
    assert "en to xx" in shown
    assert "BLEU" in shown
    assert str(Path("runs", "tiny", "model")) in shown
    done = command("runs", "show", "other", cwd=trained, code=2)
    assert "other: there is no such run" in done.stderr
    assert "known: tiny" in done.stderr
    given = ("--runs", trained / "runs")
    assert "en to xx" in command("runs", *given, "show", "tiny", cwd=trained.parent, MT_RUNS="elsewhere").stdout
    assert command("runs", "show", ".", cwd=trained / "runs" / "tiny").stdout.startswith("tiny: en to xx")
    assert "--json belongs to the list" in command("runs", "--json", "show", "tiny", cwd=trained, code=2).stderr


def test_the_next_command_of_a_run_can_be_typed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MT_RUNS", raising=False)
    for runs, option in (("runs", ""), ("my runs", f" --runs {quote(str(tmp_path / 'my runs'))}")):
        run = RunDir(Path(runs, "two"))
        run.root.mkdir(parents=True)
        run.config.write_text(TWO_LANGUAGES)
        unfinished = next_command(Run(run.root), "unfinished")
        assert unfinished.endswith(f"mt train --config {quote(str(run.config))}{option}")
        finished = next_command(Run(run.root), "finished")
        assert finished == f'mt translate --model {quote(str(run.root))} --to xx "..."'
    monkeypatch.setenv("MT_RUNS", "my runs")
    assert "--runs" not in next_command(Run(run.root), "unfinished")
    assert next_command(Run(run.root), "damaged") == next_command(Run(run.root), "unreadable") == ""


@pytest.mark.parametrize("name", ["copy", "2024"])
def test_the_next_command_of_a_copied_run_trains_the_copy(tmp_path: Path, name: str) -> None:
    run = RunDir(tmp_path / name)
    run.root.mkdir()
    run.config.write_text(TWO_LANGUAGES)
    words = split(next_command(Run(run.root), "unfinished"))
    assert words[:-1] == ["mt", "train", "--config", str(run.config), "--runs", str(tmp_path), "--set"]
    assert load_config(run.config, words[-1:]).name == name


@pytest.mark.parametrize(
    ("manifest", "state"),
    [({"steps": 2000, "files": {}}, "unfinished"), ({"steps": 3950, "files": {}}, "finished"), ({}, "finished")],
)
def test_a_training_that_is_extended_is_unfinished(tmp_path: Path, manifest: dict[str, Any], state: str) -> None:
    run = RunDir(tmp_path / "two")
    run.model.root.mkdir(parents=True)
    run.config.write_text(TWO_LANGUAGES)
    run.metrics.write_text("".join(json.dumps({"event": "train", "step": n}) + "\n" for n in (2000, 3950)))
    run.model.manifest.write_text(json.dumps(manifest))
    assert Run(run.root).facts()["state"] == state


def test_an_abandoned_extension_leaves_a_finished_run(tmp_path: Path) -> None:
    run = RunDir(tmp_path / "two")
    run.model.root.mkdir(parents=True)
    run.config.write_text(TWO_LANGUAGES)
    run.model.manifest.write_text(json.dumps({"steps": 2000, "files": {}}))
    extended = [("start", 0), ("train", 2000), ("done", 2000), ("resume", 2000), ("train", 2050)]
    for events, state in ((extended, "unfinished"), ([*extended, ("resume", 2000)], "finished")):
        run.metrics.write_text("".join(json.dumps({"event": kind, "step": n}) + "\n" for kind, n in events))
        assert Run(run.root).facts()["state"] == state
        assert ("done" in [event["event"] for event in Run(run.root).history]) == (state == "finished")


def test_the_runs_of_a_pipeline_are_named(tmp_path: Path) -> None:
    (tmp_path / "runs" / "toy" / ".pipeline").mkdir(parents=True)
    steps = f"each step of a pipeline has its own folder: {Path('runs', 'toy', 'STEP')}"
    assert command("runs", cwd=tmp_path).stdout.splitlines() == ["no run in runs", steps]
    for words in (["report"], ["translate", "x"], ["runs", "show", "teacher"]):
        assert steps in command(*words, cwd=tmp_path, code=2).stderr
    folder = str(Path("runs", "toy"))
    for words in (["report", folder], ["translate", "--model", folder, "x"], ["runs", "show", "toy"]):
        refused = command(*words, cwd=tmp_path, code=2).stderr
        assert f"{folder} is the folder of a pipeline\n  give the run of a step: {Path(folder, 'STEP')}" in refused


def test_a_run_that_cannot_be_looked_at_is_left_out(trained: Path, tmp_path: Path) -> None:
    (tmp_path / "tiny").symlink_to(trained / "runs" / "tiny")
    (tmp_path / "odd").symlink_to("x" * 300)  # too long a name: an error even for root, whom permissions do not stop
    assert [run.name for run in mt.list_runs(tmp_path)] == ["tiny"]
    assert "there is no such run" in command("runs", "show", "odd", "--runs", tmp_path, cwd=tmp_path, code=2).stderr


@pytest.mark.skipif(not Path("/proc/self/mem").exists(), reason="needs a file that root cannot read either")
def test_an_unreadable_run_is_listed_as_such(tiny: Path) -> None:
    for name in ("odd", "usual"):
        folder = tiny / "runs" / name
        folder.mkdir(parents=True)
        (folder / "config.yaml").write_text((tiny / "tiny.yaml").read_text())
    (tiny / "runs" / "odd" / "metrics.jsonl").symlink_to("/proc/self/mem")
    odd, usual = (run.facts() for run in mt.list_runs(tiny / "runs"))
    assert (odd["state"], odd["steps"], odd["bleu"]) == ("unreadable", 0, None)
    assert (usual["state"], usual["source_lang"], usual.keys()) == ("unfinished", "en", odd.keys())
    assert "unreadable" in command("runs", cwd=tiny).stdout


def test_a_damaged_run_is_listed_as_such(tiny: Path) -> None:
    folder = tiny / "runs" / "odd"
    folder.mkdir(parents=True)
    (folder / "config.yaml").write_text("name: [")
    [facts] = [run.facts() for run in mt.list_runs(tiny / "runs")]
    assert (facts["state"], facts["bleu"], facts["steps"]) == ("damaged", None, 0)
    assert "damaged" in command("runs", cwd=tiny).stdout
    (folder / "eval").mkdir()
    score = {"method": "beam", "target_lang": "xx", "bleu": 1.0}
    scores = ["x", 1, {"method": "beam", "bleu": "x"}, {**score, "bleu_low": 0.5}, {**score, "bleu_high": 2.0}]
    for damaged in ("[]", '{"results": null}', *(json.dumps({"results": [each]}) for each in scores)):
        (folder / "eval" / "test.json").write_text(damaged)
        assert mt.list_runs(tiny / "runs")[0].bleu is None
        command("runs", "show", "odd", cwd=tiny)
