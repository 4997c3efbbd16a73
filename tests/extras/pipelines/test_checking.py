"""Pipelines that are wrong: one sentence with file and line, before anything runs."""

import json
import platform
import re
import shutil
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch

from bundle_helpers import make
from command import mt
from conftest import CONFIG
from data_helpers import write_lines
from mt.api.pipelines import read_plan, run_pipeline, show_plan
from mt.data.tokenizer import TokenizerPair
from mt.errors import InputError
from mt.extras.pipelines.checks import check_plan
from mt.extras.pipelines.estimates import StepCost, estimate_costs, makespan
from mt.extras.pipelines.loading import load_pipeline
from mt.extras.pipelines.plan import Plan, make_plan
from mt.extras.pipelines.records import note_attempt, output_digest
from mt.text.lines import TextFile
from pipeline_helpers import FEW, TEACHERS, make_pipeline, plan_of

TRANSLATED = "distill: {model: [{step: teacher_1}, {step: teacher_2}], input: train.en, beam: 2, closest_to: train.xx}"
STUDENT = "{source: train.en, target: {step: translated}, synthetic: true}"
OTHER = "another: {train: {config: tiny.yaml, set: {tokenizer.vocab_size: 310}}}"
REVERSE = (
    "reverse: {train: {config: tiny.yaml, set: {data: {source_lang: xx, target_lang: en, "
    "train: {source: train.xx, target: train.en}, valid: {source: valid.xx, target: valid.en}, test: null}}}}"
)

