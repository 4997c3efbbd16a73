"""Pipelines that are wrong: one sentence with file and line, before anything runs."""

from pathlib import Path

import pytest

from command import mt
from mt.errors import InputError
from pipeline_helpers import REVERSE, TEACHERS, TWO, check_steps

TRANSLATED = "distill: {model: [{step: teacher_1}, {step: teacher_2}], input: train.en, beam: 2, closest_to: train.xx}"
STUDENT = "{source: train.en, target: {step: translated}, synthetic: true}"
OTHER = "another: {train: {config: tiny.yaml, set: {tokenizer.vocab_size: 310}}}"

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
    "a NUL in the name of a file": (
        "target: {step: translated}",
        'target: {step: translated, file: "a\\0b"}',
        ":9: ",
        "is not in the step's folder",
    ),
    "samples with a beam": (
        "reference: valid.xx}",
        "reference: valid.xx, beam: 2, sample: true}",
        ":18: step final: beam and sample contradict each other",
    ),
    "folders and files in the place of each other": (
        "{seed: 1,",
        "{seed: 1, tokenizer.file: ., data.valid: {source: valid.en, target: .}, data.test: {folder: test.en},",
        ":12: steps.teacher_1.train: . is a folder, not a file",
        ":12: steps.teacher_1.train.set.data.valid: . is a folder, not a file",
        ":12: steps.teacher_1.train.set.data.test: test.en is a file, not a folder",
    ),
    "a cycle": ("{seed: 1,", "{training.init_from: {step: student},", ":3: ", "student needs"),
    "a step that needs itself": (
        "{seed: 1,",
        "{training.init_from: {step: teacher_1},",
        ":11: ",
        "teacher_1 needs teacher_1",
    ),
    "no model": ("model: {step: student}", "model: {step: translated}", ":18: ", "needs a step of kind train"),
    "a file of a model": (
        "model: {step: student}",
        "model: {step: student, file: model}",
        ":18: ",
        "leave out `file`; the step alone names its output",
    ),
    "a text as a model": ("model: {step: student}", "model: train.en", ":18: ", "train.en: there is no such folder"),
    "a folder without a model": (
        "model: {step: student}",
        "model: .",
        ":18: steps.final.eval.model: ",
        "MANIFEST.json",
    ),
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
    "a text as a configuration": (
        "train: {config: tiny.yaml, set: {seed: 1",
        "train: {config: train.en, set: {seed: 1",
        ":12: step teacher_1: train.en: holds a single value",
        "",
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
    "a folder in the place of a text": ("input: train.en", "input: .", ":16: ", "input: . is a folder, not a file"),
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
        "step m writes eval/test.json, eval/test.source, eval/test.reference, eval/test.greedy, eval/test.beam, "
        "not eval/test.baem",
    ),
    "a file that is not in a training's folder": (
        "",
        ["t: {distill: {model: {step: m}, input: {step: m, file: test.beam}}}"],
        "t.distill.input: step m writes eval/test.json, ",
    ),
    "a tokenizer that a training does not write": (
        "",
        ["s: {train: {config: tiny.yaml, set: {tokenizer.file: {step: m, file: tokenizer/source.json}}}}"],
        "step m writes tokenizer/tokenizer.json, not tokenizer/source.json",
    ),
    "a file that an evaluation does not write": (
        "",
        [
            "e: {eval: {model: {step: m}, mbr: 4}}",
            "t: {distill: {model: {step: m}, input: {step: e, file: test.bean}}}",
        ],
        "step e writes test.json, test.source, test.reference, test.greedy, test.beam, test.mbr, not test.bean",
    ),
    "a file of an evaluation of another text": (
        "",
        [
            "e: {eval: {model: {step: m}, source: valid.en, reference: valid.xx, beam: 3}}",
            "t: {distill: {model: {step: m}, input: {step: e, file: test.beam}}}",
        ],
        "step e writes valid.json, valid.source, valid.reference, valid.greedy, valid.beam, not test.beam",
    ),
    "a file that scores do not have": (
        "",
        [
            "sc: {score: {config: tiny.yaml, train: true}}",
            "t: {distill: {model: {step: m}, input: {step: sc, file: score.tsv}}}",
        ],
        "step sc writes scores.tsv, scores.json, scores.html, not score.tsv",
    ),
    "a translation of a test set that is not there": (
        "data.test: null",
        ["e: {eval: {model: {step: m}, source: {step: m, file: eval/test.beam}, reference: test.xx}}"],
        "step m has no test set, so it does not write eval/test.beam",
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


@pytest.mark.parametrize("name", UNFIT)
def test_a_step_that_would_fail_after_hours_is_refused(name: str, folder: Path) -> None:
    values, steps, message = UNFIT[name]
    with pytest.raises(InputError) as refused:
        check_steps(folder, values, steps)
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
        (
            "",
            [
                "e: {eval: {model: {step: m}, sample: true}}",
                "t: {distill: {model: {step: m}, input: {step: e, file: test.source}}}",
                "u: {eval: {model: {step: m}, source: test.en, reference: {step: e, file: test.sample}}}",
                "v: {distill: {model: {step: m}, input: {step: m, file: data/text/train.source}}}",
                "s: {train: {config: tiny.yaml, set: {tokenizer.file: {step: m, file: tokenizer/tokenizer.json}}}}",
            ],
        ),
        (
            TWO.replace(
                "null",
                "[{source: test.en, target: test.xx, target_lang: xx}, "
                "{source: test.en, target: test.xx, target_lang: yy}]",
            ),
            [
                "e: {eval: {model: {step: m}, to: yy}}",
                "t: {distill: {model: {step: m}, to: xx, input: {step: e, file: test.yy.source}}}",
                "f: {eval: {model: {step: m}}}",
                "u: {distill: {model: {step: m}, to: xx, input: {step: f, file: test.xx.source}}}",
            ],
        ),
        (TWO, ["s: {train: {config: tiny.yaml, set: {training.init_from: {step: m}}}}"]),
    ],
)
def test_a_step_that_only_looks_unfit_is_planned(values: str, steps: list[str], folder: Path) -> None:
    check_steps(folder, values, steps)
