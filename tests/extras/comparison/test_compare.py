"""`mt compare`: sacreBLEU's tests and numbers, verdicts, and sentence differences."""

import importlib.util
import json
import math
import os
import pty
import random
import re
import shutil
import subprocess
import sys
import time
import tracemalloc
from pathlib import Path

import pytest
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.metrics.ter import TER
from sacrebleu.significance import PairedTest

from command import mt
from config_helpers import SMALLEST
from data_helpers import write_lines as write
from engine_helpers import reseal
from mt.config import parse_config
from mt.data.eval_texts import EvalText
from mt.extras.comparison.results import (
    compare,
    comparison_json,
    comparison_text,
    marked_differences,
    sentence_differences,
)
from mt.extras.comparison.significance import System, paired_tests
from mt.extras.comparison.systems import Comparison, _not_scored
from mt.storage.run_dir import RunDir

WORDS = "der die das Mann Frau Hund Ball läuft spielt rot blau auf im Haus Garten und mit".split()
QUICK = ["--samples", "100", "--trials", "200"]
METRICS = {"bleu": BLEU(tokenize="13a"), "chrf": CHRF(), "ter": TER()}
BRACKETS = (lambda text: f"[-{text}-]", lambda text: f"{{+{text}+}}")


def references(number: int, seed: int = 0) -> list[str]:
    rng = random.Random(seed)
    return [" ".join(rng.choice(WORDS) for _ in range(rng.randint(5, 12))) + "." for _ in range(number)]


def worsened(lines: list[str], share: float, seed: int = 1) -> list[str]:
    """Replace a share of the lines' words."""
    rng = random.Random(seed)
    return [" ".join(rng.choice(WORDS) if rng.random() < share else word for word in line.split()) for line in lines]


def sacrebleu(folder: Path, test: str, number: int) -> tuple[list[list[float]], ...]:
    """Run the sacrebleu command on ref, a and b; return lists of numbers by metric: of a, of b, and b's p."""
    command = [sys.executable, "-m", "sacrebleu", "ref", "-i", "a", "b", "-m", "bleu", "chrf", "ter", "-w", "4"]
    options = ["-f", "text", f"--paired-{test}", f"--paired-{test}-n", str(number)]
    done = subprocess.run([*command, *options], cwd=folder, capture_output=True, text=True, check=True)
    rows = [row.split("│")[2:5] for row in done.stdout.splitlines() if row.startswith("│")][1:]
    return tuple([[float(number) for number in re.findall(r"\d+\.\d+", cell)] for cell in row] for row in rows)


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """Write a reference and its translations a and b, of which b is slightly better."""
    lines = references(120)
    write(tmp_path / "ref", lines)
    write(tmp_path / "a", worsened(lines, 0.30))
    write(tmp_path / "b", worsened(lines, 0.27, seed=2))
    return tmp_path


def test_numbers_equal_those_of_the_sacrebleu_command(files: Path) -> None:
    done = mt("compare", "a", "b", "--reference", "ref", *QUICK, "--json", cwd=files)
    (ours,) = json.loads(done.stdout)["comparisons"]
    bootstrap, randomisation = sacrebleu(files, "bs", 100), sacrebleu(files, "ar", 200)
    for number, metric in enumerate(("bleu", "chrf", "ter")):
        baseline, system = ours["metrics"][metric]["systems"]
        for one, theirs in zip((baseline, system), bootstrap, strict=False):
            middle, radius = (one["low"] + one["high"]) / 2, (one["high"] - one["low"]) / 2
            assert [one["score"], middle, radius] == pytest.approx(theirs[number], abs=1e-4)
        assert [system["p_bootstrap"]] == pytest.approx(bootstrap[2][number], abs=1e-4)
        assert [system["p_randomisation"]] == pytest.approx(randomisation[2][number], abs=1e-4)
        assert system["difference"] == pytest.approx(system["score"] - baseline["score"], abs=1e-4)
        assert baseline["p_bootstrap"] is baseline["difference"] is baseline["verdict"] is None
    bleu = ours["metrics"]["bleu"]
    assert "bs:100|seed:12345" in bleu["signature_bootstrap"]
    assert "ar:200|seed:12345" in bleu["signature_randomisation"]
    assert ours["sentences"] == 120


