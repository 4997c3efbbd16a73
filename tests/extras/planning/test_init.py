"""`mt init`: the configuration loads, trains, and fits the text and the machine."""

import json
import logging
import os
import pty
import random
import re
import subprocess
import sys
from dataclasses import replace
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from command import mt
from conftest import made_once, write_corpus
from data_helpers import make_data_config, write_lines
from mt.bundle.pretrained import Pretrained
from mt.config import Config, load_config, parse_config
from mt.config.schema import json_schema
from mt.config.yaml_tree import parse_yaml
from mt.console import log
from mt.extras.planning import first_config
from mt.extras.planning.corpus_sample import MAX_SAMPLE, CorpusSample, sample_corpus, train_on_sample
from mt.extras.planning.estimate import estimate
from mt.extras.planning.first_config import PROBE_LENGTH, GivenTexts, describe, fitting_length, new_model_text
from mt.extras.planning.init_options import InitOptions
from mt.extras.planning.probe import Measurements, _measure, probe
from mt.extras.planning.recipe import (
    SHAPES,
    Length,
    PlanInputs,
    first_shape,
    model_choices,
    shape_for_few_steps,
    tokenizer_choices,
    training_choices,
)
from mt.storage.run_dir import RunDir
from resume_helpers import overrides
from web_helpers import Web, serving, zipped

TRAIN = ["--train", "train.en", "train.xx"]


