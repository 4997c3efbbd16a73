"""Steps of a plan: the values of their configurations, and the inputs that their keys depend on."""

import shutil
from pathlib import Path

import pytest

from mt.api.pipelines import run_pipeline, slurm_script
from mt.errors import InputError, MachineError
from mt.extras.pipelines.estimates import estimate_costs
from mt.extras.pipelines.loading import is_pipeline, load_pipeline
from mt.extras.pipelines.plan import make_plan
from mt.extras.pipelines.records import output_digest, step_key
from pipeline_helpers import TEACHERS, make_pipeline, plan_of

CLEANED = "kept: {clean: {config: tiny.yaml, keep: [wrong-language]}}"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_pipeline(tmp_path_factory.mktemp("steps"))


def test_a_section_whose_keys_are_commented_out_changes_nothing(folder: Path) -> None:
    text = "name: few\nsteps: {one: {train: {config: tiny.yaml, set: {model: , training: , data: {test: null}}}}}\n"
    [step] = plan_of(folder, text).steps.values()
    [same] = plan_of(folder, "name: few\nsteps: {one: {train: {config: tiny.yaml}}}\n").steps.values()
    assert step.config is not None
    assert same.config is not None
    assert (step.config.model, step.config.training) == (same.config.model, same.config.training)
    assert step.config.data.test is None


@pytest.mark.parametrize(
    "override",
    [
        "steps.teacher_2.train.set.training.init_from={step: teacher_1}",
        "steps.teacher_2.train.set.training={init_from: {step: teacher_1}}",
    ],
)
def test_set_names_a_model_where_the_file_has_no_such_section(folder: Path, override: str) -> None:
    text = "name: two\nsteps:\n  teacher_1: {train: {config: tiny.yaml}}\n  teacher_2: {train: {config: tiny.yaml}}\n"
    plan = plan_of(folder, text, override)
    assert plan.steps["teacher_2"].needs == ("teacher_1",)


@pytest.mark.parametrize(
    ("shared", "own", "override", "minutes"),
    [
        ("{}", "{training.minutes: 12}", "steps.one.train.set.training.max_steps=100", None),
        ("{training.minutes: 12}", "{}", "set.training.max_steps=100", None),
        ("{training.minutes: 12}", "{training.max_steps: 100}", "set.seed=1", None),
        ("{}", "{training.minutes: 12, training.max_steps: 100}", "set.seed=1", 12),
        ("{}", "{training.minutes: 12}", "set.training.max_steps=100", 12),
    ],
)
def test_max_steps_lifts_the_minutes_that_it_has_precedence_over(
    folder: Path, shared: str, own: str, override: str, minutes: float | None
) -> None:
    text = f"name: few\nset: {shared}\nsteps: {{one: {{train: {{config: tiny.yaml, set: {own}}}}}}}\n"
    config = plan_of(folder, text, override).steps["one"].config
    assert config is not None
    assert (config.training.max_steps, config.training.minutes) == (100, minutes)


@pytest.mark.parametrize(
    ("text", "is_one"),
    [("steps: 5", True), ("steps: {}\ndata: {}", True), ("steps: 1000\ndata: {}", False), ("data: {}", False)],
)
def test_a_training_with_a_mistyped_key_is_not_a_pipeline(tmp_path: Path, text: str, is_one: bool) -> None:
    (tmp_path / "x.yaml").write_text(text)
    assert is_pipeline(tmp_path / "x.yaml") is is_one


def test_the_settings_of_trainings_do_not_change_cleaned_text(folder: Path) -> None:
    text = f"name: clean\nsteps: {{{CLEANED}}}\n"

    def key(*overrides: str) -> str:
        return step_key(plan_of(folder, text, *overrides).steps["kept"])

    before = key()
    assert key("set.training.max_steps=77", "set.decoding.beam_size=3", "set.model.d_model=64", "set.seed=5") == before
    assert key("set.data.max_ratio=3") != before
    assert key("set.tokenizer.vocab_size=310") != before


def test_cleaning_does_not_read_the_tokenizer_of_a_step_of_the_same_name(folder: Path) -> None:
    text = f"name: clean\nset: {{name: other}}\nsteps: {{{CLEANED}}}\n"
    config = plan_of(folder, text).steps["kept"].config
    assert config is not None
    assert config.name == "kept"


def test_embeddings_are_identified_by_their_files(folder: Path) -> None:
    def key(embedder: Path) -> str:
        steps = f"scores: {{score: {{config: tiny.yaml, train: true, embeddings: {embedder}}}}}"
        (folder / "pipeline.yaml").write_text(f"name: scores\nsteps: {{{steps}}}\n")
        plan = make_plan(load_pipeline(folder / "pipeline.yaml", [f"root={folder}"]), folder / "runs")
        return step_key(plan.steps["scores"])

    for name in ("one", "two"):
        (folder / name).mkdir()
        (folder / name / "weights").write_text("x")
    before = key(folder / "one")
    (folder / "two" / ".hidden").write_text("x")
    assert key(folder / "two") == before
    (folder / "two" / "weights").write_text("longer")
    assert key(folder / "two") != before