@pytest.mark.parametrize("metric", list(METRICS))
def test_numbers_equal_sacrebleus_in_little_memory(metric: str) -> None:
    lines = references(200)
    texts = {"a": worsened(lines, 0.30), "b": worsened(lines, 0.27, seed=2), "c": worsened(lines, 0.31, seed=3)}
    systems, samples = [System(*each) for each in texts.items()], 1010
    tracemalloc.start()
    (ours,) = paired_tests(systems, lines, {metric: METRICS[metric]}, samples, samples)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 1_500_000  # sacreBLEU has an index of 8 bytes for each of 202,000 sentences, and their statistics
    for kind, signature in (("bs", ours.bootstrap_signature), ("ar", ours.randomisation_signature)):
        test = PairedTest([*texts.items()], {"": METRICS[metric]}, [lines], kind, samples)
        signatures, results = test()
        [name] = signatures
        assert str(signatures[name]) == signature
        for one, result in zip(ours.systems, results[name], strict=True):
            assert one.score == result.score
            if kind == "bs":
                assert (one.low, one.high) == pytest.approx((result.mean - result.ci, result.mean + result.ci))
            assert result.p_value == (one.p_bootstrap if kind == "bs" else one.p_randomisation)


def verdicts(systems: list[list[str]], lines: list[str]) -> list[str]:
    named = [System(f"s{number}", each) for number, each in enumerate(systems)]
    tests = paired_tests(named, lines, METRICS, 100, 200)
    return [one.verdict for test in tests for one in test.systems[1:]]


def test_only_a_large_difference_is_significant() -> None:
    lines = references(150)
    good, bad = worsened(lines, 0.1), worsened(lines, 0.5)
    assert verdicts([bad, good], lines) == ["better"] * 3  # although a lower TER is better
    assert verdicts([good, bad], lines) == ["worse"] * 3
    assert verdicts([worsened(lines, 0.3, seed=5), worsened(lines, 0.3, seed=6)], lines) == ["unclear"] * 3


def test_no_difference_is_never_significant() -> None:
    """sacreBLEU gives a system against itself the smallest p there is."""
    lines = references(50)
    (test,) = paired_tests([System("a", lines), System("b", list(lines))], lines, {"bleu": METRICS["bleu"]}, 50, 50)
    assert (test.systems[1].p_bootstrap, test.systems[1].p_randomisation) == (1.0, 1.0)
    assert test.systems[1].verdict == "same"


@pytest.mark.parametrize(("metric", "most"), [("bleu", 100), ("chrf", 100), ("ter", math.inf)])
def test_an_interval_is_possible_and_holds_the_score(metric: str, most: float) -> None:
    lines = references(11)
    systems = [System("a", ["x " * 90, *lines[1:]]), System("b", [*lines[:10], "y"]), System("c", ["z " * 90] * 11)]
    (test,) = paired_tests(systems, lines, {metric: METRICS[metric]}, 20, 20)
    for one in test.systems:
        assert 0 <= one.low <= one.score <= one.high <= most
    assert (metric == "ter") == (test.systems[2].high > 100)


@pytest.mark.parametrize(
    ("metric", "differing", "spaced", "p"),
    [
        ("chrf", 1, False, 1.0),
        ("chrf", 3, False, 0.25),
        ("chrf", 5, False, 0.0625),
        ("bleu", 3, True, 0.25),
        ("chrf", 3, True, 0.25),
        ("ter", 3, True, 0.25),
    ],
)
def test_few_differing_sentences_are_never_significant(metric: str, differing: int, spaced: bool, p: float) -> None:
    """Of k sentences that differ for the metric, all are swapped alike with probability 2^(1 - k)."""
    lines = references(40)
    baseline = [*(["x"] * differing), *lines[differing:]]
    if spaced:
        baseline = [f"{line.replace(' ', '  ')} " for line in baseline]
    (test,) = paired_tests([System("a", baseline), System("b", lines)], lines, {metric: METRICS[metric]}, 300, 300)
    assert abs(test.systems[1].difference) > 1
    assert test.systems[1].p_randomisation == p
    assert test.systems[1].verdict in ("unclear", "undecided")


