"""The shipped pipelines, and those that `mt init` writes."""

import re
from pathlib import Path

import pytest

from command import mt
from conftest import make_project
from mt.api.pipelines import read_plan
from mt.config import load_config
from mt.errors import InputError
from mt.extras.pipelines.template import draft_pipeline
from mt.extras.planning.init_options import InitOptions

CONFIGS = Path(__file__).parents[3] / "configs"
PIPELINES = sorted(path for path in (CONFIGS / "pipelines").glob("*.yaml") if "\nsteps:" in path.read_text())


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with all texts that the pipelines name, of four lines each."""
    folder = tmp_path_factory.mktemp("texts")
    for split in ("train", "valid", "val", "test", "test_2016_flickr", "mono"):
        for code in ("en", "de", "fr"):
            (folder / f"{split}.{code}").write_text(f"{code} a\nb\nc d\ne\n")
    return folder


@pytest.mark.parametrize("path", PIPELINES, ids=lambda path: path.stem)
def test_every_shipped_pipeline_passes_its_checks(path: Path, texts: Path) -> None:
    plan = read_plan(path, [f"root={texts}"], texts / "runs")
    assert path.read_text().startswith("# ")
    assert f"mt train --config configs/pipelines/{path.name}" in path.read_text()
    assert len(plan.steps) >= 3
    assert not (texts / "runs").exists()


def test_a_missing_text_is_reported_once(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"^6 problems in .*\n  .*:15: .*: there is no .*/train.en, and no"):
        read_plan(CONFIGS / "pipelines" / "multi30k_en_de.yaml", [f"root={tmp_path}"], tmp_path)


def test_the_shipped_pipelines_have_different_names(texts: Path) -> None:
    assert [path.stem for path in PIPELINES] == ["backtranslation", "multi30k_en_de", "multi30k_en_fr", "student"]
    names = [read_plan(path, [f"root={texts}"]).pipeline.file.name for path in PIPELINES]
    assert len(set(names)) == 4


def test_the_pipeline_of_multi30k_is_the_documented_one(texts: Path) -> None:
    steps = read_plan(CONFIGS / "pipelines" / "multi30k_en_de.yaml", [f"root={texts}"], Path("runs")).steps
    assert [name for name in steps if steps[name].kind == "train"] == [
        *("bidirectional", "first_1", "first_2", "first_3", "student_1", "student_2", "student_3"),
    ]
    folder = "runs/multi30k-en-de-students"
    assert " ".join(steps["closest_2"].words) == (
        f"distill --model {folder}/first_2 --beam 12 --length-penalty 1.6 --compute-type int8 --input {texts}/train.en "
        f"--closest-to {texts}/train.de --output {folder}/closest_2/translations.txt --force "
        f"--runs {folder}"
    )
    student = steps["student_3"].config
    assert student is not None
    assert (student.seed, student.training.init_from, len(student.data.train)) == (3, None, 6)
    assert (student.model.d_model, student.model.d_ff, student.model.dropout) == (256, 512, 0.25)
    assert (student.training.max_steps, student.training.learning_rate) == (8000, 4e-3)
    assert (student.training.schedule, student.training.ema_decay) == ("constant", 0.9985)


@pytest.mark.parametrize(
    "held_out", [pytest.param(True, id="split off", marks=pytest.mark.slow), pytest.param(False, id="files")]
)
def test_init_writes_a_pipeline_for_the_users_text(held_out: bool, tmp_path: Path) -> None:
    make_project(tmp_path)
    files = [] if held_out else ["--valid", "valid.en", "valid.xx", "--test", "test.en", "test.xx"]
    texts = ["a, {b}.en", "a, {b}.xx"]
    for text in texts:
        (tmp_path / f"train{text[-3:]}").rename(tmp_path / text)
    words = ["init", "--name", "own", "--train", *texts, *files, "--pipeline", "student", "--output", "o, 1.yaml"]
    done = mt(*words, "--minutes", "10", cwd=tmp_path)
    written = tmp_path / "o, 1-student.yaml"
    assert "written: o, 1-student.yaml" in done.stdout
    assert "next: mt train --config 'o, 1-student.yaml'" in done.stdout
    assert "#     mt train --config 'o, 1-student.yaml'" in written.read_text()
    script = mt("pipeline", written, "--emit", "slurm", cwd=tmp_path).stdout
    assert re.findall(r"--step (\w+)", script) == ["teacher", "translated", "student"]
    plan = read_plan(written, [f"root={tmp_path}"], tmp_path / "runs")
    teacher, student = (plan.steps[name].config for name in ("teacher", "student"))
    assert teacher is not None
    assert student is not None
    assert teacher.model == student.model
    assert (student.model.encoder_layers, student.model.decoder_layers) == (6, 1)
    assert student.training.init_from == f"{tmp_path}/runs/own-student/teacher"
    assert len(student.data.train) == 2
    assert student.training.max_steps < teacher.training.max_steps
    assert (teacher.training.schedule, student.training.schedule) == ("constant", "cosine")
    assert (teacher.training.ema_decay is None, student.training.ema_decay) == (False, None)
    assert student.training.learning_rate == pytest.approx(0.1 * teacher.training.learning_rate)
    own = load_config(tmp_path / "o, 1.yaml")
    assert own.training.max_steps == teacher.training.max_steps
    assert "already exists" in mt(*words, cwd=tmp_path, code=2).stderr


@pytest.mark.parametrize(
    ("pairs", "written", "layers"),
    [(19_999, 3, (6, 1)), (20_000, 3, (4, 2)), (20_000, 4, (6, 2)), (20_000, 6, (9, 3))],
)
def test_a_students_decoder_has_few_layers(pairs: int, written: int, layers: tuple[int, int], tmp_path: Path) -> None:
    make_project(tmp_path)
    for code in ("en", "xx"):
        (tmp_path / f"train.{code}").write_text("a\n" * pairs)
    text = (tmp_path / "tiny.yaml").read_text().replace("coder_layers: 1", f"coder_layers: {written}")
    text = text.replace("name: tiny", f"name: {'n' * 100}").replace("data:\n", f"data:\n  root: {tmp_path}\n")
    (tmp_path / "tiny.yaml").write_text(text)
    train = [{"source": "train.en", "target": "train.xx"}]
    options = InitOptions("tiny", "en", "xx", train, (), (), 100.0, "auto")
    given: list[InitOptions] = []
    _, pipeline, _ = draft_pipeline(options, lambda own: (given.append(own) or text, ""), tmp_path / "tiny.yaml")
    [own] = given
    assert (own.minutes, own.translating) == pytest.approx((93, 0.46 * 4 * 0.8 * 0.7))
    assert "beam: 3, compute_type: int8" in pipeline
    (tmp_path / "pipeline.yaml").write_text(pipeline)
    assert f"#     mt train --config {tmp_path}/tiny-student.yaml" in pipeline
    steps = read_plan(tmp_path / "pipeline.yaml", [f"root={tmp_path}"], tmp_path / "runs").steps
    for name in ("teacher", "student"):
        model = steps[name].config.model  # type: ignore[union-attr]
        assert (model.encoder_layers, model.decoder_layers) == layers


def test_init_refuses_what_a_pipeline_cannot_use(tmp_path: Path) -> None:
    make_project(tmp_path)
    pairs = zip((tmp_path / "train.en").open(), (tmp_path / "train.xx").open(), strict=True)
    (tmp_path / "both.tsv").write_text("en\txx\n" + "".join(f"{a.strip()}\t{b}" for a, b in pairs))
    table = ["--train", "both.tsv", "--header", "--source-lang", "en", "--target-lang", "xx"]
    refused = mt("init", *table, "--pipeline", "student", cwd=tmp_path, code=2)
    assert "needs the training text as two text files" in refused.stderr
    words = ["init", "--from", "runs/x", "--train", "train.en", "train.xx", "--pipeline", "student"]
    refused = mt(*words, cwd=tmp_path, code=2)
    assert "--from and --pipeline contradict each other" in refused.stderr
    assert not list(tmp_path.glob("*student*"))
