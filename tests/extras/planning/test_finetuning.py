"""`mt init --from`: the configuration continues the model, and its comment has the model's present scores."""

import json
import re
import shutil
from pathlib import Path

import pytest

from command import mt
from conftest import made_once
from data_helpers import write_lines
from import_helpers import sentencepiece
from mt.bundle.pretrained import Pretrained
from mt.config import Config, TrainingConfig, load_config
from mt.extras.planning.finetuning import Start, _half_of_peak
from resume_helpers import overrides

TRAIN = ["--train", "new.en", "new.yy"]


@pytest.fixture(scope="module")
def tuned(two_languages: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a model, new text, general text, and the output of `mt init --from`; read-only for tests."""
    general = ["--general", "general.en", "general.yy", "--general-share", "0.25", "--valid", "valid.en", "valid.yy"]

    def make(folder: Path) -> None:
        shutil.copytree(two_languages, folder, dirs_exist_ok=True)
        for code in ("en", "yy"):
            lines = (folder / f"train.{code}").read_text().splitlines()
            write_lines(folder / f"new.{code}", lines[:100])
            write_lines(folder / f"general.{code}", lines[100:])
        done = mt("init", "--from", "runs/two", *TRAIN, *general, cwd=folder)
        (folder / "output").write_text(done.stdout)
        for code in ("en", "yy"):
            write_lines(folder / f"blank.{code}", [""] * 9)

    return made_once(tmp_path_factory, "tuned", make)


@pytest.fixture(scope="module")
def config(tuned: Path) -> Config:
    return load_config(tuned / "two-tuned.yaml")


def test_it_continues_the_model(tuned: Path, config: Config) -> None:
    start = load_config(tuned / "two.yaml")
    assert config.training.init_from == "runs/two"
    assert config.model.model_copy(update={"dropout": start.model.dropout}) == start.model
    assert config.tokenizer == start.tokenizer
    assert config.data.max_length == start.data.max_length
    assert (config.decoding.beam_size, config.decoding.max_length) == (2, 12)
    assert not config.decoding.correct_spelling  # it would learn from the new text alone
    assert (config.data.source_lang, config.data.target_lang) == (("en",), ("yy",))  # found in the files' names
    relative = config.model_copy(
        update={"training": config.training.model_copy(update={"init_from": str(tuned / "runs/two")})}
    )
    Pretrained.find(relative, tuned, {}).check()


def test_the_rate_is_low_and_the_length_fits_the_text(config: Config) -> None:
    training = config.training
    assert training.learning_rate == 5e-4  # the highest, for a model 32 wide
    assert (training.optimizer, training.schedule, training.patience) == ("adam", "linear", 5)
    assert 0 < training.warmup_steps <= training.max_steps // 10
    assert training.max_steps >= 50
    assert config.model.dropout == 0.2  # little text


def test_optimizer_augmentation_and_evaluation_are_the_models(tuned: Path, tmp_path: Path) -> None:
    shutil.copytree(tuned, tmp_path, dirs_exist_ok=True)
    changes = ["name=moved", "training.optimizer=muon", "training.learning_rate=4e-3", "training.max_steps=4"]
    changes += ["augmentation.robust=true", "evaluation.bleu_tokenize=intl"]
    changes += ["data.max_length=3000", "training.max_tokens=3000", "training.guided_alignment=0.1"]
    mt("train", "--config", "two.yaml", *overrides(changes), cwd=tmp_path)
    mt("init", "--from", "runs/moved", *TRAIN, cwd=tmp_path)
    config = load_config(tmp_path / "moved-tuned.yaml")
    assert (config.augmentation.robust, config.evaluation.bleu_tokenize) == (True, "intl")
    training = config.training
    assert (config.data.max_length, training.max_tokens) == (3000, 3000)
    assert (training.optimizer, training.learning_rate, training.schedule) == ("muon", 2e-3, "cosine")
    assert (training.ema_decay, training.guided_alignment) == (None, 0.1)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [({"schedule": "noam", "learning_rate": 1.0}, 3.5e-4), ({"schedule": "cosine", "learning_rate": 4e-3}, 2e-3)],
    ids=["noam", "cosine"],
)
def test_muons_rate_is_half_of_the_highest(changes: dict[str, object], expected: float) -> None:
    training = TrainingConfig.model_validate({"optimizer": "muon", "warmup_steps": 4000, **changes})
    assert _half_of_peak(training, 512) == expected


def test_the_subword_sampling_of_a_given_tokenizer_is_kept(tuned: Path, tmp_path: Path) -> None:
    shutil.copytree(tuned, tmp_path, dirs_exist_ok=True)
    sentencepiece(tmp_path, "spm.model", (tmp_path / "train.en").read_text().splitlines(), size=30)
    changes = ["name=sampled", "tokenizer={file: spm.model, sampling_alpha: 0.2}", "training.max_steps=4"]
    mt("train", "--config", "two.yaml", *overrides(changes), cwd=tmp_path)
    mt("init", "--from", "runs/sampled", *TRAIN, cwd=tmp_path)
    config = load_config(tmp_path / "sampled-tuned.yaml")
    assert config.tokenizer.sampling_alpha == 0.2
    assert config.training.init_from == "runs/sampled"


def test_general_text_makes_its_share_of_an_epoch(tuned: Path, config: Config) -> None:
    new, general = config.data.train
    share = general.weight * 300 / (general.weight * 300 + 95)  # of the 100, five are split off for the test
    assert share == pytest.approx(0.25, abs=0.001)
    assert (new.synthetic, general.synthetic) == (False, True)  # so that only new text is held out
    assert "25% of each epoch" in (tuned / "two-tuned.yaml").read_text()


def test_the_present_scores_of_the_model_are_reported(tuned: Path) -> None:
    found = re.search(
        r"runs/two scores BLEU (\S+) and chrF (\S+) before fine-tuning \(greedy, 20 sentences of the validation text\)",
        (tuned / "output").read_text(),
    )
    assert found
    assert f"# {found[0]}." in (tuned / "two-tuned.yaml").read_text()
    text = ["--source", "valid.en", "--reference", "valid.yy", "--to", "yy"]
    scored = mt("eval", "--model", "runs/two", *text, "--output", "x", "--json", cwd=tuned)
    greedy = next(each for each in json.loads(scored.stdout)["results"] if each["method"] == "greedy")
    assert greedy["bleu"] > 20
    assert [float(number) for number in found.groups()] == pytest.approx([greedy["bleu"], greedy["chrf"]], abs=0.05)


def test_it_trains(tuned: Path, tmp_path: Path) -> None:
    less = ["training.max_steps=6", "training.warmup_steps=2", "training.validate_every=6", "training.report=false"]
    done = mt("train", "--config", "two-tuned.yaml", "--runs", tmp_path, *overrides(less), cwd=tuned)
    assert "trained 6 steps" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--from", "gone", *TRAIN], "--from gone: there is no such folder"),
        (["--from", ".", *TRAIN], "--from .: "),
        (
            ["--from", "runs/two", *TRAIN, "--target-lang", "de"],
            "--target-lang: de, but runs/two translates into xx, yy",
        ),
        (["--from", "runs/two", "--train", "new.yy", "new.en"], "from yy into en, but the model translates from en"),
        ([*TRAIN, "--general", "general.en", "general.yy"], "--general is for fine-tuning"),
        (
            ["--from", "runs/two", *TRAIN, "--general", "general.en", "new.yy"],
            "general.en has 300 lines but new.yy has 100",
        ),
        (["--from", "runs/two", *TRAIN, "--general-share", "1"], "--general-share"),
        (["--from", "runs/two", *TRAIN, "--valid", "blank.en", "blank.yy"], "blank.en: cleaning keeps 0 of 9 pairs"),
        (["--from", "runs/two", *TRAIN, "--general", "blank.en", "blank.yy"], "blank.en: cleaning keeps 0 of 9 pairs"),
        (["--from", "runs/two", "--like", "two.yaml"], "--like and --from contradict each other"),
    ],
)
def test_errors_are_one_sentence(tuned: Path, arguments: list[str], message: str, tmp_path: Path) -> None:
    folder = shutil.copytree(tuned, tmp_path / "tuned")
    before = set(folder.rglob("*"))
    done = mt("init", *arguments, "--name", "x", cwd=folder, code=2)
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert set(folder.rglob("*")) == before


def test_languages_are_the_models(two_languages: Path) -> None:
    start = Start(two_languages / "runs" / "two")
    assert start.languages(None, "yy") == ("en", "yy")
    assert start.languages("en-GB", "xx") == ("en", "xx")
    with pytest.raises(Exception, match=r"no language is given, but .* translates into xx, yy"):
        start.languages(None, None)