def test_disagreeing_tests_are_reported(notices: list[str]) -> None:
    lines = references(5)
    systems = [System("a", ["x"] * 5), System("b", lines)]
    compared = compare(Comparison(EvalText("de", [], lines), systems, "13a"), ["chrf"], 200, 200, 0)
    assert compared.tests[0].systems[1].p_bootstrap < 0.05
    assert "b against a: the tests disagree about chrF (+" in comparison_text(compared, BRACKETS)
    assert any("only 5 sentences" in notice for notice in notices)


@pytest.mark.parametrize(
    ("source", "target", "named"),
    [("", "", ""), ("", "en", " into en"), ("fr", "en", " from fr into en"), ("fr", "", " from fr")],
)
def test_the_direction_is_named(source: str, target: str, named: str) -> None:
    lines = references(5)
    text = EvalText(target, [], lines, source)
    compared = compare(Comparison(text, [System("a", lines), System("b", lines)], "13a"), ["chrf"], 10, 10, 0)
    assert comparison_text(compared, BRACKETS).startswith(f"5 sentences{named}; the baseline is a")
    [written] = comparison_json([compared])["comparisons"]
    assert (written["target_lang"], written.get("source_lang")) == (target or None, source or None)


def test_verdicts(files: Path) -> None:
    lines = references(120)
    write(files / "c", worsened(lines, 0.9))
    out = mt("compare", "a", "a", "c", "--reference", "ref", "--metrics", "bleu,ter", *QUICK, cwd=files).stdout
    assert "a against a: no difference in BLEU and TER.\n" in out
    (sentence,) = [line for line in out.splitlines() if line.startswith("c against a")]
    assert sentence.startswith("c against a: significantly worse in BLEU (-")
    assert sentence.endswith("(p < 0.05 in both tests).")
    assert "of 20 pairs" in out
    assert "chrF2" not in out
    assert "nc:6" not in out


def test_wins_ties_losses_and_largest_differences() -> None:
    lines = ["ein roter Hund", "das blaue Haus", "die Frau spielt", "der Mann läuft", "ein Ball"]
    baseline = ["ein roter Hund", "das Haus", "eine", "der Mann lief", "x"]
    system = ["ein Hund", "das blaue Haus", "die Frau spielt", "der Mann lief", "x"]
    systems = System("a", baseline), System("b", system)
    found = sentence_differences(EvalText("de", [], lines), *systems, 5)
    assert (found["wins"], found["ties"], found["losses"]) == (2, 2, 1)
    assert [one["line"] for one in found["gains_most"]] == [3, 2]
    assert [one["line"] for one in found["loses_most"]] == [1]
    best = sentence_differences(EvalText("de", [], lines), *systems, 1)["gains_most"]
    assert [one["line"] for one in best] == [3]
    assert best[0]["chrf"] == pytest.approx(100)


@pytest.mark.parametrize(
    ("language", "first", "second", "marked_first", "marked_second"),
    [
        ("de", "ein roter Hund läuft", "ein Hund läuft rot", "ein [-roter-] Hund läuft", "ein Hund läuft {+rot+}"),
        ("en", "a b c d", "a x y d", "a [-b c-] d", "a {+x y+} d"),
        ("de", "gleich", "gleich", "gleich", "gleich"),
        ("de", "", "neu", "", "{+neu+}"),
        ("zh", "我爱你。", "我很爱她。", "我爱[-你-]。", "我{+很+}爱{+她+}。"),
        ("ko", "나는 집에 간다", "나는 학교에 간다", "나는 [-집에-] 간다", "나는 {+학교에+} 간다"),
    ],
)
def test_differences_are_marked(language: str, first: str, second: str, marked_first: str, marked_second: str) -> None:
    assert marked_differences(first, second, language, BRACKETS) == (marked_first, marked_second)


def test_long_repetitive_translations_are_marked_in_seconds() -> None:
    started = time.process_time()
    first, second = marked_differences("the " * 1000, "the a " * 1000, "en", BRACKETS)
    assert time.process_time() - started < 5
    assert (len(first.split()), len(second.split())) == (1000, 2000)