def test_a_pipeline_that_cannot_start_has_a_report(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    output = plan_of(folder, f"name: full\nsteps: {{{CLEANED}}}\n").folder
    output.mkdir(parents=True)
    (output / ".pipeline").touch()
    with pytest.raises(MachineError, match=r"\.pipeline: cannot write here"):
        run_pipeline("pipeline.yaml", only="kept")
    assert "0 of 1 steps are done" in (output / "report.html").read_text()
    (output / "report.html").unlink()
    (output / "report.html").mkdir()
    with pytest.raises(MachineError, match=r"\.pipeline: cannot write here"):
        run_pipeline("pipeline.yaml", only="kept")


@pytest.mark.parametrize(("size", "message"), [("abc", "RANK, WORLD_SIZE"), ("", "RANK"), ("2", "without torchrun")])
def test_a_pipeline_refuses_several_ranks(
    size: str, message: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"):
        monkeypatch.setenv(name, size if name == "WORLD_SIZE" else "0")
    with pytest.raises(InputError) as refused:
        run_pipeline(folder / "pipeline.yaml")
    assert message in str(refused.value) + refused.value.hint


def test_scores_do_not_replace_what_is_there(folder: Path) -> None:
    theirs = folder / "runs" / "tiny-student" / "final" / "mine.json"
    theirs.parent.mkdir(parents=True)
    theirs.write_text("{}")
    with pytest.raises(InputError, match=r"final is there, and this step did not write it; .* rename the step"):
        plan_of(folder, TEACHERS)
    theirs.unlink()
    theirs.parent.rmdir()


@pytest.mark.parametrize(
    "step",
    [
        "clean: {config: tiny.yaml}",
        "score: {config: tiny.yaml, train: true}",
        "export: {model: {step: t}, format: ctranslate2}",
    ],
)
def test_a_folder_that_another_command_wrote_is_refused_before_anything_runs(folder: Path, step: str) -> None:
    theirs = folder / "runs" / "kinds" / "x" / "translations.txt"
    theirs.parent.mkdir(parents=True)
    theirs.touch()
    text = f"name: kinds\nroot: {folder}\nsteps:\n  t: {{train: {{config: tiny.yaml}}}}\n  x: {{{step}}}\n"
    (folder / "pipeline.yaml").write_text(text)
    with pytest.raises(InputError, match=r"yaml:5: steps.x.*/x: this folder .* not made by `mt .*; remove it, or give"):
        slurm_script(folder / "pipeline.yaml", runs=folder / "runs")
    shutil.rmtree(folder / "runs")


@pytest.mark.parametrize(
    ("kind", "names"),
    [
        ("score", ["scores.tsv", "scores.json"]),
        ("eval", ["test.json", "test.source", "test.reference", "test.greedy", "test.beam", "test.mbr"]),
    ],
)
def test_an_output_is_altered_if_any_of_its_files_is(kind: str, names: list[str], tmp_path: Path, folder: Path) -> None:
    settings = {"score": "{config: tiny.yaml, train: true}", "eval": "{model: {step: m}}"}[kind]
    text = f"name: few\nsteps: {{m: {{train: {{config: tiny.yaml}}}}, scored: {{{kind}: {settings}}}}}\n"
    plan = plan_of(folder, text, f"name={tmp_path.name}")
    step = plan.steps["scored"]
    step.output.mkdir(parents=True)
    for name in names:
        (step.output / name).write_text("1")
    before = output_digest(plan, step)
    for name in names:
        (step.output / name).write_text("2")
        assert output_digest(plan, step) not in (None, before)
        (step.output / name).unlink()
        assert output_digest(plan, step) != before
        (step.output / name).write_text("1")
    (step.output / "notes.txt").write_text("mine")
    assert output_digest(plan, step) == before


@pytest.mark.slow
def test_more_samples_whole_vocabularies_and_trained_scorers_take_longer(folder: Path) -> None:
    text = TEACHERS.replace("max_steps: 8", "max_steps: 800").replace(
        "\nsteps:", "\nset: {training.max_steps: 800}\nsteps:"
    )
    source = "model: {step: teacher_1}, source: valid.en, reference: valid.xx"
    added = [
        "one: {distill: {model: {step: teacher_1}, input: train.en, sample: true}}",
        "many: {distill: {model: {step: teacher_1}, input: train.en, sample: true, n_best: 16, closest_to: train.xx}}",
        f"plain: {{eval: {{{source}}}}}",
        f"all: {{eval: {{{source}, shortlist: false}}}}",
        f"risk: {{eval: {{{source}, mbr: 100}}}}",
        "own: {score: {config: tiny.yaml, train: true}}",
    ]
    text = text.replace("\nset: {", "\nset: {decoding.shortlist: 30, ")
    plan = plan_of(folder, text + "".join(f"  {step}\n" for step in added))
    plan.records.mkdir(parents=True)
    costs = estimate_costs(plan, ["one", "many", "plain", "all", "risk", "own"])
    seconds = {name: cost.seconds or 0.0 for name, cost in costs.items()}
    assert seconds["many"] - 6 > 5 * (seconds["one"] - 6) > 0
    assert seconds["all"] - 6 > 1.3 * (seconds["plain"] - 6) > 0
    assert seconds["risk"] - 6 > 3 * (seconds["plain"] - 6) > 0
    assert seconds["own"] > 60, "two trainings of hundreds of steps"