# An edit of TEACHERS, and parts of the error that names it
BAD = {
    "an unknown step": ("{step: teacher_2}]", "{step: techer_2}]", "pipeline.yaml:16: ", "did you mean teacher_2"),
    "a step that names nothing": ("  translated:\n    " + TRANSLATED, "  translated:", ":15: ", "names nothing to do"),
    "an empty step": (TRANSLATED, "{}", ":15: ", "a step has one key of train, distill"),
    "an unknown kind": ("distill:", "destill:", ":16: ", "did you mean distill?"),
    "an unknown key": ("closest_to:", "closest:", ":16: ", "unknown key; did you mean closest_to?"),
    "a missing key": ("input: train.en, ", "", ":16: ", "steps.translated.distill.input: missing"),
    "a wrong value": ("beam: 2", "beam: wide", ":16: ", "must be a whole number, not 'wide'"),
    "no place": ("input: train.en", "input: 5", ":16: ", "must be a path or {step: NAME}"),
    "an empty place": ("input: train.en", "input: {}", ":16: ", "names neither a step nor a file"),
    "a bad name": ("  teacher_1:", "  teacher.1:", ":11: ", "letters, digits, - and _ only"),
    "a file elsewhere": (
        "source: valid.en",
        "source: {step: student, file: ../x}",
        ":18: ",
        "not in the step's folder",
    ),
    "a cycle": ("{seed: 1,", "{training.init_from: {step: student},", ":3: ", "student needs"),
    "a step that needs itself": (
        "{seed: 1,",
        "{training.init_from: {step: teacher_1},",
        ":11: ",
        "teacher_1 needs teacher_1",
    ),
    "no model": ("model: {step: student}", "model: {step: translated}", ":18: ", "needs a train step"),
    "a folder as text": ("input: train.en", "input: {step: teacher_1}", ":16: ", "writes a folder; add `file`"),
    "a file of a file": ("{step: translated}", "{step: translated, file: x}", ":9: ", "writes one file; leave out"),
    "two steps in one place": (
        TRANSLATED,
        TRANSLATED.replace("beam", "output: runs/tiny-student/student/x, beam"),
        ":16: ",
        "so does",
    ),
    "names that differ by case": (
        "  final:",
        f"  Teacher_1:\n    {OTHER[9:]}\n  final:",
        ":18: ",
        "and so does teacher_1",
    ),
    "an output that is read": (
        TRANSLATED,
        TRANSLATED.replace("beam", "output: train.xx, beam"),
        ":16: ",
        "train.xx is an output of step translated",
    ),
    "an output that is the reference of a training": (
        TRANSLATED,
        "distill: {model: {step: teacher_1}, input: train.en, output: train.xx}",
        ":16: steps.translated.distill.output: train.xx is there, and this step did not write it",
        ":12: steps.teacher_1.train.config: train.xx is an output of step translated; write {step: translated}",
    ),
    "an output that is read by its path": (
        "input: train.en, beam: 2",
        "output: trans.xx, input: train.en, beam: 2",
        ":7: ",
        "trans.xx is an output of step translated",
    ),
    "a model of a step by its path": (
        "model: {step: student}",
        "model: runs/tiny-student/student",
        ":18: ",
        "runs/tiny-student/student is an output of step student; write {step: student}",
    ),
    "a number as a file": (
        "init_from: {step: teacher_1}}",
        "init_from: {step: teacher_1}}\n        data.test: {source: {step: student, file: 5}, target: test.xx}",
        ":3: ",
        "student needs student",
    ),
    "no step": ("target: {step: translated}", "target: {step: null}", ":7: ", "must be text"),
    "no such text": ("input: train.en", "input: train.de", ":16: ", "there is no train.de, and no step writes it"),
    "a device": ("input: train.en", "input: /dev/null", ":16: ", "/dev/null is a pipe or a device"),
    "no such configuration": (
        "train: {config: tiny.yaml, set: {seed: 1",
        "train: {config: tyni.yaml, set: {seed: 1",
        ":12: ",
        "there is no file tyni.yaml",
    ),
    "no such corpus": (
        "- {source: train.en, target: train.xx}",
        "- {source: train.en, target: train.yy}",
        ":7: ",
        "there is no train.yy",
    ),
    "a bad value for a configuration": (
        "{seed: 1,",
        "{seed: one,",
        "pipeline.yaml:12: seed: must be a whole number",
        "",
    ),
    "a key that no configuration has": (
        "{seed: 1,",
        "{training.max_stpes: 1,",
        ":12: training.max_stpes: unknown key",
        "",
    ),
    "another name": ("{seed: 1,", "{name: other,", ":12: ", "the run of a step is named after it, teacher_1"),
    "models of other vocabularies": ("{step: teacher_2}]", "{step: another}]", ":16: ", "the vocabulary of"),
    "a teacher with another vocabulary": (
        "init_from: {step: teacher_1}",
        "init_from: {step: teacher_1}, distill_from: {step: another}",
        ":10: ",
        "is not that of the student",
    ),
    "a start of another shape": (
        "init_from: {step: teacher_1}}",
        "init_from: {step: teacher_1}}\n        model.d_model: 32",
        ":10: ",
        "differs from this configuration in model.d_model",
    ),
    "models in two directions": ("{step: teacher_2}]", "{step: reverse}]", ":16: ", "different directions"),
    "text of another language": ("input: train.en", "input: train.xx", ":16: ", "train.xx is xx text, not en"),
    "translations of another language": (
        "model: [{step: teacher_1}, {step: teacher_2}], input: train.en, beam: 2, closest_to",
        "model: {step: reverse}, input: train.xx, beam: 2, closest_to",
        ":7: ",
        "translations.txt is en text, not xx",
    ),
    "references of other lines": (
        "closest_to: train.xx",
        "closest_to: valid.xx",
        ":16: ",
        "valid.xx has 12 lines, train.en has 300",
    ),
    "translations of other lines": (
        STUDENT,
        STUDENT.replace("train.en", "valid.en"),
        ":7: ",
        "translations.txt has 300 lines, valid.en has 12",
    ),
    "a search that cannot be": ("beam: 2, closest_to: train.xx", "temperature: 2.0", ":16: ", "temperature"),
    "an unknown number format": ("beam: 2", "compute_type: int9", ":16: ", "--compute-type: 'int9' is not one of"),
    "an unknown device": ("beam: 2", "device: gpu", ":16: ", "--device: 'gpu' is not one of"),
    "an unknown engine": ("beam: 2", "engine: torsh", ":16: ", "--engine: 'torsh' is not one of"),
    "int8 of several models": ("beam: 2", "compute_type: int8", ":16: ", "needs the CTranslate2 engine"),
    "a language that no model has": ("beam: 2", "to: de", ":16: ", "translates into xx; not into de"),
    "a source language that no model has": ("beam: 2", "from: de", ":16: ", "translates from en; not from de"),
    "greedy search with a beam": ("beam: 2, closest_to: train.xx", "beam: 5, greedy: true", ":16: ", "a beam of one"),
    "greedy search that samples": ("beam: 2, closest_to: train.xx", "greedy: true, sample: true", ":16: ", "greedy: "),
    "the closest of one": ("beam: 2", "beam: 1", ":16: ", "needs 2 or more translations"),
    "the closest of more than there are": ("beam: 2", "n_best: 3", ":16: ", "no more than the beam of 2 has"),
    "an unknown metric": ("source: valid.en", "metrics: [blue], source: valid.en", ":18: ", "not 'blue'"),
    "a comet checkpoint that is not there": (
        "source: valid.en",
        "metrics: comet, comet_model: nowhere, source: valid.en",
        ":18: ",
        "nowhere: no COMET checkpoint there",
    ),
    "comet without a checkpoint": ("source: valid.en", "metrics: comet, source: valid.en", ":18: ", "go together"),
    "an unknown reason": (TRANSLATED, "clean: {config: tiny.yaml, drop: langage}", ":16: ", "'langage' is none of"),
    "a tag that training does not know": (
        TRANSLATED,
        "backtranslate: {model: {step: teacher_1}, input: train.en, tag: <synth>}",
        ":16: ",
        "tag: must be '' or '<BT>', not '<synth>'",
    ),
    "no test text": (
        "{seed: 2,",
        "{data.test: null, seed: 2,",
        ":18: steps.final.eval.model: runs/tiny-student/teacher_2 has no test set",
        "",
    ),
    "no shortlist": (
        "source: valid.en",
        "shortlist: true, source: valid.en",
        ":18: step final: runs/tiny-student/student has no shortlist",
        "set decoding.shortlist in its training",
    ),
    "more candidates than the beam has": (
        "source: valid.en",
        "mbr: 16, beam: 5, source: valid.en",
        ":18: step final: mbr 16 is more than the beam of 5 can hold",
        "",
    ),
    "samples that keep text": (
        "source: valid.en",
        "sample: true, keep: x, source: valid.en",
        ":18: step final: sample",
        "a glossary or text to keep",
    ),
    "a reason to keep and to drop": (
        TRANSLATED,
        "clean: {config: tiny.yaml, keep: identical, drop: [language, identical]}",
        ":16: ",
        "identical is to be kept and to be dropped",
    ),
    "half a test text": (", reference: valid.xx", "", ":18: ", "source and reference go together"),
    "n best of nothing": ("closest_to: train.xx", "n_best: 3", ":16: ", "belongs to closest_to"),
    "a folder in the place of a text": ("input: train.en", "input: .", ":16: ", "input: . is a folder, not a text"),
    "a column that scores do not have": (
        TRANSLATED,
        "clean: {config: tiny.yaml, scores: ., keep_share: 0.5, by: lexicn}",
        ":16: ",
        "not 'lexicn'",
    ),
    "a template to keep and to drop": (
        TRANSLATED,
        "clean: {config: tiny.yaml, keep: template, max_per_template: 3}",
        ":16: ",
        "template is to be kept and to be dropped",
    ),
    "low scores without scores": (TRANSLATED, "clean: {config: tiny.yaml, drop: low-score}", ":16: ", "by `scores`"),
    "a compressed output": (
        "beam: 2, closest_to: train.xx",
        "output: out.xx.gz",
        ":16: step translated: out.xx.gz: cannot be written compressed",
        "",
    ),
    "a broken pattern": ("source: valid.en", "keep: '(', source: valid.en", ":18: ", "not a regular expression"),
    "a glossary without translations": (
        "source: valid.en",
        "glossary: train.en, source: valid.en",
        ":18: step final: train.en:1: has no tab",
        "",
    ),
    "more samples than there may be": (
        "beam: 2,",
        "sample: true, n_best: 2000,",
        ":16: steps.translated.distill.n_best: must be at most 1000",
        "",
    ),
    "no steps": ("name: tiny-student\nsteps:", "name: tiny-student\nset: {a: 1}\nstep:", "", "unknown key"),
}