@pytest.fixture
def two_runs(trained: Path, tmp_path: Path) -> Path:
    """Copy a run to a and b; b's beam translations are the references except for two lines."""
    for name in ("a", "b"):
        shutil.copytree(trained / "runs" / "tiny", tmp_path / "runs" / name)
    scores = tmp_path / "runs" / "b" / "eval"
    lines = (scores / "test.reference").read_text().splitlines()
    write(scores / "test.beam", [*lines[:5], "q q", "q", *lines[7:]])
    return tmp_path


def test_stored_translations_of_a_method_are_compared(two_runs: Path) -> None:
    greedy = mt("compare", "runs/a", "runs/b", "--method", "greedy", *QUICK, cwd=two_runs).stdout
    assert "runs/b against runs/a: no difference in BLEU, chrF and TER." in greedy
    out = mt("compare", "runs/a", "runs/b", *QUICK, "--sentences", "1", cwd=two_runs).stdout
    assert "12 sentences into xx; the baseline is runs/a\n" in out
    assert "runs/b gains most over runs/a:" in out
    chosen = mt("compare", "runs/a", "runs/b", *QUICK, "--sentences", "1", "--from", "en", cwd=two_runs).stdout
    assert chosen == out
    lines = (two_runs / "runs" / "b" / "eval" / "test.reference").read_text().splitlines()
    best = out.split("gains most")[1].split("loses most")[0]
    (reference,) = [line.split("reference: ")[1] for line in best.splitlines() if "reference: " in line]
    assert reference in lines
    assert "{+" in best


def test_a_run_and_a_file(two_runs: Path) -> None:
    results = []
    for other in (two_runs / "runs" / "b" / "eval" / "test.beam", "runs/b"):
        found = json.loads(mt("compare", "runs/a", other, "--json", *QUICK, cwd=two_runs).stdout)
        (differences,) = found["comparisons"][0]["sentence_chrf"]
        assert differences.pop("name") == str(other)
        results.append(differences)
    assert results[0] == results[1]


def test_a_file_may_be_called_reference_and_cannot_control_the_terminal(two_runs: Path) -> None:
    write(two_runs / "reference", ["\x1b]0;evil\x07 q"] * 12)
    out = mt("compare", "runs/b", "reference", *QUICK, "--sentences", "1", cwd=two_runs).stdout
    assert "⟨U+001B⟩]0;evil" in out
    assert "\x1b]0" not in out
    worst = out.split("loses most")[1].splitlines()
    texts = [line.split("reference: ")[1] for line in worst if "reference: " in line]
    assert len(texts) == 2
    assert texts[0] in (two_runs / "runs" / "b" / "eval" / "test.reference").read_text().splitlines()


def test_paths_in_the_suggested_command_are_quoted() -> None:
    error = _not_scored(Path("runs/a b"), Path("x"), "my set", parse_config(SMALLEST, "x.yaml").data)
    assert "mt eval --model 'runs/a b' --source 'my set.en' --reference 'my set.de'`" in error.hint


@pytest.mark.parametrize("name", ["test_2016", "testimony", "other"])
def test_other_test_sets_are_named_in_the_message_and_compared(trained: Path, two_runs: Path, name: str) -> None:
    """The command that the message suggests makes the translations."""
    for side, split in (("en", "valid.en"), ("xx", "valid.xx")):
        shutil.copy(trained / split, two_runs / f"{name}.{side}")
    command = ["compare", "runs/a", "runs/b", "--test-set", name, *QUICK]
    for run in ("runs/a", "runs/b"):
        said = mt(*command, cwd=two_runs, code=2).stderr
        asked = f"--model {run} --source {name}.en --reference {name}.xx"
        assert f"mt eval {asked}" in said
        mt("eval", *asked.split(), cwd=two_runs)
    assert "runs/b against runs/a" in mt(*command, cwd=two_runs).stdout
    assert "mt eval --model runs/a --to xx" in mt(*command[:4], "test.xx", cwd=two_runs, code=2).stderr
    assert "the settings to be compared" in mt(*command[:4], "changed.test", cwd=two_runs, code=2).stderr


@pytest.mark.skipif(importlib.util.find_spec("MeCab") is not None, reason="MeCab is installed")
def test_a_missing_tokenizer_is_reported(two_runs: Path) -> None:
    for name in ("a", "b"):
        model = RunDir(two_runs / "runs" / name).model
        text = model.config.read_text().replace("bleu_tokenize: auto", "bleu_tokenize: ja-mecab")
        model.config.write_text(text)
        reseal(model)
    for command in (["compare", "runs/a", "runs/b"], ["eval", "--model", "runs/a"]):
        said = mt(*command, cwd=two_runs, code=2).stderr
        assert "ja-mecab cannot be used here" in said
        assert "sacrebleu[ja]" in said