@pytest.fixture(scope="module")
def initialised(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a corpus and the output of `mt init`; read-only for tests."""

    def make(folder: Path) -> None:
        write_corpus(folder)
        (folder / "temporary").mkdir()
        done = mt("init", *TRAIN, cwd=folder, TMPDIR=str(folder / "temporary"))
        (folder / "output").write_text(done.stdout)

    return made_once(tmp_path_factory, "init", make)


def test_the_configuration_loads_and_fits_the_text(initialised: Path) -> None:
    config = load_config(initialised / "en-xx.yaml")
    assert config.name == "en-xx"
    assert (config.data.source_lang, config.data.target_lang) == (("en",), ("xx",))
    assert config.data.train[0].source == "train.en"
    assert config.data.valid.from_train == config.data.test.from_train == 15  # a twentieth
    assert config.augmentation.shares == {"copy_spans": 0.05}
    assert config.model.d_model == 128
    assert config.tokenizer.vocab_size == 2000
    assert not config.tokenizer.shared  # a to j, and p to y
    assert config.training.max_steps >= 50


def test_a_requested_device_is_written(tmp_path: Path, initialised: Path) -> None:
    write_corpus(tmp_path)
    mt("init", *TRAIN, "--device", "cpu", cwd=tmp_path)
    assert load_config(tmp_path / "en-xx.yaml").training.device == "cpu"
    assert "device" not in (initialised / "en-xx.yaml").read_text().split("training:")[1]


def test_each_choice_has_its_reason(initialised: Path) -> None:
    text = (initialised / "en-xx.yaml").read_text()
    for key in ("vocab_size", "shared", "d_model", "dropout", "norm", "positions", "max_tokens", "max_steps"):
        assert re.search(rf"^  {key}: \S+ +# \S", text, re.MULTILINE), key
    assert re.search(r"^# \S+ s a step, about .* of it validation\), \d+\.\d GB of memory\.$", text, re.MULTILINE)
    assert "300 sentence pairs" in text


def test_it_names_the_next_command_and_leaves_nothing_behind(initialised: Path) -> None:
    output = (initialised / "output").read_text()
    assert "300 sentence pairs" in output
    assert output.splitlines()[-1] == "next: mt train --config en-xx.yaml"
    files = {path.name for path in initialised.iterdir()} - {"output", "temporary"}
    written = {name for name in files if "." not in name or name.endswith(("yaml", "json"))}
    assert written == {"en-xx.yaml", "mt.schema.json"}
    assert list((initialised / "temporary").glob("mt-*")) == []


def test_editors_find_the_schema(initialised: Path) -> None:
    text = (initialised / "en-xx.yaml").read_text()
    named = re.fullmatch(r"# yaml-language-server: \$schema=(\S+)", text.splitlines()[0])
    assert named
    schema = json.loads((initialised / named[1]).read_text())
    assert list(Draft202012Validator(schema).iter_errors(parse_yaml(text, "x").root)) == []
    mistyped = parse_yaml(text.replace("max_steps", "max_stepps"), "x").root
    assert list(Draft202012Validator(schema).iter_errors(mistyped))
    assert mt("init", "--schema", cwd=initialised).stdout == json_schema() == (initialised / named[1]).read_text()


def test_it_trains(initialised: Path, tmp_path: Path) -> None:
    less = ["training.max_steps=6", "training.warmup_steps=2", "training.validate_every=6", "training.report=false"]
    done = mt("train", "--config", "en-xx.yaml", "--runs", tmp_path, *overrides(less), cwd=initialised)
    assert "trained 6 steps" in done.stdout
    assert len((tmp_path / "en-xx" / "eval" / "test.beam").read_text().splitlines()) == 15


def test_force_does_not_overwrite_the_training_text(initialised: Path) -> None:
    before = (initialised / TRAIN[1]).read_bytes()
    folder = ["--train", ".", "--source-lang", "en", "--target-lang", "xx"]
    for train in (TRAIN, folder):
        done = mt("init", *train, "--name", "x", "--force", "--output", TRAIN[1], cwd=initialised, code=2)
        assert "this is an input" in done.stderr
        assert (initialised / TRAIN[1]).read_bytes() == before


def test_nothing_is_overwritten_unless_forced(initialised: Path, tmp_path: Path) -> None:
    write_corpus(tmp_path)
    (tmp_path / "en-xx.yaml").write_text("mine")
    assert "--force" in mt("init", *TRAIN, cwd=tmp_path, code=2).stderr
    assert (tmp_path / "en-xx.yaml").read_text() == "mine"
    (tmp_path / "mt.schema.json").write_text("{}")
    done = mt("init", *TRAIN, "--output", "other.yaml", cwd=tmp_path, code=2)
    assert "mt.schema.json already exists" in done.stderr
    (tmp_path / "mt.schema.json").write_text((initialised / "mt.schema.json").read_text().replace("Number", "number"))
    mt("init", *TRAIN, "--force", "--name", "given", "--output", "en-xx.yaml", cwd=tmp_path)
    assert load_config(tmp_path / "en-xx.yaml").name == "given"
    assert (tmp_path / "mt.schema.json").read_text() == json_schema()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "--train is missing"),
        (["--train", "gone.en", "train.xx"], "gone.en: no such file"),
        (["--train", "train.en", "valid.xx"], "train.en has 300 lines but valid.xx has 12"),
        (["--train", "empty.en", "empty.xx"], "empty.en: no line in it"),
        (["--train", "blank.en", "blank.xx"], "blank.en: cleaning keeps 0 of 9 pairs (9 empty)"),
        (["--train", "train.en", "train.en", "--target-lang", "xx"], "--train, target: is the same file as source"),
        (["--train", "two.en", "two.xx"], "two.en: 2 pairs are too few to hold 2 of them out"),
        (
            ["--train", "train.en", "train.tok", "--source-lang", "en"],
            "train.tok does not end in a language code",
        ),
        ([*TRAIN, "--valid", "empty.en", "empty.xx"], "data.valid: no sentence pair in it"),
        ([*TRAIN, "--test", "train.en", "gone"], "gone: no such file"),
        (
            ["--train", "text", "train.xx"],
            "--source-lang is missing, and the name of text does not end",
        ),
        (["--train", "train.xx", "text.xx"], "--source-lang is missing, and the name of train.xx does not end"),
        ([*TRAIN, "--source-lang", "no language"], "--source-lang: must be a short code"),
        ([*TRAIN, "--name", "two words"], "--name: must be letters"),
        ([*TRAIN, "--device", "tpu"], "--device: 'tpu' is none of"),
        ([*TRAIN, "--minutes", "0"], "--minutes"),
        ([*TRAIN, "--minutes", "nan"], "nan is not a number"),
        ([*TRAIN, "--general-share", "nan"], "nan is not a number"),
        ([*TRAIN, "--general-share", "0.1"], "--general-share is the share of the text of --general, which is missing"),
        ([*TRAIN, "--valid", "a", "b", "--valid=c", "d"], "--valid can be given only once"),
        ([*TRAIN, "--columns", "1:2"], "--columns is for .tsv, .csv, .jsonl, .parquet, .xlsx files, and none is given"),
        ([*TRAIN, "--no-header"], "--no-header is for .tsv, .csv, .xlsx files, and none is given"),
        ([*TRAIN, "--delimiter", ";"], "--delimiter is for .tsv, .csv files, and none is given"),
        ([*TRAIN, "--quoting"], "--quoting is for .tsv, .csv files, and none is given"),
        ([*TRAIN, "--output", "mt.schema.json", "--force"], "the schema for editors is written there"),
        ([*TRAIN, "--name", "a/b"], "--name: must be letters"),
        (["--train", "train.en", "train.xx", "text"], "give a text and its translation, or one file or folder"),
        (["--train", "--name", "x"], "give a text and its translation, or one file or folder of both"),
        ([*TRAIN, "--valid"], "'--valid': give a text and its translation, or one file or folder of both"),
        ([*TRAIN, "--test", ""], "'--test': give a text and its translation"),
        ([*TRAIN, "--general", "--name", "x"], "'--general': give a text and its translation"),
        ([*TRAIN, "--valid", "", "valid.xx"], "'--valid': give a text and its translation"),
        (["--train", "text"], "text: the file of its translation is missing"),
        (["--train", "words.csv"], "words.csv: does the first row (a, b) name the columns"),
        (["--train", "words.csv", "--no-header"], "--source-lang is missing, and words.csv does not name the language"),
        ([*TRAIN, "--valid", "gone.tmx"], "gone.tmx: no such file"),
        ([*TRAIN, "--train", "valid.xx", "valid.en"], "from xx into en, but the model translates from en into xx"),
        ([*TRAIN, "--valid", "valid.xx", "valid.en"], "from xx into en, but the model translates from en into xx"),
        ([*TRAIN, "--source-lang", "xx", "--target-lang", "en"], "from en into xx, but the model translates from xx"),
        ([*TRAIN, "--train", "words.csv", "words.csv"], "words.csv: has both languages by its name"),
        ([*TRAIN, "--valid", "folder", "valid.xx"], "folder: has both languages by its name"),
        (["--train", "/dev/null", "train.xx"], "/dev/null: a pipe, not a file"),
        ([*TRAIN, "--output", "text/such"], "text is a file, not a folder"),
        ([*TRAIN, "--output", "folder", "--force"], "--output folder: this is a folder, not a file"),
        ([*TRAIN, "--output", "."], "--output .: this is a folder, not a file"),
        ([*TRAIN, "--output", "/", "--pipeline", "student"], "--output /: this is a folder, not a file"),
        *(
            (["--train", name, "--source-lang", "en", "--target-lang", "it"], "--train, file: must not contain control")
            for name in ("zero\u200bwidth.csv", "zero\u200bwidth.jsonl")
        ),
    ],
)
def test_errors_are_one_sentence(tiny: Path, arguments: list[str], message: str) -> None:
    for name, lines in (("empty", []), ("blank", ["", " "] * 4 + [""]), ("two", ["a b", "c"])):
        write_lines(tiny / f"{name}.en", lines)
        write_lines(tiny / f"{name}.xx", lines)
    write_lines(tiny / "words.csv", ["a,b"] * 300)
    write_lines(tiny / "zero\u200bwidth.csv", ["en,it", "a,b"])
    write_lines(tiny / "zero\u200bwidth.jsonl", ['{"en": "a", "it": "b"}'])
    for name in ("text", "train.tok", "text.xx"):
        write_lines(tiny / name, ["a"] * 300)
    (tiny / "folder").mkdir()
    before = set(tiny.rglob("*"))
    done = mt("init", *arguments, cwd=tiny, code=2)
    assert set(tiny.rglob("*")) == before
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


@pytest.mark.slow
def test_lines_that_are_too_long_are_counted(tiny: Path) -> None:
    for code in ("en", "xx"):
        path = tiny / f"train.{code}"
        lines = path.read_text().splitlines()
        write_lines(path, [line if number % 10 else f"{line} " * 200 for number, line in enumerate(lines)])
    assert "about 10 % of the pairs are longer than data.max_length, 256 tokens" in mt("init", *TRAIN, cwd=tiny).stderr


def dialogue(folder: Path, answers: list[str], code: int = 0) -> str:
    """Run `mt init` on a terminal, answer its questions one by one, and return its output."""
    main, other = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "mt", "init"], cwd=folder, stdin=other, stdout=other, stderr=other
    )
    os.close(other)
    shown = b""
    waiting = iter(answers)
    try:
        while chunk := os.read(main, 4096):
            shown += chunk
            if re.search(rb": $", chunk):
                os.write(main, f"{next(waiting)}\n".encode())
    except OSError:  # the other end is closed
        pass
    os.close(main)
    assert process.wait() == code, shown.decode()
    assert next(waiting, None) is None
    return shown.decode()


@pytest.mark.slow
def test_it_asks_on_a_terminal(tmp_path: Path) -> None:
    write_corpus(tmp_path)
    files = ["gone.en", "train.en", "train.en", "train.xx"]
    answers = [*files, "", "no language", "yy", "../mine", "mine", "valid.en", "valid.xx", "", "0.5", "0"]
    shown = dialogue(tmp_path, answers)
    assert "gone.en: no such file" in shown
    assert "train.en: that is the file in the source language" in shown
    assert "no language: must be a short code" in shown
    assert "../mine: must be letters" in shown
    config = load_config(tmp_path / "mine.yaml")
    assert (config.data.source_lang, config.data.target_lang) == (("en",), ("yy",))
    assert config.data.valid[0].source == "valid.en"
    assert config.data.test.from_train == 15


def test_on_a_terminal_an_existing_file_is_refused_at_once(tmp_path: Path) -> None:
    write_corpus(tmp_path)
    (tmp_path / "mine.yaml").write_text("mine")
    shown = dialogue(tmp_path, ["train.en", "train.xx", "", "", "mine"], code=2)
    assert "mine.yaml already exists" in shown


@pytest.mark.slow
def test_on_a_terminal_one_file_may_have_both_languages(tmp_path: Path) -> None:
    write_corpus(tmp_path)
    rows = zip(*((tmp_path / f"train.{code}").read_text().splitlines() for code in ("en", "xx")), strict=True)
    write_lines(tmp_path / "both.csv", (f"{source[:5]};{target[:5]}" for source, target in rows))
    write_lines(tmp_path / "short.en", ["a"])
    shown = dialogue(tmp_path, ["short.en", "train.xx"], code=2)
    assert "short.en has 1 lines but train.xx has 300" in shown
    shown = dialogue(tmp_path, ["both.csv", "no", "en", "xx", "", "", "", "0"])
    assert "does the first row" in shown
    train = load_config(tmp_path / "en-xx.yaml").data.train[0]
    assert (train.file, train.header, train.delimiter) == ("both.csv", False, ";")


def test_folders_fill_all_splits(tiny: Path) -> None:
    for folder, split in product(("one", "two"), ("train", "valid", "test")):
        (tiny / folder).mkdir(exist_ok=True)
        for code in ("en", "xx"):
            lines = (tiny / f"{split}.{code}").read_text().splitlines()
            write_lines(tiny / folder / f"{split}.{code}", lines[: 200 if folder == "two" else None])
    given = ["--source-lang", "en", "--target-lang", "xx", "--test", "test.en", "test.xx"]
    mt("init", "--train", "one", "--train", "two", *given, cwd=tiny)
    data = load_config(tiny / "en-xx.yaml").data
    sources = [(source.folder, source.stem) for source in (*data.train, *data.valid)]
    assert sources == [("one", "train"), ("two", "train"), ("one", "valid"), ("two", "valid")]
    assert [source.source for source in data.test] == ["test.en"]


@pytest.mark.slow
def test_a_corpus_of_opus_is_named_with_its_version(tiny: Path) -> None:
    lines = {f"Books.en-xx.{code}": (tiny / f"train.{code}").read_text() for code in ("en", "xx")}
    with serving(Web()) as web:
        web.add_corpus(zipped(lines), target="xx")
        environment = {"MT_OPUS_API": f"{web.address}/opusapi/", "MT_CACHE": str(tiny / "cache")}
        mt("init", "--opus", "Books", "en", "xx", cwd=tiny, **environment)
        done = mt("init", "--opus", "Boks", "en", "xx", "--name", "other", cwd=tiny, code=2, **environment)
        two = ["--opus", "Books", "en", "xx", "--opus", "Books"]
        for pair in (("xx", "en"), ("en", "de")):
            other = mt("init", *two, *pair, "--name", "other", cwd=tiny, code=2, **environment)
            assert f"from {pair[0]} into {pair[1]}, but the model translates from en into xx" in other.stderr
    assert "OPUS has no corpus Boks" in done.stderr
    source = load_config(tiny / "en-xx.yaml").data.train[0]
    assert (source.opus, source.version) == ("Books", "v1")
    assert not (tiny / "other.yaml").exists()


def sample_of(pairs: int, source: str = "ein alter Hund") -> CorpusSample:
    return CorpusSample([pairs], [pairs], [0], {"kept": pairs}, [(source, "an old dog")] * 5)


def config_of(inputs: PlanInputs, length: Length, shape_number: int | None = None) -> Config:
    train = [{"source": "it's: a #file, [odd]", "target": "b"}]
    options = InitOptions("run", "de", "en", train, (), (), None, "auto")
    shape = first_shape(inputs) if shape_number is None else SHAPES[shape_number]
    return parse_config(new_model_text(options, inputs, shape, length), "mt init")


@pytest.mark.parametrize("minutes", [None, 10.0, 600.0])
@pytest.mark.parametrize("device", ["cpu", "cuda", "mps"])
@pytest.mark.parametrize("pairs", [50, 9_000, 30_000, 200_000, 1_000_000, 50_000_000])
def test_every_choice_loads(pairs: int, device: str, minutes: float | None) -> None:
    inputs = PlanInputs(sample_of(pairs), device, 2, minutes)
    for steps, number in product((50, 12_345, 300_000), range(len(SHAPES))):
        config = config_of(inputs, Length(steps, 3.7, 3), number)
        assert config.training.max_steps == steps
        assert config.training.validate_every <= max(1, steps)
        assert config.data.train[0].source == "it's: a #file, [odd]"
        assert config.decoding.compute_type == ("int8" if device == "cpu" else "float32")
        if (training := config.training).optimizer == "muon":
            averaged = 1 / (1 - training.ema_decay)  # type: ignore[operator]
            assert (training.schedule, averaged) == ("constant", pytest.approx(max(100, steps) / 12, rel=0.01))


def test_larger_corpora_and_machines_get_larger_models() -> None:
    def sizes(device: str, minutes: float | None) -> list[int]:
        inputs = [PlanInputs(sample_of(n), device, 2, minutes) for n in (5_000, 30_000, 200_000, 1_000_000)]
        return [SHAPES.index(first_shape(one)) for one in inputs]

    assert sizes("cpu", 10) == [0, 1, 2, 2]
    assert sizes("cpu", 90) == [0, 2, 2, 2]
    assert sizes("cuda", None) == [0, 2, 3, 4]


def test_vocabularies_fit_the_text_and_its_letters() -> None:
    def chosen(pairs: int, source: str = "ein alter Hund") -> tuple[object, object]:
        size, shared = tokenizer_choices(PlanInputs(sample_of(pairs, source), "cpu", 2))
        return size.value, shared.value

    sizes = {5_000: 2000, 30_000: 10000, 200_000: 10000, 1_000_000: 16000, 5_000_000: 32000}
    assert {pairs: chosen(pairs)[0] for pairs in sizes} == sizes
    assert chosen(5_000) == (2000, True)
    assert chosen(5_000, "старая собака") == (2000, False)
    assert chosen(5_000, "".join(map(chr, range(0x4E00, 0x4E00 + 3000)))) == (10000, False)


@pytest.mark.parametrize(
    ("pairs", "d_model", "epochs", "dropout"),
    [
        (30_000, 128, 4, 0.0),
        (30_000, 128, 7, 0.1),  # as in configs/multi30k_en_de_fast.yaml
        (30_000, 128, 24, 0.1),
        (30_000, 256, 14, 0.1),
        (30_000, 256, 16, 0.2),
        (30_000, 128, 26, 0.2),
        (30_000, 128, 55, 0.3),  # as in configs/multi30k_en_de.yaml
        (5_000, 128, 25, 0.3),
        (5_000_000, 128, 5, 0.1),
    ],
)
def test_few_epochs_need_less_dropout(pairs: int, d_model: int, epochs: float, dropout: float) -> None:
    shape = next(shape for shape in SHAPES if shape.d_model == d_model)
    choices = model_choices(shape, PlanInputs(sample_of(pairs), "cpu", 2), epochs)
    assert [choice.value for choice in choices if choice.key == "dropout"] == [dropout]


MEASURED = Measurements("fp32", 1_000_000, 5, 0.5, 4000.0, 0.01, 0.02, 10**9, None, 0.0)


@pytest.mark.parametrize(("seconds", "shown"), [(0.0123, "0.012"), (9.96, "10"), (132.4, "132"), (1320.0, "1,320")])
def test_the_time_of_a_step_has_no_exponent(seconds: float, shown: str) -> None:
    assert replace(MEASURED, seconds_per_step=seconds).step_time == f"{shown} s a step"


def texts_of(
    pairs: int, minutes: float | None, general: int = 0, test: int = 1000, translating: float = 0.0
) -> GivenTexts:
    inputs = PlanInputs(sample_of(pairs), "cpu", 2, minutes, translating=translating)
    return GivenTexts(inputs, replace(sample_of(general), clean_pairs=[]), None, [pairs - 2000], 1000, test)


def test_the_length_fits_the_time_limit_and_the_text() -> None:
    def length(minutes: float | None) -> Length:
        return fitting_length(texts_of(30_000, minutes), MEASURED, 28_000)

    assert length(None).steps == 15_000  # 55 passes of 280 steps, to two digits
    assert length(None).epochs == pytest.approx(15_000 / 280)
    hurried = length(10.0)
    # Preparation takes 46 seconds, and a validation 20; scoring is worth ten of these.
    assert hurried.steps * 0.5 + hurried.validations * 1000 * 0.02 == pytest.approx(600 - 46 - 200, rel=0.05)
    assert hurried.validations == 3
    assert length(10_000.0).steps == 31_000  # more would not help


@pytest.mark.parametrize(
    ("others", "seconds"),
    [
        ({}, 46 + 200),
        ({"general": 500_000}, 146 + 200),  # all of it is read, whatever share of an epoch it gets
        ({"test": 10_000}, 46 + 1100),
        ({"translating": 0.5}, 46 + 200 + 300),
    ],
)
def test_preparing_scoring_and_translating_are_planned(others: dict[str, Any], seconds: float) -> None:
    found = fitting_length(texts_of(30_000, 60.0, **others), MEASURED, 28_000)
    assert found.minutes == pytest.approx(60 - seconds / 60, abs=0.05)
    assert found.overall == 60


@pytest.mark.parametrize(("pairs", "overall"), [(30_000, 10), (5_000_000, 5 + (40 + 1000 + 200) / 60)])
def test_a_time_that_cannot_be_kept_is_reported(pairs: int, overall: float, notices: list[str]) -> None:
    texts = texts_of(pairs, 10.0)
    length = fitting_length(texts, MEASURED, pairs)
    assert length.overall == pytest.approx(overall, rel=0.01)
    [steps] = (each for each in training_choices(SHAPES[0], texts.inputs, length) if each.key == "max_steps")
    assert f"in {length.overall:g} minutes including preparation and scoring" in steps.reason
    describe(config_of(texts.inputs, length), texts, MEASURED)
    late = "preparing and scoring may take 20 min 40 s, and training takes half of 10 minutes: more than these in all"
    assert notices == [late] * (overall > 10)


@pytest.mark.slow
def test_the_step_limit_is_not_taken_for_lack_of_time(
    tiny: Path, monkeypatch: pytest.MonkeyPatch, notices: list[str]
) -> None:
    monkeypatch.setattr(first_config, "_STEP_LIMITS", (1, 2))
    data = make_data_config(tiny, [{"source": "train.en", "target": "train.xx"}], target_lang="xx")
    texts = texts_of(30_000, 30.0)
    sample = replace(texts.inputs.sample, sample=sample_corpus(data.train, data).sample)
    texts = replace(texts, inputs=replace(texts.inputs, sample=sample))
    options = InitOptions("run", "en", "xx", [{"file": "a.tsv"}], (), (), None, "cpu")
    tokenizers = train_on_sample(config_of(texts.inputs, PROBE_LENGTH).tokenizer, sample.sample)
    shape, length, _ = first_config._fit_to_time(options, texts, tokenizers)
    assert (shape, length.steps) == (SHAPES[1], 2)
    assert "2 steps, the limit of mt init, are 0." in notices[-1]


@pytest.mark.slow
def test_a_text_too_large_for_the_step_limit_is_logged_and_a_measured_format_is_written(
    tiny: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(first_config, "_STEP_LIMITS", (1, 2))
    monkeypatch.setattr(logging.getLogger("mt"), "propagate", True)
    files = {"source": str(tiny / "train.en"), "target": str(tiny / "train.xx")}
    monkeypatch.setattr(first_config, "has_bf16", lambda device: True)
    text, _ = first_config.draft_config(InitOptions("big", "en", "xx", [files], (), (), None, "cpu"))
    assert parse_config(text, "big.yaml").training.precision in ("fp32", "bf16")
    assert "2 steps, the limit of mt init, are 1." in caplog.text


@pytest.mark.slow
def test_a_time_of_few_steps_gets_smaller_batches_and_fewer_layers(tmp_path: Path) -> None:
    rng = random.Random(1)
    lines = [" ".join(rng.choices("abcdefghij", k=8)) for _ in range(12_000)]
    source = {"source": str(write_lines(tmp_path / "train.en", lines))}
    source["target"] = str(write_lines(tmp_path / "train.xx", map(str.upper, lines)))
    options = InitOptions("few", "en", "xx", [source], (), (), 1.0, "cpu")
    text, _ = first_config.draft_config(options)
    config = parse_config(text, "few.yaml")
    assert (config.training.max_tokens, config.training.max_steps < 2000) == (1024, True)
    assert (config.model.d_model, config.model.encoder_layers, config.model.decoder_layers) == (128, 2, 2)
    text, _ = first_config.draft_config(replace(options, minutes=600.0))
    config = parse_config(text, "many.yaml")
    assert (config.training.max_tokens, config.model.encoder_layers) == (2048, 3)


def test_few_steps_cost_layers_only_where_that_was_measured() -> None:
    inputs = PlanInputs(sample_of(30_000), "cpu", 2, 10.0)
    assert shape_for_few_steps(SHAPES[0], inputs).encoder_layers == 2
    assert [shape_for_few_steps(shape, inputs) for shape in SHAPES[1:]] == [*SHAPES[1:]]
    assert shape_for_few_steps(SHAPES[0], replace(inputs, sample=sample_of(5_000))) == SHAPES[0]


@pytest.mark.parametrize("split", [True, False])
def test_batches_that_did_not_fit_into_memory_are_reported(split: bool, notices: list[str]) -> None:
    inputs = PlanInputs(sample_of(30_000), "cpu", 2)
    general = CorpusSample([], [], [], {}, [])
    config, texts = config_of(inputs, PROBE_LENGTH), GivenTexts(inputs, general, None, [28_000], 1000, 1000)
    describe(config, texts, replace(MEASURED, split=split))
    assert ["lower training.max_tokens" in notice for notice in notices] == [True] * split


def test_the_estimate_adds_up() -> None:
    config = config_of(PlanInputs(sample_of(30_000), "cpu", 2), Length(1000, 3.0, 10))
    found = estimate(config, MEASURED, [28_000], 500, 100.0)
    assert found.steps == 1000
    assert found.epochs == pytest.approx(1000 / 280)
    assert found.training_seconds == pytest.approx(500)
    assert found.validation_seconds == pytest.approx(10 * 500 * 0.02)
    tokens = 28_000 * 0.01 * 4000
    assert found.disk == pytest.approx(28_000 * 116 + 2 * tokens + 4 * 16_000_000 + 12_000_000, rel=0.01)
    for changes, kept in (({"keep_checkpoints": 1000}, 10), ({"keep_checkpoints": 1000, "save_every": 50}, 30)):
        many = config.model_copy(update={"training": config.training.model_copy(update=changes)})
        more = estimate(many, MEASURED, [28_000], 500, 100.0).disk - found.disk
        assert more == pytest.approx((kept - 3) * 4 * 4_000_000)  # all that will be made, not three
    # The peak of a large text is deduplication, which writes it once more.
    assert estimate(config, MEASURED, [28_000], 500, 1e6).disk == pytest.approx(2 * 28_000 * 1e6)
    for epochs, steps in ((2, 560), (100, 1000)):
        training = config.training.model_copy(update={"max_epochs": epochs})
        assert estimate(config.model_copy(update={"training": training}), MEASURED, [28_000], 500, 100.0).steps == steps


@pytest.mark.parametrize(
    ("minutes", "steps", "done"),
    [
        (5, 428, (0, 0)),
        (0.5, 42, (0, 0)),
        (1000, 4000, (0, 0)),
        (5, 3042, (3000, 270)),
        (5, 3000, (3000, 310)),
    ],
)
def test_the_estimate_is_of_the_steps_that_fit_into_the_time(
    minutes: float, steps: int, done: tuple[int, float]
) -> None:
    """A step takes 0.5 s and a validation of each 50 steps 10 s; the warm-up is of 100 steps."""
    config = config_of(PlanInputs(sample_of(30_000), "cpu", 2), Length(1000, 3.0, 10))
    changes = {"minutes": minutes, "validate_every": 50, "warmup_steps": 100}
    config = config.model_copy(update={"training": config.training.model_copy(update=changes)})
    found = estimate(config, MEASURED, [28_000], 500, 100.0, done=done)
    assert found.steps == steps
    assert found.training_seconds == pytest.approx(steps * 0.5)


def test_a_sample_is_even_and_everything_is_counted(tmp_path: Path) -> None:
    number = 2 * MAX_SAMPLE + 100
    rng = random.Random(1)
    lines = [f"{n} {rng.random()}" for n in range(number)]
    for name, text in {"a.en": [*lines, ""], "a.it": [*lines, "x"], "b.en": ["one two"], "b.it": ["a b c"]}.items():
        write_lines(tmp_path / name, text)
    data = make_data_config(tmp_path, [{"source": f"{name}.en", "target": f"{name}.it"} for name in "ab"])
    found = sample_corpus(data.train, data)
    assert (found.pairs, found.clean_pairs, found.back_translated) == ([number + 1, 1], [number, 1], [0, 0])
    assert found.counts == {"kept": number + 1, "empty": 1}
    assert MAX_SAMPLE / 2 <= len(found.sample) <= MAX_SAMPLE
    places = [int(source.split()[0]) for source, _ in found.sample[:-1]]
    gaps = {later - earlier for earlier, later in pairwise(places)}
    assert gaps == {4}
    assert found.training_pairs(held_out=1) == [number - 1, 1]


@pytest.mark.slow
def test_a_probe_measures_training(tiny: Path) -> None:
    config = load_config(tiny / "tiny.yaml", [f"data.root={tiny}", "data.max_length=6"])
    found = sample_corpus(config.data.train, config.data)
    tokenizers = train_on_sample(config.tokenizer, found.sample)
    measured = probe(config, found.sample, tokenizers, complete=True, pretrained=Pretrained(config), seconds=0.5)
    fitting = [pair for pair in found.sample if len(tokenizers.source.encode(pair[0])) <= 4]
    assert measured.too_long == pytest.approx(1 - len(fitting) / len(found.sample), abs=0.05)
    assert 0 < measured.too_long < 1
    assert measured.parameters == 10_448
    assert 2 <= measured.steps <= 20
    assert 0 < measured.seconds_per_step < 5
    assert 100 < measured.tokens_per_step <= 400
    assert 10**8 < measured.memory < 4 * 10**9
    assert measured.gpu_memory is None


@pytest.mark.slow
def test_a_probe_measures_sampled_tokens_and_guided_attention(tiny: Path) -> None:
    found, tokens = None, []
    for number, value in enumerate((0.0, 0.5)):
        changes = [f"data.root={tiny}", f"tokenizer.bpe_dropout={value}", f"training.guided_alignment={value}"]
        config = load_config(tiny / "tiny.yaml", changes)
        found = found or sample_corpus(config.data.train, config.data)
        tokenizers = train_on_sample(config.tokenizer, found.sample)
        run, level = RunDir(tiny / "probe" / str(number)), log.level
        try:
            measured = _measure(run, config, found.sample, tokenizers, True, Pretrained(config), 0.0, level)
        finally:
            log.setLevel(level)
        tokens.append(measured.tokens_per_step * measured.steps_per_pair)
        assert run.alignments.exists() == bool(value)
    assert tokens[1] > 1.1 * tokens[0]
