"""Tuning of the length penalty on the validation set, never on the test set."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from shutil import copyfile
from unittest.mock import ANY

import pytest
from sacrebleu import __version__ as VERSION
from sacrebleu.metrics import BLEU

from command import mt
from config_helpers import SMALLEST
from data_helpers import lines_in as read
from data_helpers import write_lines as write
from engine_helpers import ENGLISH, GERMAN, configured, printed, whole_folder
from mt.bundle.load_translator import OpenedModel, open_model
from mt.config import load_config, parse_config
from mt.data.eval_texts import EvalText
from mt.decoding.engine import EngineChoice
from mt.decoding.settings import TranslationSettings
from mt.errors import InputError
from mt.evaluation.length_penalty import (
    PENALTIES,
    PenaltyResult,
    best_penalty,
    cautious_penalty,
    penalties_json,
    penalties_table,
    rank_with_length_penalties,
    try_length_penalties,
    with_best_penalty,
)
from mt.evaluation.test_set import configured_methods
from mt.storage.run_dir import RunDir
from training_helpers import overrides

CHANGES = ["decoding.beam_size=4", "decoding.min_length=4", "decoding.max_length=12", "evaluation.bleu_tokenize=char"]
VALID = [*ENGLISH, "the dog", "men", "on the hill a house is", "grass grass", "old dog talking."]
TEST = [*GERMAN, "a grass house"]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunDir:
    """Return a run whose validation references are short translations of its model, and its test references long."""
    run = RunDir(tmp_path_factory.mktemp("tuned") / "run")
    whole_folder(run.model.root, *CHANGES)
    copyfile(run.model.config, run.config)
    run.text.mkdir(parents=True)
    for split, lines, penalty in (("valid", VALID, 0.4), ("test", TEST, 2.0)):
        write(run.text_file(split, "source"), lines)
        write(run.text_file(split, "target"), translated(opened(run), lines, penalty))
    return run


def opened(run: RunDir) -> OpenedModel:
    return open_model(run.model)


def translated(model: OpenedModel, lines: Sequence[str], penalty: float, beam: int = 4) -> list[str]:
    return model.translator.best(lines, replace(model.settings.search, length_penalty=penalty, beam_size=beam))


def tuned(run: RunDir, *options: str | Path) -> dict:
    return json.loads(printed("eval", "--model", run.root, "--tune-length-penalty", "--json", *options))


def refused(run: RunDir, *options: str | Path) -> str:
    done = mt("eval", "--model", run.root, "--tune-length-penalty", *options, cwd=run.root, code=2)
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) <= 2
    return done.stderr


def test_it_is_the_validation_set_that_is_translated(run: RunDir, tmp_path: Path) -> None:
    """Each BLEU is sacreBLEU's of beam search with that penalty; the references' own penalty is best."""
    assert tuple(tenths / 10 for tenths in range(0, 31, 2)) == PENALTIES
    result = tuned(run)
    references = read(run.text_file("valid", "target"))
    assert [row["length_penalty"] for row in result["tried"]] == list(PENALTIES)
    for row in result["tried"]:
        hypotheses = translated(opened(run), VALID, row["length_penalty"])
        expected = BLEU(tokenize="char").corpus_score(hypotheses, [references]).score
        assert row["bleu"] == pytest.approx(expected, abs=1e-6)
        assert row["length_ratio"] == pytest.approx(len("".join(hypotheses)) / len("".join(references)))
    scores = {row["length_penalty"]: row["bleu"] for row in result["tried"]}
    assert scores[0.4] == max(scores.values())
    assert scores[0.4] > scores[2.0] + 5
    assert result["best"] == max((p for p in scores if scores[p] == scores[0.4]), key=lambda p: -abs(p - 1))
    lengths = [row["length_ratio"] for row in result["tried"]]
    assert lengths == sorted(lengths)
    assert lengths[0] < lengths[-1]

    same = ["--source", run.text_file("valid", "source"), "--reference", run.text_file("valid", "target")]
    assert tuned(run, *same) == result
    for penalty in (0.0, 1.4):
        given = [*same, "--output", tmp_path / str(penalty), "--length-penalty", str(penalty), "--json"]
        rows = json.loads(printed("eval", "--model", run.root, *given))["results"]
        assert [row["bleu"] for row in rows if row["method"] == "beam"] == [pytest.approx(scores[penalty], abs=1e-3)]


def test_another_set_beam_or_engine_may_be_given(run: RunDir, tmp_path: Path) -> None:
    write(tmp_path / "source", VALID)
    write(tmp_path / "reference", translated(opened(run), VALID, 2.0))
    result = tuned(run, "--source", tmp_path / "source", "--reference", tmp_path / "reference")
    assert result["best"] > 1
    assert max(row["bleu"] for row in result["tried"]) == pytest.approx(100)

    choices = ((), ("--beam", "2"), ("--engine", "torch"))
    bleus, narrow, slow = ([row["bleu"] for row in tuned(run, *choice)["tried"]] for choice in choices)
    assert slow == pytest.approx(bleus, abs=1e-6)
    assert narrow[0] != bleus[0]
    hypotheses = translated(opened(run), VALID, PENALTIES[0], beam=2)
    references = read(run.text_file("valid", "target"))
    assert narrow[0] == pytest.approx(BLEU(tokenize="char").corpus_score(hypotheses, [references]).score)
    assert tuned(run, "--model", run.root)["best"] == tuned(run)["best"]  # two models together


def test_a_table_with_the_best_marked_and_nothing_written(run: RunDir) -> None:
    before = sorted(run.root.rglob("*"))
    lines = printed("eval", "--model", run.root, "--tune-length-penalty").splitlines()
    assert sorted(run.root.rglob("*")) == before
    found = tuned(run)
    best, rows = found["best"], lines[1:-2]
    assert lines[0].split() == ["length", "penalty", "valid", "BLEU", "length", "ratio"]
    assert [float(row.split()[0]) for row in rows] == list(PENALTIES)
    assert [float(row.split()[0]) for row in rows if row.endswith("best")] == [best]
    assert lines[-2] == found["signature"] == f"bleu: nrefs:1|case:mixed|eff:no|tok:char|smooth:exp|version:{VERSION}"
    assert f"--length-penalty {best:g}," in lines[-1]


# The test set ---------------------------------------------------------------------------------------------------------


def test_the_runs_test_set_is_refused_whatever_it_is_called(run: RunDir, tmp_path: Path) -> None:
    source, reference = tmp_path / "renamed.en", tmp_path / "renamed.de"
    copyfile(run.text_file("test", "source"), source)
    source.write_bytes(source.read_bytes().replace(b"\n", b"\r\n"))
    copyfile(run.text_file("test", "target"), reference)
    assert "test set" in refused(run, "--source", source, "--reference", reference)
    assert "test set" in refused(run, "--source", source, "--reference", run.text_file("test", "source"))
    same = ["--source", run.text_file("test", "target"), "--reference", reference]
    assert "test set" in refused(run, *same, "--engine", "onnx")  # before the model is opened
    write(source, [*TEST[:-1], "Something else."])
    write(reference, TEST)
    assert tuned(run, "--source", source, "--reference", reference)["best"] in PENALTIES


def test_the_test_set_of_any_of_several_models_is_refused(run: RunDir, tmp_path: Path) -> None:
    bare = whole_folder(tmp_path / "bare", *CHANGES)
    files = ["--source", run.text_file("test", "source"), "--reference", run.text_file("test", "target")]
    command = ["eval", "--model", bare.root, "--tune-length-penalty", *files]
    done = mt(*command, "--model", run.root, cwd=tmp_path, code=2)
    assert f"this is the test set of {run.root}" in done.stderr
    assert "best:" in printed(*command)


def test_a_checkpoint_has_the_sets_of_its_run(trained: Path) -> None:
    run = RunDir(trained / "runs" / "tiny")
    command = ["eval", "--model", run.checkpoint(24), "--tune-length-penalty"]
    with pytest.raises(InputError, match="test set"):
        printed(*command, "--source", trained / "test.en", "--reference", trained / "test.xx")
    files = ["--source", run.text_file("valid", "source"), "--reference", run.text_file("valid", "target")]
    assert printed(*command) == printed(*command, *files)


def test_one_file_or_no_set_is_refused(run: RunDir, tmp_path: Path) -> None:
    for option in ("--source", "--reference"):
        assert "source and reference go together" in refused(run, option, "a")
    folder = whole_folder(tmp_path / "moved", *CHANGES)
    done = mt("eval", "--model", folder.root, "--tune-length-penalty", cwd=tmp_path, code=2)
    assert "no validation set beside this model" in done.stderr
    assert "--source" in done.stderr


# The best -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("scores", "best"),
    [
        ({0.0: 1, 1.0: 2, 2.0: 3}, 2.0),
        ({0.0: 3, 1.0: 2, 2.0: 1}, 0.0),
        ({0.0: 5, 0.8: 5, 1.4: 5, 2.0: 1}, 0.8),
        ({0.0: 5, 0.4: 5, 1.2: 5, 2.0: 5}, 1.2),
        ({0.0: 0, 0.2: 0, 1.0: 0, 2.0: 0}, 1.0),
    ],
    ids=str,
)
def test_the_best_and_among_equals_the_one_nearest_to_1(scores: dict[float, float], best: float) -> None:
    for order in (sorted(scores), sorted(scores, reverse=True)):
        results = [PenaltyResult(penalty, scores[penalty], 1.0) for penalty in order]
        assert best_penalty(results).length_penalty == best
        assert penalties_json(results, "tok:x") == {"tried": ANY, "best": best, "signature": "tok:x"}
        assert f"best: --length-penalty {best:g}," in penalties_table(results, "tok:x")


@pytest.mark.parametrize(
    ("scores", "configured", "chosen"),
    [
        ({0.6: 40.0, 1.0: 40.2, 1.4: 40.45, 1.8: 40.4}, 1.0, 1.0),
        ({0.6: 40.0, 1.0: 40.1, 1.4: 40.3, 1.8: 40.5, 2.2: 40.4}, 1.0, 1.4),
        ({0.6: 40.5, 1.0: 40.1, 1.4: 40.0, 1.8: 39.0}, 1.6, 0.6),
    ],
)
def test_small_differences_change_no_penalty(scores: dict[float, float], configured: float, chosen: float) -> None:
    results = [PenaltyResult(penalty, bleu, 1.0) for penalty, bleu in scores.items()]
    assert cautious_penalty(results, configured).length_penalty == chosen


@pytest.mark.parametrize("engine", ["torch", "ctranslate2"])
def test_one_search_shows_which_penalty_is_better(run: RunDir, engine: str) -> None:
    model = open_model(run.model, EngineChoice(engine))
    for own in (0.4, 2.0):
        config = configured(*CHANGES, "decoding.length_penalty=1.5")
        text = EvalText("de", VALID, translated(model, VALID, own))
        results = rank_with_length_penalties(model.translator, config, [text])
        assert [result.length_penalty for result in results] == sorted([*PENALTIES, 1.5])
        # This untrained model ends anywhere, so that lower penalties would keep other hypotheses.
        ranked = {result.length_penalty: result for result in results}
        searched = try_length_penalties(model.translator, config, [text])
        assert all(ranked[each.length_penalty] == each for each in searched if each.length_penalty >= 1.4)
        assert (best_penalty(results).length_penalty > 1) == (own > 1)
        assert with_best_penalty(model.translator, config, [text]) == configured(
            *CHANGES, f"decoding.length_penalty={cautious_penalty(results, 1.5).length_penalty}"
        )


def test_of_a_large_set_only_a_part_is_translated(run: RunDir) -> None:
    """All penalties are tried on the same lines: here the even ones, which are all that the references fit."""
    model, lines = opened(run), VALID * (4200 // len(VALID))
    references = [each for line in translated(model, lines[::3], 1.0) for each in (line, "x", "y")][: len(lines)]
    results = rank_with_length_penalties(model.translator, configured(*CHANGES), [EvalText("de", lines, references)])
    assert {result.length_penalty: result.bleu for result in results}[1.0] == pytest.approx(100)


def test_a_training_ends_with_the_penalty_of_its_model(tiny: Path) -> None:
    """Its folder's configuration and settings and a second start have it."""
    learning = ("max_steps=120", "max_tokens=400", "learning_rate=1.0e-2", "optimizer=muon", "validate_every=60")
    search = ("beam_size=6", "length_penalty=2.0", "tune_length_penalty=true")
    changes = ("model.d_model=32", *(f"training.{each}" for each in learning), *(f"decoding.{each}" for each in search))
    words = ("train", "--config", "tiny.yaml", *overrides(*changes))
    done = mt(*words, cwd=tiny)
    [line] = [line for line in done.stdout.splitlines() if line.startswith("length penalty: ")]
    run = RunDir(tiny / "runs" / "tiny")
    chosen = load_config(run.model.config).decoding.length_penalty
    assert chosen < 1.5  # this model is better with 0.4 than with 2, by 7 BLEU
    assert line == f"length penalty: {chosen:g}, chosen on the validation set"
    assert TranslationSettings.read(run.model.settings).search.length_penalty == chosen
    assert f"length penalty {chosen:g}: BLEU " in done.stderr
    before = run.model.manifest.read_bytes()
    again = mt(*words, cwd=tiny)
    assert line in again.stdout
    assert run.model.manifest.read_bytes() == before


def test_greedy_search_has_nothing_to_tune(trained: Path) -> None:
    done = mt("eval", "--tune-length-penalty", "--beam", "1", cwd=trained, code=2)
    assert "greedy search has no length penalty" in done.stderr


def test_a_given_beam_adds_beam_search() -> None:
    config = parse_config(SMALLEST, "x.yaml", ["evaluation.methods=[greedy]"])
    assert [method.name for method in configured_methods(config)] == ["greedy"]
    _, beam = configured_methods(config, beam_size=12, length_penalty=None)
    assert (beam.name, beam.options.beam_size) == ("beam", 12)


def test_a_ban_of_repetitions_is_for_greedy_search_too() -> None:
    config = parse_config(SMALLEST, "x.yaml", ["evaluation.methods=[greedy, beam]"])
    methods = configured_methods(config, beam_size=12, no_repeat_ngram_size=3)
    found = [(method.name, method.options.beam_size, method.options.no_repeat_ngram_size) for method in methods]
    assert found == [("greedy", 1, 3), ("beam", 12, 3)]