def test_models_translate_a_new_text(trained: Path, tmp_path: Path) -> None:
    shutil.copytree(trained / "runs" / "tiny" / "model", tmp_path / "moved")
    for name, original in (("in", "valid.en"), ("ref", "valid.xx")):
        shutil.copy(trained / original, tmp_path / name)
    translations = mt("translate", "--model", "moved", "--input", "in", cwd=tmp_path).stdout
    (tmp_path / "mine").write_text(translations)
    given = ["--source", "in", "--reference", "ref", *QUICK]
    out = mt("compare", "moved", "mine", *given, cwd=tmp_path).stdout
    assert "mine against moved: no difference in BLEU, chrF and TER." in out
    write(tmp_path / "short", references(3))
    said = mt("compare", "moved", "short", *given, cwd=tmp_path, code=2).stderr
    assert "short: 3 translations, but the reference has" in said
    assert "translating" not in said  # it is said before a model has translated
    for name, original in (("in", "valid.en"), ("ref", "valid.xx")):
        write(tmp_path / f"{name}1", (trained / original).read_text().splitlines()[:1])
    said = mt("compare", "moved", "ref1", "--source", "in1", "--reference", "ref1", cwd=tmp_path, code=2).stderr
    assert "a single sentence is too little" in said
    assert "translating" not in said
    shutil.copytree(tmp_path / "moved", tmp_path / "torch")
    shutil.rmtree(tmp_path / "torch" / "ctranslate2")
    said = mt("compare", "moved", "torch", *given, "--engine", "ctranslate2", cwd=tmp_path, code=2).stderr
    assert "no CTranslate2 part" in said
    assert "translating" not in said
    # A model folder is in no run, so it has nothing stored.
    assert "no run folder" in mt("compare", "moved", trained / "runs" / "tiny", cwd=tmp_path, code=2).stderr


@pytest.mark.slow
def test_several_languages_are_compared_separately(two_languages: Path, tmp_path: Path) -> None:
    run = two_languages / "runs" / "two"
    out = mt("compare", run, run, *QUICK, "--metrics", "chrf", cwd=tmp_path).stdout
    assert out.index("20 sentences into xx") < out.index("20 sentences into yy")
    only = mt("compare", run, run, "--to", "yy", *QUICK, "--metrics", "chrf", cwd=tmp_path).stdout
    assert "into xx" not in only
    beside = [run, run / "eval" / "test.yy.beam", *QUICK, "--metrics", "chrf"]
    said = mt("compare", run / "eval" / "test.yy.beam", run, cwd=tmp_path, code=2).stderr
    assert f"{run}: the test set is in xx, yy" in said
    assert "--to xx" in said
    assert "no difference in chrF" in mt("compare", *beside, "--to", "yy", cwd=tmp_path).stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["runs/a"], "needs at least two systems"),
        (["runs/a", "runs/nowhere"], "runs/nowhere: there is no such folder or file"),
        (["ref", "ref"], "give --reference FILE"),
        (["runs/a", "short"], "short: 3 translations, but the reference has 12 lines"),
        (["runs/a", "runs/b", "--test-set", "mine"], "mt eval --model runs/a --source mine.en --reference mine.xx"),
        (["runs/a", "runs/b", "--method", "mbr"], "runs/a: its test set was translated by greedy, beam, not by mbr"),
        (["runs/a", "runs/b", "--to", "it"], "no direction in common into it"),
        (["runs/a", "runs/b", "--metrics", "bleu,comet"], "--metrics: 'comet' is none of bleu, chrf, ter"),
        (["runs/a", "runs/b", "--source", "ref"], "--source needs --reference"),
        (["runs/a", "runs/b", "--reference", "ref"], "give --source"),
        (["runs/a", "runs/b", "--engine", "nonsense"], "--engine is for translating --source"),
        (["ref", "ref", "--reference", "ref", "--compute-type", "int8"], "--compute-type is for translating --source"),
        (["ref", "ref", "--reference", "ref", "--method", "beam"], "--method: nothing is translated here"),
        (["ref", "ref", "--reference", "ref", "--from", "zz"], "--from: nothing is translated here"),
        (["ref", "ref", "--source", "ref", "--reference", "ref", "--device", "cpu"], "--device: nothing is translated"),
        (["runs/a", "runs/b", "--from", "zz"], "the model translates from en; not from zz"),
        (["ref", "ref", "--reference", "ref", "--method", "foo"], "--method foo: new translations are made by greedy"),
        (["ref", "ref", "--reference", "ref", "--test-set", "mine"], "--test-set is for what runs have in eval/"),
        (["runs/a", "runs/b", "--source", "short", "--reference", "ref"], "short has 3 lines but ref has 12"),
        (["one", "one", "--reference", "one"], "a single sentence is too little"),
    ],
)
def test_errors_are_one_sentence(two_runs: Path, arguments: list[str], message: str) -> None:
    write(two_runs / "ref", references(12))
    write(two_runs / "short", references(3))
    write(two_runs / "one", references(1))
    done = mt("compare", *arguments, cwd=two_runs, code=2)
    assert message in done.stderr
    assert len(done.stderr.splitlines()) <= 2
    assert done.stdout == ""