TWO = (
    "data: {source_lang: en, target_lang: [xx, yy], train: [{source: train.en, target: train.xx, target_lang: xx}, "
    "{source: train.en, target: other.yy, target_lang: yy}], valid: {source: valid.en, target: valid.xx, "
    "target_lang: xx}, test: null}"
)
# Values of the configuration of model m, the steps after it, of which the last is refused, and the error
UNFIT = {
    "a teacher of the other direction": (
        "",
        [REVERSE, "s: {train: {config: tiny.yaml, set: {training.distill_from: [{step: reverse}]}}}"],
        "training.distill_from: {runs}/reverse translates from xx into en",
    ),
    "a teacher that reads other sentences": (
        "model.source_format: text </s>",
        ["s: {train: {config: tiny.yaml, set: {training.distill_from: [{step: m}]}}}"],
        "training.distill_from: {runs}/m has another model.source_format",
    ),
    "a start without tags": (
        "",
        [f"s: {{train: {{config: tiny.yaml, set: {{training.init_from: {{step: m}}, {TWO}}}}}}}"],
        "training.init_from: the tokenizer of {runs}/m has no tag for xx",
    ),
    "a start whose tokenizer is of another kind": (
        "",
        [
            "s: {train: {config: tiny.yaml, set: {training.init_from: {step: m}, tokenizer.type: unigram, "
            "tokenizer.sampling_alpha: 0.1}}}"
        ],
        "tokenizer.sampling_alpha: the tokenizer of {runs}/m is not a unigram model",
    ),
    "scores of another text": (
        "",
        [
            "sc: {score: {config: tiny.yaml, train: true}}",
            "c: {clean: {config: tiny.yaml, scores: {step: sc}, set: {data.train: {source: valid.en, "
            "target: valid.xx}}}}",
        ],
        "c.clean.scores: step sc scores another data.train than this one",
    ),
    "scores without similarity": (
        "",
        [
            "sc: {score: {config: tiny.yaml, train: true}}",
            "c: {clean: {config: tiny.yaml, scores: {step: sc}, by: similarity, keep_share: 0.5}}",
        ],
        "c.clean.by: step sc has no `embeddings`, so it writes no similarity",
    ),
    "scores of a language that no model has": (
        TWO,
        [
            REVERSE,
            f"sc: {{score: {{config: tiny.yaml, forward: {{step: m}}, backward: {{step: reverse}}, set: {{{TWO}}}}}}}",
        ],
        "sc.score.backward: {runs}/reverse translates xx to en, not yy to en",
    ),
    "the closest of one sample": (
        "",
        ["t: {distill: {model: {step: m}, input: train.en, closest_to: train.xx, sample: true, n_best: 1}}"],
        "t.distill.n_best: needs 2 or more translations",
    ),
    "an output below a file": (
        "",
        ["t: {distill: {model: {step: m}, input: train.en, output: train.xx/x.txt}}"],
        "train.xx is a file, not a folder",
    ),
    "models that read other sentences": (
        "",
        [
            "o: {train: {config: tiny.yaml, set: {model.source_format: text </s>}}}",
            "t: {distill: {model: [{step: m}, {step: o}], input: train.en}}",
        ],
        "t.distill.model: {runs}/o has another model.source_format or model.target_tag than {runs}/m",
    ),
    "int8 of a decoder-only model": (
        "model: {architecture: decoder_only, encoder_layers: 0}",
        ["t: {distill: {model: {step: m}, input: train.en, compute_type: int8}}"],
        "t.distill.compute_type: needs the CTranslate2 engine, which does not run {runs}/m, a decoder-only model",
    ),
    "CTranslate2 of a decoder-only model": (
        "model: {architecture: decoder_only, encoder_layers: 0}",
        ["t: {distill: {model: {step: m}, input: train.en, engine: ctranslate2}}"],
        "t.distill.engine: needs the CTranslate2 engine",
    ),
    "graphs of two models": (
        "",
        [
            "o: {train: {config: tiny.yaml, set: {seed: 3}}}",
            "t: {distill: {model: [{step: m}, {step: o}], input: train.en, engine: torch-graphs}}",
        ],
        "t.distill.engine: torch-graphs is for one model",
    ),
    "a file that a training does not write": (
        "",
        ["e: {eval: {model: {step: m}, source: {step: m, file: eval/test.baem}, reference: test.xx}}"],
        "step m writes test.json, test.source, test.reference, test.greedy, test.beam, not test.baem",
    ),
    "a translation of a test set that is not there": (
        "data.test: null",
        ["e: {eval: {model: {step: m}, source: {step: m, file: eval/test.beam}, reference: test.xx}}"],
        "step m has no test set, so it does not write test.beam",
    ),
    "a reference in another language than is asked for": (
        TWO,
        ["e: {eval: {model: {step: m}, source: test.en, reference: test.xx, to: yy}}"],
        "test.xx is xx text, not yy",
    ),
    "text from another language than is asked for": (
        "data: {source_lang: [en, yy], target_lang: xx, train: [{source: train.en, target: train.xx, source_lang: en}, "
        "{source: other.yy, target: train.xx, source_lang: yy}], valid: {source: valid.en, target: valid.xx, "
        "source_lang: en}, test: null}",
        ["t: {distill: {model: {step: m}, input: train.en, from: yy}}"],
        "train.en is en text, not yy",
    ),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_pipeline(tmp_path_factory.mktemp("bad"))


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_refused_with_file_and_line(name: str, folder: Path) -> None:
    old, new, *messages = BAD[name]
    text = TEACHERS.rstrip("\n") + f"\n  {REVERSE}\n  {OTHER}\n"
    if name == "names that differ by case":
        text = TEACHERS
    if name == "no test text":
        text = text.replace("{step: student}, source: valid.en, reference: valid.xx", "{step: teacher_2}")
    if name == "an output that is read by its path":
        text = text.replace("{step: translated}", "trans.xx")
    assert old in text
    (folder / "pipeline.yaml").write_text(text.replace(old, new, 1))
    refused = mt("pipeline", "pipeline.yaml", cwd=folder, code=2).stderr
    assert "pipeline.yaml" in refused
    assert refused.count("Traceback") == 0
    for message in messages:
        assert message in refused
    assert not (folder / "runs").exists()


def check(folder: Path, values: str, steps: Sequence[str]) -> None:
    """Check a pipeline of a model m, with some values of its configuration, and further steps."""
    lines = [f"m: {{train: {{config: tiny.yaml, set: {{{values}}}}}}}", *steps]
    (folder / "pipeline.yaml").write_text("\n  ".join(["name: unfit\nsteps:", *lines]))
    write_lines(folder / "other.yy", (folder / "train.xx").read_text().splitlines())
    check_plan(make_plan(load_pipeline(folder / "pipeline.yaml", [f"root={folder}"]), folder / "runs"))


@pytest.mark.parametrize("name", UNFIT)
def test_a_step_that_would_fail_after_hours_is_refused(name: str, folder: Path) -> None:
    values, steps, message = UNFIT[name]
    with pytest.raises(InputError) as refused:
        check(folder, values, steps)
    assert "problems" not in refused.value.message
    assert f"pipeline.yaml:{3 + len(steps)}: " in refused.value.message
    assert message.replace("{runs}", str(folder / "runs" / "unfit")) in refused.value.message


@pytest.mark.parametrize(
    ("values", "steps"),
    [
        (
            "",
            [
                "sc: {score: {config: tiny.yaml, train: true}}",
                "c: {clean: {config: tiny.yaml, scores: {step: sc}, set: {data.train: [{source: ./train.en, "
                "target: train.xx, weight: 2}, {source: gone.en, target: gone.xx, optional: true}]}}}",
            ],
        ),
        (TWO, ["e: {eval: {model: {step: m}, source: test.en, reference: test.xx, to: xx}}"]),
        (
            TWO.replace(
                "null",
                "[{source: test.en, target: test.xx, target_lang: xx}, "
                "{source: test.en, target: test.xx, target_lang: yy}]",
            ),
            ["e: {eval: {model: {step: m}, source: {step: m, file: eval/test.yy.source}, reference: test.xx, to: xx}}"],
        ),
        ("", ["s: {train: {config: tiny.yaml, set: {training.distill_from: [{step: m}]}}}"]),
        (TWO, ["s: {train: {config: tiny.yaml, set: {training.init_from: {step: m}}}}"]),
    ],
)
def test_a_step_that_only_looks_unfit_is_planned(values: str, steps: list[str], folder: Path) -> None:
    check(folder, values, steps)


@pytest.mark.skipif(find_spec("comet") is not None, reason="unbabel-comet is installed")
def test_comet_needs_its_package(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "checkpoints").mkdir()
    for name in ("hparams.yaml", "checkpoints/model.ckpt"):
        (tmp_path / name).touch()
    with pytest.raises(InputError, match=r"pipeline.yaml:4: steps.e.eval.metrics: .* the package unbabel-comet"):
        check(folder, "", [f"e: {{eval: {{model: {{step: m}}, metrics: [comet], comet_model: {tmp_path}}}}}"])


def test_a_pipeline_has_a_step(folder: Path) -> None:
    (folder / "pipeline.yaml").write_text("name: tiny-student\nsteps: {}\n")
    refused = mt("pipeline", "pipeline.yaml", cwd=folder, code=2).stderr
    assert "pipeline.yaml:2: steps: there is no step in it" in refused


def test_all_problems_are_listed_at_once(folder: Path) -> None:
    text = TEACHERS.replace("beam: 2", "beam: wide").replace("source: valid.en", "source: 5")
    (folder / "pipeline.yaml").write_text(text)
    refused = mt("train", "--config", "pipeline.yaml", cwd=folder, code=2).stderr
    assert "2 problems in pipeline.yaml" in refused
    (folder / "pipeline.yaml").write_text(TEACHERS.replace("model: {step: student}", "model: {stp: student}"))
    refused = mt("train", "--config", "pipeline.yaml", cwd=folder, code=2).stderr
    assert "pipeline.yaml:18: " in refused
    assert "did you mean step?" in refused
    assert "too short" not in refused


def test_a_filter_is_checked_too(folder: Path) -> None:
    base = f"name: f\nsteps:\n  {REVERSE}\n  t: {{train: {{config: tiny.yaml}}}}\n"
    score = "  s: {score: {config: tiny.yaml, forward: {step: %s}, backward: {step: %s}}}\n"
    clean = "  c: {clean: {config: tiny.yaml, %s}}\n"
    use = "  u: {train: {config: tiny.yaml, set: {data.train: {source: {step: c, file: %s}, target: %s}}}}\n"
    good = base + score % ("t", "reverse")
    kept = good + clean % "scores: {step: s}"
    bad = {
        base + score % ("reverse", "t"): "translates xx to en, not en to xx",
        base
        + "  s: {score: {config: tiny.yaml, train: true, embeddings: no}}\n": "pipeline.yaml:5: step s: --embeddings",
        base + "  s: {score: {config: tiny.yaml, forward: {step: t}}}\n": "give `forward` and `backward`",
        good + clean % "keep_share: 0.5": "select by `scores`",
        good + clean % "scores: {step: s}, by: dual": "no threshold for dual; add min_score or keep_share",
        good + clean % "scores: .": "pipeline.yaml:6: steps.c.clean.scores: . has no scores.tsv",
        good + clean % "scores: {step: t}": "needs a score step, and t is a train step",
        good + clean % "scores: {step: s}, keep_share: 2": "must be at most 1",
        kept + use % ("train.yy", "{step: c, file: train.xx}"): "step c writes train.en, train.xx, not train.yy",
        kept + use % ("train.en", "train.xx"): "the lines of train.xx are not those of",
        kept + use % ("train.xx", "{step: c, file: train.en}"): "is xx text, not en",
    }
    for text, message in bad.items():
        (folder / "pipeline.yaml").write_text(text.replace("name: f", "name: filter"))
        assert message in mt("train", "--config", "pipeline.yaml", cwd=folder, code=2).stderr, text
    (folder / "pipeline.yaml").write_text(kept + use % ("train.en", "{step: c, file: train.xx}"))
    mt("pipeline", "pipeline.yaml", "--emit", "slurm", cwd=folder)


def test_cleaned_text_of_one_language_is_trained_on(folder: Path) -> None:
    one = "{source_lang: en, target_lang: en, train: {source: %s, target: %s}, valid: {source: valid.en, "
    one += "target: valid.xx}, test: null}"
    kept = [f"{{step: kept, file: train.{side}}}" for side in ("source", "target")]
    steps = {"kept": ("clean", one % ("train.en", "train.xx")), "model": ("train", one % tuple(kept))}
    lines = [
        f"  {name}: {{{kind}: {{config: tiny.yaml, set: {{data: {data}}}}}}}" for name, (kind, data) in steps.items()
    ]
    plan_of(folder, "\n".join(["name: one", "steps:", *lines]))


@pytest.mark.parametrize(("optional", "names"), [("gone", ("train", "train-1")), ("valid", ("train-1", "train"))])
def test_cleaned_sources_are_numbered_without_those_that_are_left_out(
    optional: str, names: tuple[str, str], folder: Path
) -> None:
    """The names are those that `mt data clean` writes."""
    sources = (
        f"[{{source: train.en, target: train.xx}}, {{source: {optional}.en, target: {optional}.xx, optional: true}}]"
    )
    for name in names:
        text = f"""\
name: few
steps:
  kept: {{clean: {{config: tiny.yaml, set: {{data.train: {sources}}}}}}}
  model:
    train:
      config: tiny.yaml
      set: {{data.train: {{source: {{step: kept, file: {name}.en}}, target: {{step: kept, file: {name}.xx}}}}}}
"""
        if name == names[0]:
            plan_of(folder, text)
        else:
            with pytest.raises(InputError, match=rf"step kept writes {names[0]}.en, .*, not {name}.en"):
                plan_of(folder, text)


def test_many_rounds_of_training_and_translation_are_planned(folder: Path) -> None:
    data = "data.train: {source: train.en, target: %s}"
    lines, target, start = ["name: rounds", "steps:"], "train.xx", ""
    for number in range(40):
        values = data % target + start
        lines.append(f"  model_{number}: {{train: {{config: tiny.yaml, set: {{{values}}}}}}}")
        lines.append(f"  text_{number}: {{distill: {{model: {{step: model_{number}}}, input: train.en}}}}")
        target, start = f"{{step: text_{number}}}", f", training.init_from: {{step: model_{number}}}"
    (folder / "pipeline.yaml").write_text("\n".join(lines))
    plan = make_plan(load_pipeline(folder / "pipeline.yaml", [f"root={folder}"]), folder / "runs")
    assert plan.upstream["text_39"] == set(plan.steps) - {"text_39"}
    assert plan.upstream["model_0"] == set()
    assert plan.cores("model_20", 8) == plan.cores("text_39", 1)


@pytest.mark.skipif(find_spec("ftfy") is not None, reason="ftfy is installed")
def test_a_repair_needs_its_package(folder: Path) -> None:
    with pytest.raises(InputError, match="--repair needs a package"):
        plan_of(folder, "name: r\nsteps: {kept: {clean: {config: tiny.yaml, repair: true}}}\n")


def test_what_only_a_command_refuses_is_refused_at_its_step(folder: Path) -> None:
    export = "{model: {step: t}, format: huggingface, quantization: int8}"
    text = f"name: p\nsteps:\n  t: {{train: {{config: tiny.yaml}}}}\n  e: {{export: {export}}}\n"
    with pytest.raises(InputError, match=r"pipeline.yaml:4: step e: --quantization is for ctranslate2"):
        plan_of(folder, text)
    with pytest.raises(InputError, match=r"pipeline.yaml:3: step t: evaluation.bleu_tokenize: ko-mecab cannot"):
        plan_of(folder, text, "steps.t.train.set.evaluation.bleu_tokenize=ko-mecab")


def test_a_text_to_translate_is_read_before_anything_runs(folder: Path) -> None:
    (folder / "mono.en").write_bytes(b"one\ntwo\ncaf\xe9\n")
    last = "  last: {distill: {model: {step: teacher_1}, input: mono.en}}"  # whose output no other step reads
    (folder / "pipeline.yaml").write_text(f"{TEACHERS.rstrip()}\n{last}\n")
    refused = mt("train", "--config", "pipeline.yaml", cwd=folder, code=2).stderr
    assert "mono.en:3: not valid UTF-8" in refused
    assert not (folder / "runs").exists()


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has such a device")
def test_a_device_is_required_only_where_a_step_is_to_run(folder: Path) -> None:
    command = ["pipeline", "pipeline.yaml"]
    text = TEACHERS.replace("{seed: 2,", "{seed: 2, training.device: cuda,").replace("beam: 2", "beam: 2, device: cuda")
    (folder / "pipeline.yaml").write_text(text)
    for words in (["--dry-run"], [], ["--step", "teacher_2"]):
        refused = mt(*command, *words, cwd=folder, code=2).stderr
        assert "pipeline.yaml:14: steps.teacher_2.train.set.training.device: this machine has no usable cuda" in refused
        assert ("pipeline.yaml:16: steps.translated.distill.device: this" in refused) == (len(words) < 2)
    mt(*command, "--emit", "slurm", cwd=folder)
    assert not (folder / "runs").exists()


def test_torch_ignores_a_shortlist_that_is_not_there(folder: Path) -> None:
    plan_of(folder, TEACHERS.replace("beam: 2,", "beam: 2, shortlist: true,"))  # of two models


def test_a_model_that_no_step_trains_is_checked_too(trained: Path, folder: Path, tmp_path: Path) -> None:
    model = tmp_path / "model"
    shutil.copytree(trained / "runs/tiny/model", model)
    steps = {
        f"distill: {{model: {model}, input: train.en, shortlist: true}}": "has no shortlist",
        f"export: {{model: {model}, format: ctranslate2, quantization: int8}}": "has no validation set to measure",
    }
    for step, message in steps.items():
        (folder / "pipeline.yaml").write_text(f"name: one\nsteps: {{last: {{{step}}}}}\n")
        assert message in mt("pipeline", "pipeline.yaml", "--dry-run", cwd=folder, code=2).stderr
    (folder / "pipeline.yaml").write_text(f"name: one\nsteps: {{last: {{{step.replace('int8', 'float32')}}}}}\n")
    mt("pipeline", "pipeline.yaml", "--emit", "slurm", cwd=folder)


def test_finished_models_are_refused_with_file_and_line(trained: Path, folder: Path, tmp_path: Path) -> None:
    finished = tmp_path / "model"
    shutil.copytree(trained / "runs/tiny/model", finished)
    other = "o: {train: {config: tiny.yaml, set: {tokenizer.vocab_size: 310}}}"
    refused = {
        f"training.init_from: {folder}": "training.init_from",
        f"{{training.init_from: {finished}, model.d_model: 48}}": "differs from this configuration in model.d_model",
        f"{{training.init_from: {{step: o}}, training.distill_from: [{finished}]}}": "the vocabulary of",
    }
    for values, message in refused.items():
        lines = [
            "name: one",
            "steps:",
            f"  {other}",
            f"  s: {{train: {{config: tiny.yaml, set: {{{values.strip('{}')}}}}}}}",
        ]
        (folder / "pipeline.yaml").write_text("\n".join(lines))
        shown = mt("pipeline", "pipeline.yaml", "--dry-run", cwd=folder, code=2).stderr
        assert "pipeline.yaml:4: " in shown
        assert message in shown
    lines[3] = f"  s: {{distill: {{model: [{finished}, {{step: o}}], input: train.en}}}}"
    (folder / "pipeline.yaml").write_text("\n".join(lines))
    shown = mt("pipeline", "pipeline.yaml", "--dry-run", cwd=folder, code=2).stderr
    assert "pipeline.yaml:4: " in shown
    assert f"the vocabulary of runs/one/o is not that of {finished}" in shown


@pytest.mark.parametrize("name", ["terms.tsv", "terms.tbx"])
def test_a_glossary_with_two_translations_of_a_term_is_refused(name: str, folder: Path) -> None:
    entry = (
        "<termEntry><langSet xml:lang='en'><tig><term>a</term></tig></langSet>"
        "<langSet xml:lang='xx'><tig>{}</tig></langSet></termEntry>"
    )
    entries = "".join(entry.format(f"<term>{target}</term>") for target in "bc")
    tbx = f"<martif type='TBX'><text><body>{entries}</body></text></martif>"
    (folder / name).write_text(tbx if name.endswith("tbx") else "a\tb\na\tc\n")
    (folder / "pipeline.yaml").write_text(TEACHERS.replace("source: valid.en", f"glossary: {name}, source: valid.en"))
    shown = mt("pipeline", "pipeline.yaml", "--dry-run", cwd=folder, code=2).stderr
    assert re.search(rf"pipeline.yaml:18: step final: {name}:\d: 'a' is 'c' here and 'b' in line \d", shown)


def test_terms_without_languages_are_for_one_direction(folder: Path) -> None:
    write_lines(folder / "terms.tsv", ["a\tp"])
    write_lines(folder / "other.yy", (folder / "train.xx").read_text().splitlines())
    tests = [f"{{source: test.en, target: test.xx, target_lang: {code}}}" for code in ("xx", "yy")]

    def read(test: str, more: str) -> None:
        values = TWO.replace("null", f"[{test}]")
        steps = f"  m: {{train: {{config: tiny.yaml, set: {{{values}}}}}}}\n"
        steps += f"  e: {{eval: {{model: {{step: m}}, glossary: terms.tsv{more}}}}}\n"
        plan_of(folder, f"name: two\nsteps:\n{steps}")

    with pytest.raises(InputError, match=r"step e: .*terms.tsv: a TSV file does not name its languages"):
        read(", ".join(tests), "")
    read(", ".join(tests), ", to: xx")
    read(tests[0], "")
    read(", ".join(tests), ", source: test.en, reference: test.xx, to: xx")


def test_models_of_one_text_may_be_validated_on_several(folder: Path) -> None:
    other = "{seed: 2, data.test: null, data.valid: %s,"
    command = ["pipeline", "pipeline.yaml", "--emit", "slurm"]
    (folder / "pipeline.yaml").write_text(TEACHERS.replace("{seed: 2,", other % "{source: test.en, target: test.xx}"))
    mt(*command, cwd=folder)
    (folder / "pipeline.yaml").write_text(TEACHERS.replace("{seed: 2,", other % "{from_train: 20}"))
    assert "the vocabulary of runs/tiny-student/teacher_2 is not" in mt(*command, cwd=folder, code=2).stderr


@pytest.mark.parametrize(
    ("values", "is_other"),
    [
        ("augmentation.typos: 0.1", False),
        ("augmentation.title_case: 0.1", True),
        ("augmentation.terms: 0.1", True),
        ("data.root: elsewhere", True),
    ],
)
def test_models_of_an_ensemble_need_pieces_of_the_same_text(folder: Path, values: str, is_other: bool) -> None:
    (folder / "elsewhere").mkdir(exist_ok=True)
    for path in [*folder.glob("*.en"), *folder.glob("*.xx")]:
        (folder / "elsewhere" / path.name).write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[::-1]))
    values = values.replace("elsewhere", str(folder / "elsewhere"))
    other = f"n: {{train: {{config: tiny.yaml, set: {{seed: 2, {values}}}}}}}"
    distill = "d: {distill: {model: [{step: m}, {step: n}], input: train.en}}"
    if not is_other:
        return check(folder, "seed: 1", [other, distill])
    with pytest.raises(InputError, match=r"the vocabulary of .* is not that of"):
        check(folder, "seed: 1", [other, distill])


