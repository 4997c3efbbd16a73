"""`mt init`: a configuration that loads and trains, fitted to the text and the machine, and checked files before it."""

import json
import logging
import os
import pty
import random
import re
import subprocess
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from command import mt
from conftest import write_corpus
from data_helpers import write_lines
from mt.bundle.pretrained import Pretrained
from mt.config import Config, load_config
from mt.config.json_schema import json_schema
from mt.config.yaml_tree import parse_yaml
from mt.extras.planning import start
from mt.extras.planning.answers import Answers
from mt.extras.planning.corpus_sample import MAX_SAMPLE, CorpusSample, sample_corpus, train_on_sample
from mt.extras.planning.draft import Draft
from mt.extras.planning.estimate import estimate
from mt.extras.planning.probe import Measured, probe
from mt.extras.planning.recipe import SHAPES, Choice, Ground, Length, first_shape, model_choices, tokenizer_choices
from mt.extras.planning.start import length_for

TRAIN = ["--train", "train.en", "train.xx"]


@pytest.fixture(scope="module")
def begun(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a corpus and what `mt init` made of it; no test may write into it."""
    folder = tmp_path_factory.mktemp("begun")
    write_corpus(folder)
    (folder / "temporary").mkdir()
    done = mt("init", *TRAIN, cwd=folder, TMPDIR=str(folder / "temporary"))
    (folder / "said").write_text(done.stdout)
    return folder


def test_the_configuration_loads_and_fits_the_text(begun: Path) -> None:
    config = load_config(begun / "en-xx.yaml")
    assert config.name == "en-xx"
    assert (config.data.source_lang, config.data.target_lang) == ("en", ("xx",))
    assert config.data.train[0].source == "train.en"
    assert config.data.valid.from_train == config.data.test.from_train == 15  # a twentieth
    assert config.model.d_model == 128
    assert config.tokenizer.vocab_size == 2000
    assert not config.tokenizer.shared  # a to j, and p to y
    assert config.training.max_steps >= 50


def test_a_device_that_was_asked_for_is_written_down(tmp_path: Path, begun: Path) -> None:
    write_corpus(tmp_path)
    mt("init", *TRAIN, "--device", "cpu", cwd=tmp_path)
    assert load_config(tmp_path / "en-xx.yaml").training.device == "cpu"
    assert "device" not in (begun / "en-xx.yaml").read_text().split("training:")[1]


def test_each_choice_has_its_reason(begun: Path) -> None:
    text = (begun / "en-xx.yaml").read_text()
    for key in ("vocab_size", "shared", "d_model", "dropout", "norm", "max_tokens", "max_steps", "validate_every"):
        assert re.search(rf"^  {key}: \S+ +# \S", text, re.MULTILINE), key
    assert re.search(r"^# \S+ s a step, about .* of it validation\), \d+\.\d GB of memory\.$", text, re.MULTILINE)
    assert "300 sentence pairs" in text


def test_it_says_what_comes_next_and_leaves_nothing_behind(begun: Path) -> None:
    said = (begun / "said").read_text()
    assert "300 sentence pairs" in said
    assert said.splitlines()[-1] == "next: mt train --config en-xx.yaml"
    files = {path.name for path in begun.iterdir()} - {"said", "temporary"}
    assert {name for name in files if "." not in name or name.endswith(("yaml", "json"))} == {
        "en-xx.yaml",
        "mt.schema.json",
    }
    assert list((begun / "temporary").glob("mt-*")) == []


def test_editors_find_the_schema(begun: Path) -> None:
    text = (begun / "en-xx.yaml").read_text()
    named = re.fullmatch(r"# yaml-language-server: \$schema=(\S+)", text.splitlines()[0])
    assert named
    schema = json.loads((begun / named[1]).read_text())
    assert list(Draft202012Validator(schema).iter_errors(parse_yaml(text, "x").root)) == []
    mistyped = parse_yaml(text.replace("max_steps", "max_stepps"), "x").root
    assert list(Draft202012Validator(schema).iter_errors(mistyped))
    assert mt("init", "--schema", cwd=begun).stdout == json_schema() == (begun / named[1]).read_text()


def test_it_trains(begun: Path, tmp_path: Path) -> None:
    less = ["training.max_steps=6", "training.warmup_steps=2", "training.validate_every=6", "training.report=false"]
    changes = [word for change in less for word in ("--set", change)]
    done = mt("train", "--config", "en-xx.yaml", "--runs", tmp_path, *changes, cwd=begun)
    assert "trained 6 steps" in done.stdout
    assert len((tmp_path / "en-xx" / "eval" / "test.beam").read_text().splitlines()) == 15


def test_force_does_not_overwrite_the_training_text(begun: Path) -> None:
    before = (begun / TRAIN[1]).read_bytes()
    said = mt("init", *TRAIN, "--name", "x", "--force", "--output", TRAIN[1], cwd=begun, code=2).stderr
    assert "this is an input" in said
    assert (begun / TRAIN[1]).read_bytes() == before


def test_nothing_is_overwritten_unless_forced(begun: Path, tmp_path: Path) -> None:
    write_corpus(tmp_path)
    (tmp_path / "en-xx.yaml").write_text("mine")
    assert "--force" in mt("init", *TRAIN, cwd=tmp_path, code=2).stderr
    assert (tmp_path / "en-xx.yaml").read_text() == "mine"
    (tmp_path / "mt.schema.json").write_text("{}")
    done = mt("init", *TRAIN, "--output", "other.yaml", cwd=tmp_path, code=2)
    assert "mt.schema.json is there already" in done.stderr
    (tmp_path / "mt.schema.json").write_text((begun / "mt.schema.json").read_text().replace("Number", "number"))
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
        (["--train", "blank.en", "blank.xx"], "blank.en: of 9 pairs 0 can be trained on (9 empty)"),
        (["--train", "train.en", "train.en", "--target-lang", "xx"], "--train, target: is the same file as source"),
        (["--train", "two.en", "two.xx"], "two.en: 2 pairs are too few to hold 2 of them out"),
        (["--train", "train.en", "train.tok", "--source-lang", "en"], "the name of train.tok does not tell it"),
        ([*TRAIN, "--valid", "empty.en", "empty.xx"], "data.valid: no sentence pair in it"),
        ([*TRAIN, "--test", "train.en", "gone"], "gone: no such file"),
        (["--train", "text", "train.xx"], "--source-lang is missing, and the name of text does not tell it"),
        ([*TRAIN, "--source-lang", "no language"], "--source-lang: must be a short code"),
        ([*TRAIN, "--name", "two words"], "--name: must be letters"),
        ([*TRAIN, "--device", "tpu"], "--device: 'tpu' is none of"),
        ([*TRAIN, "--minutes", "0"], "--minutes"),
        ([*TRAIN, "--name", "a/b"], "--name: must be letters"),
        ([*TRAIN, "--output", "text/such"], "text is a file, not a folder"),
        ([*TRAIN, "--output", "folder", "--force"], "--output folder: this is a folder, not a file"),
    ],
)
def test_what_is_wrong_with_the_files_is_one_sentence(tiny: Path, arguments: list[str], message: str) -> None:
    for name, lines in (("empty", []), ("blank", ["", " "] * 4 + [""]), ("two", ["a b", "c"])):
        write_lines(tiny / f"{name}.en", lines)
        write_lines(tiny / f"{name}.xx", lines)
    write_lines(tiny / "text", ["a"] * 300)
    (tiny / "folder").mkdir()
    there = set(tiny.rglob("*"))
    done = mt("init", *arguments, cwd=tiny, code=2)
    assert set(tiny.rglob("*")) == there
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


def asked(folder: Path, answers: list[str], code: int = 0) -> str:
    """Runs `mt init` on a terminal, answers its questions one by one, and returns what it showed."""
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


def test_on_a_terminal_it_asks(tmp_path: Path) -> None:
    write_corpus(tmp_path)
    files = ["gone.en", "train.en", "train.en", "train.xx"]
    answers = [*files, "", "no language", "yy", "../mine", "mine", "valid.en", "valid.xx", "", "0.5", "0"]
    shown = asked(tmp_path, answers)
    assert "gone.en: no such file" in shown
    assert "train.en: that is the file in the source language" in shown
    assert "no language: must be a short code" in shown
    assert "../mine: must be letters" in shown
    config = load_config(tmp_path / "mine.yaml")
    assert (config.data.source_lang, config.data.target_lang) == ("en", ("yy",))
    assert config.data.valid[0].source == "valid.en"
    assert config.data.test.from_train == 15


def test_on_a_terminal_a_name_that_is_taken_is_refused_before_more_is_asked(tmp_path: Path) -> None:
    write_corpus(tmp_path)
    (tmp_path / "mine.yaml").write_text("mine")
    shown = asked(tmp_path, ["train.en", "train.xx", "", "", "mine"], code=2)
    assert "mine.yaml is there already" in shown


def surveyed(pairs: int, source: str = "ein alter Hund", target: str = "an old dog") -> CorpusSample:
    return CorpusSample([pairs], [pairs], [0], {"kept": pairs}, [(source, target)] * 5)


def grounds() -> Iterator[Ground]:
    for pairs in (50, 9_000, 30_000, 200_000, 1_000_000, 50_000_000):
        for device in ("cpu", "cuda", "mps"):
            for minutes in (None, 10.0, 600.0):
                yield Ground(surveyed(pairs), device, 2, minutes)


def drafted(ground: Ground, length: Length, shape_number: int | None = None) -> Config:
    data = [
        Choice("source_lang", "de"),
        Choice("target_lang", "en"),
        Choice("train", {"source": "it's: a #file, [odd]", "target": "b"}),
    ]
    shape = first_shape(ground) if shape_number is None else SHAPES[shape_number]
    return Draft("run", data, tokenizer_choices(ground), ground).config(shape, length)


@pytest.mark.parametrize(
    "ground", list(grounds()), ids=lambda ground: f"{ground.pairs}-{ground.device}-{ground.minutes}"
)
def test_whatever_is_chosen_loads(ground: Ground) -> None:
    for steps in (50, 12_345, 300_000):
        for number in range(len(SHAPES)):
            config = drafted(ground, Length(steps, 3.7, 3), number)
            assert config.training.max_steps == steps
            assert config.training.validate_every <= max(1, steps)
            assert config.data.train[0].source == "it's: a #file, [odd]"


def test_larger_corpora_and_machines_get_larger_models() -> None:
    def sizes(device: str, minutes: float | None) -> list[int]:
        grounds = [Ground(surveyed(n), device, 2, minutes) for n in (5_000, 30_000, 200_000, 1_000_000)]
        return [SHAPES.index(first_shape(ground)) for ground in grounds]

    assert sizes("cpu", 10) == [0, 1, 2, 2]
    assert sizes("cpu", 90) == [0, 2, 2, 2]
    assert sizes("cuda", None) == [0, 2, 3, 4]


def test_vocabularies_fit_the_text_and_its_letters() -> None:
    def chosen(survey: CorpusSample) -> tuple[object, object]:
        size, shared = tokenizer_choices(Ground(survey, "cpu", 2))
        return size.value, shared.value

    assert [chosen(surveyed(n))[0] for n in (5_000, 30_000, 200_000, 1_000_000, 5_000_000)] == [
        2000,
        10000,
        10000,
        16000,
        32000,
    ]
    assert chosen(surveyed(5_000)) == (2000, True)
    assert chosen(surveyed(5_000, "старая собака", "an old dog")) == (2000, False)
    many = "".join(map(chr, range(0x4E00, 0x4E00 + 3000)))
    assert chosen(surveyed(5_000, many, "an old dog")) == (10000, False)


def test_few_passes_need_less_dropout() -> None:
    def dropout(pairs: int, epochs: float) -> float:
        values = {
            choice.key: choice.value for choice in model_choices(SHAPES[1], Ground(surveyed(pairs), "cpu", 2), epochs)
        }
        return values["dropout"]

    assert dropout(30_000, 4) == 0.0
    assert dropout(30_000, 7) == 0.1  # as in configs/multi30k_en_de_fast.yaml
    assert dropout(30_000, 25) == 0.2
    assert dropout(30_000, 55) == 0.3  # as in configs/multi30k_en_de.yaml
    assert dropout(5_000, 25) == 0.3
    assert dropout(5_000_000, 5) == 0.1


MEASURED = Measured("cpu", "fp32", 1_000_000, 5, 0.5, 4000.0, 0.01, 0.02, 10**9, None, 0.0)


def test_the_length_is_what_the_time_allows_or_the_text_is_worth() -> None:
    free = length_for(Ground(surveyed(30_000), "cpu", 2), MEASURED, 28_000, 1000)
    assert free.steps == 15_000  # 55 passes of 280 steps, to two digits
    assert free.epochs == pytest.approx(15_000 / 280)
    hurried = length_for(Ground(surveyed(30_000), "cpu", 2, 10.0), MEASURED, 28_000, 1000)
    in_all = hurried.steps * 0.5 + hurried.validations * 1000 * 0.02
    assert 0.7 * 600 < in_all < 0.95 * 600
    assert hurried.validations == 3  # of 20 seconds each
    endless = length_for(Ground(surveyed(30_000), "cpu", 2, 10_000.0), MEASURED, 28_000, 1000)
    assert endless.steps == 31_000  # more would be in vain


def test_a_text_too_large_for_the_most_steps_is_said_to_be(
    tiny: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(start, "_STEPS", (1, 2))
    monkeypatch.setattr(start, "_SECONDS", 0.5)
    monkeypatch.setattr(logging.getLogger("mt"), "propagate", True)
    files = (str(tiny / "train.en"), str(tiny / "train.xx"))
    start.begin(Answers("big", "en", "xx", (files,), None, None, None, "cpu"), "schema")
    assert "2 steps, the most given here, are 1." in caplog.text


def test_the_estimate_adds_up() -> None:
    config = drafted(Ground(surveyed(30_000), "cpu", 2), Length(1000, 3.0, 10))
    found = estimate(config, MEASURED, [28_000], 500, 100.0)
    assert found.steps == 1000
    assert found.epochs == pytest.approx(1000 / 280)
    assert found.training_seconds == pytest.approx(500)
    assert found.validation_seconds == pytest.approx(10 * 500 * 0.02)
    tokens = 28_000 * 0.01 * 4000
    assert found.disk == pytest.approx(28_000 * 116 + 2 * tokens + 4 * 12_000_000 + 12_000_000, rel=0.01)
    # A large text is fullest before training: without its duplicates it is written once more.
    assert estimate(config, MEASURED, [28_000], 500, 1e6).disk == pytest.approx(2 * 28_000 * 1e6)
    for epochs, steps in ((2, 560), (100, 1000)):
        training = config.training.model_copy(update={"max_epochs": epochs})
        assert estimate(config.model_copy(update={"training": training}), MEASURED, [28_000], 500, 100.0).steps == steps


def test_a_survey_reads_all_and_keeps_a_sample_from_everywhere(tmp_path: Path) -> None:
    number = 2 * MAX_SAMPLE + 100
    rng = random.Random(1)
    lines = [f"{n} {rng.random()}" for n in range(number)]
    write_lines(tmp_path / "a.en", [*lines, ""])
    write_lines(tmp_path / "a.de", [*lines, "leer"])
    write_lines(tmp_path / "b.en", ["one two"])
    write_lines(tmp_path / "b.de", ["eins zwei drei"])
    sources = "[{source: a.en, target: a.de}, {source: b.en, target: b.de}]"
    text = f"name: x\ndata: {{source_lang: en, target_lang: de, root: {tmp_path}, train: {sources}}}\n"
    (tmp_path / "x.yaml").write_text(text)
    data = load_config(tmp_path / "x.yaml").data
    found = sample_corpus(data.train, data)
    assert (found.pairs, found.clean_pairs, found.back_translated) == ([number + 1, 1], [number, 1], [0, 0])
    assert found.counts == {"kept": number + 1, "empty": 1}
    assert MAX_SAMPLE / 2 <= len(found.sample) <= MAX_SAMPLE
    places = [int(source.split()[0]) for source, _ in found.sample[:-1]]
    gaps = {later - earlier for earlier, later in pairwise(places)}
    assert gaps == {4}
    assert found.training_pairs(held_out=1) == [number - 1, 1]


def test_a_trial_measures_a_training(tiny: Path) -> None:
    config = load_config(tiny / "tiny.yaml", [f"data.root={tiny}", "data.max_length=6"])
    found = sample_corpus(config.data.train, config.data)
    tokenizers = train_on_sample(config.tokenizer, found.sample)
    measured = probe(config, found.sample, tokenizers, whole=True, seconds=0.5, pretrained=Pretrained(config))
    fitting = [pair for pair in found.sample if len(tokenizers.source.encode(pair[0])) <= 4]
    assert measured.too_long == pytest.approx(1 - len(fitting) / len(found.sample), abs=0.05)
    assert 0 < measured.too_long < 1
    assert measured.device == "cpu"
    assert measured.parameters == 10_448
    assert 2 <= measured.steps <= 20
    assert 0 < measured.seconds_per_step < 5
    assert 100 < measured.tokens_per_step <= 400
    assert 10**8 < measured.memory < 4 * 10**9
    assert measured.gpu_memory is None