def test_different_texts_and_missing_translations_are_refused(two_runs: Path) -> None:
    scores = two_runs / "runs" / "b" / "eval"
    for side in ("source", "reference"):  # references are compared first
        lines = (scores / f"test.{side}").read_text().splitlines()
        write(scores / f"test.{side}", [*lines[:6], "other", *lines[7:]])
        said = mt("compare", "runs/a", "runs/b", cwd=two_runs, code=2).stderr
        assert f"their {side}s differ (line 7 is the first)" in said
        assert "--source FILE --reference FILE" in said
    write(scores / "test.source", lines[:11])
    said = mt("compare", "runs/b", scores / "test.beam", cwd=two_runs, code=2).stderr
    assert "runs/b: source and reference of its test set have 11 and 12 lines" in said
    shutil.rmtree(scores)
    assert "mt eval --model runs/b" in mt("compare", "runs/a", "runs/b", cwd=two_runs, code=2).stderr
    (two_runs / "runs" / "a" / "eval" / "test.json").write_text("{}")
    assert "not a score file" in mt("compare", "runs/a", "runs/b", cwd=two_runs, code=2).stderr


def test_a_stored_text_is_read_and_reported_once(two_runs: Path) -> None:
    for run in ("a", "b"):
        path = two_runs / "runs" / run / "eval" / "test.reference"
        write(path, ["cafe\u0301", *path.read_text().splitlines()[1:]])
    said = mt("compare", "runs/a", "runs/b", *QUICK, cwd=two_runs).stderr
    assert said.count("test.reference: 1 lines are compared in Unicode normal form C") == 2, "one for each run"


def test_a_run_without_a_test_set(tiny: Path) -> None:
    settings = ("data.test=null", "training.max_steps=2", "training.warmup_steps=1")
    mt("train", "--config", "tiny.yaml", *(word for s in settings for word in ("--set", s)), cwd=tiny)
    said = mt("compare", "runs/tiny", "runs/tiny", cwd=tiny, code=2).stderr
    assert "its configuration has no test set" in said
    assert "mt eval" not in said


def on_a_terminal(cwd: Path, *words: str, **environment: str) -> str:
    main, other = pty.openpty()
    command = [sys.executable, "-m", "mt", "compare", *words]
    process = subprocess.Popen(command, cwd=cwd, stdout=other, stderr=subprocess.DEVNULL, env=os.environ | environment)
    os.close(other)
    shown = b""
    try:
        while chunk := os.read(main, 65536):
            shown += chunk
    except OSError:  # the other end is closed
        pass
    os.close(main)
    assert process.wait() == 0
    return shown.decode()


def test_colours_are_for_terminals(files: Path) -> None:
    words = ["a", "b", "--reference", "ref", "--metrics", "chrf", *QUICK]
    shown = on_a_terminal(files, *words)
    assert "\x1b[31m" in shown
    assert "\x1b[32m" in shown
    assert "[-" not in shown
    assert "\x1b" not in on_a_terminal(files, *words, NO_COLOR="1")