def test_the_keys_of_a_step_are_options_of_its_command(folder: Path) -> None:
    write_lines(folder / "terms.tsv", ["a\tp"])
    keys = "from: en, glossary: terms.tsv, keep: ['x+', y], metrics: [bleu, ter], shortlist: false"
    steps = plan_of(folder, TEACHERS.replace("source: valid.en", f"{keys}, source: valid.en")).steps
    assert [name for name, step in steps.items() if "--force" in step.words] == ["translated", "final"]
    words = " ".join(steps["final"].words)
    assert "--from en --no-shortlist --source" in words
    assert f"--glossary {folder}/terms.tsv --keep x+ --keep y --metrics bleu,ter --output" in words


def test_only_a_steps_own_output_is_replaced(folder: Path) -> None:
    text = TEACHERS.replace("beam: 2,", "beam: 2, output: out.xx,")
    plan = plan_of(folder, text)
    (folder / "out.xx").touch()
    with pytest.raises(InputError, match="and this step did not write it"):
        plan_of(folder, text)
    plan.records.mkdir(parents=True)
    try:
        note_attempt(plan, plan.steps["translated"], "key", 0.0)
        plan_of(folder, text)
    finally:
        shutil.rmtree(folder / "runs")


def test_values_for_all_steps_give_way_to_a_steps_own(folder: Path) -> None:
    text = TEACHERS.replace("steps:", "set: {seed: 7, training.max_steps: 5}\nsteps:", 1)
    (folder / "texts").mkdir()
    for name in ("train", "valid", "test"):
        for code in ("en", "xx"):
            shutil.copy(folder / f"{name}.{code}", folder / "texts")
    plan = plan_of(folder, text, f"root={folder / 'texts'}")
    config = plan.steps["teacher_2"].config
    assert config is not None
    assert (config.seed, config.training.max_steps, config.data.root) == (2, 8, str(folder / "texts"))
    assert plan.steps["student"].config.seed == 7  # type: ignore[union-attr]


