"""What a pipeline is checked for before anything runs, and what is planned."""

import re
import shutil
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

from command import mt
from conftest import CONFIG
from data_helpers import write_lines
from mt.api.pipelines import read_plan, run_pipeline, show_plan
from mt.errors import InputError
from mt.extras.pipelines.loading import load_pipeline
from mt.extras.pipelines.plan import make_plan
from mt.extras.pipelines.records import note_attempt
from pipeline_helpers import FEW, REVERSE, TEACHERS, TWO, check_steps, plan_of


@pytest.mark.skipif(find_spec("comet") is not None, reason="unbabel-comet is installed")
def test_comet_needs_its_package(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "checkpoints").mkdir()
    for name in ("hparams.yaml", "checkpoints/model.ckpt"):
        (tmp_path / name).touch()
    with pytest.raises(InputError, match=r"pipeline.yaml:4: steps.e.eval.metrics: .* the package unbabel-comet"):
        check_steps(folder, "", [f"e: {{eval: {{model: {{step: m}}, metrics: [comet], comet_model: {tmp_path}}}}}"])


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
        good + clean % "scores: {step: t}": "needs a step of kind score, but t is of kind train",
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


def test_a_warning_names_the_step(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    plan_of(folder, TEACHERS.replace("{seed: 1, ", "{seed: 1, training.warmup_steps: 99, "))
    assert "pipeline.yaml:11: step teacher_1: training.max_steps: the learning rate rises for 99 steps" in caplog.text


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
        return check_steps(folder, "seed: 1", [other, distill])
    with pytest.raises(InputError, match=r"the vocabulary of .* is not that of"):
        check_steps(folder, "seed: 1", [other, distill])


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
        (plan.records / "translated.attempts").write_bytes(b"\xff\n")  # damaged
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