@pytest.mark.parametrize("place", ["set", "steps.teacher_1.train.set"])
def test_set_replaces_a_value_however_the_file_writes_its_key(place: str, folder: Path) -> None:
    values = "{training: {learning_rate: 0.001}, training.max_steps: 6}"
    both = {"set": values, "steps.teacher_1.train.set": "{}"}
    if place != "set":
        both = {"set": "{}", place: values}
    text = TEACHERS.replace("steps:", f"set: {both['set']}\nsteps:", 1)
    text = text.replace(f"{{seed: 1, {FEW}}}", both["steps.teacher_1.train.set"])
    config = plan_of(folder, text, f"{place}.training.max_steps=9").steps["teacher_1"].config
    assert config is not None
    assert (config.training.max_steps, config.training.learning_rate) == (9, 0.001)
    with pytest.raises(InputError, match=rf"{place}.training.max_steps=few: training.max_steps: must be"):
        plan_of(folder, text, f"{place}.training.max_steps=few")


def test_a_key_of_a_training_is_refused_with_the_form_that_works(folder: Path) -> None:
    (folder / "pipeline.yaml").write_text(TEACHERS)
    words = ["pipeline", "pipeline.yaml", "--set", "training.max_steps=9"]
    assert "steps.NAME.train.set.training" in mt(*words, cwd=folder, code=2).stderr


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


def test_damaged_timings_are_measured_again(folder: Path) -> None:
    plan = plan_of(folder, TEACHERS)
    plan.records.mkdir(parents=True)
    (plan.records / ".timings.json").write_text("[]")
    try:
        assert estimate_costs(plan, ["teacher_1"])["teacher_1"].seconds is None  # of few steps
    finally:
        shutil.rmtree(folder / "runs")


def test_a_run_is_not_overwritten_by_a_pipeline(folder: Path) -> None:
    (folder / "runs" / "mine").mkdir(parents=True)
    (folder / "runs" / "mine" / "config.yaml").write_text(CONFIG)
    (folder / "pipeline.yaml").write_text(TEACHERS.replace("name: tiny-student", "name: mine"))
    refused = mt("pipeline", "pipeline.yaml", cwd=folder, code=2).stderr
    assert "pipeline.yaml:1: runs/mine is the run of a training" in refused


def test_a_pipelines_folder_is_not_the_run_of_a_training(folder: Path) -> None:
    (folder / "runs" / "ours" / ".pipeline").mkdir(parents=True)
    refused = mt("train", "tiny.yaml", "--set", "name=ours", cwd=folder, code=2).stderr
    assert "runs/ours is the folder of a pipeline" in refused
    assert [path.name for path in (folder / "runs" / "ours").iterdir()] == [".pipeline"]


def test_arguments_from_python(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    (folder / "pipeline.yaml").write_text(TEACHERS)
    assert read_plan("pipeline.yaml", "steps.final.eval.beam=4").steps["final"].settings.beam == 4
    for jobs in (0, -1, 1001):
        for use in (run_pipeline, show_plan):
            with pytest.raises(InputError, match=f"jobs {jobs} is not between 1 and 1000"):
                use("pipeline.yaml", jobs=jobs)


def test_options_may_come_before_the_file(folder: Path) -> None:
    (folder / "pipeline.yaml").write_text(TEACHERS)
    script = mt("pipeline", "pipeline.yaml", "--emit", "slurm", cwd=folder).stdout
    assert mt("pipeline", "--emit", "slurm", "pipeline.yaml", cwd=folder).stdout == script
    assert "status" in mt("pipeline", "--help", cwd=folder).stdout
    assert "--jobs is for pipelines" in mt("train", "tiny.yaml", "--jobs", "2", cwd=folder, code=2).stderr
    for words in (
        ["--step", "typo", "--dry-run"],
        ["--step", "typo", "--emit", "slurm"],
        ["--emit", "slurm", "--jobs", "2"],
    ):
        assert " contradict each other" in mt("pipeline", "pipeline.yaml", *words, cwd=folder, code=2).stderr


def test_help_and_other_files_are_as_before(folder: Path) -> None:
    assert "--jobs" in mt("train", "--help", cwd=folder).stdout
    for jobs in ((), ("--jobs", "2")):
        assert "no-such.yaml: no such file" in mt("train", "no-such.yaml", *jobs, cwd=folder, code=2).stderr
