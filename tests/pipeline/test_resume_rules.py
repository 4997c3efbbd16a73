"""Changes before a resume: accepted ones are logged, others refused by the name of their key."""

import json
from pathlib import Path
from typing import Any

import pytest

from data_helpers import write_lines, write_pairs
from mt.config import Config, dump_config, parse_config
from mt.data.prepare import input_digests
from mt.errors import InputError
from mt.pipeline.data import clean_text
from mt.pipeline.resume import refuse_changes
from mt.pipeline.run import prepare
from mt.storage import atomic
from mt.storage.run_dir import CheckpointDir, RunDir
from mt.text.languages import TERM_TAGS
from training_helpers import prepare_run

PAIRS = [("one", "uno"), ("two", "due")]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A folder with the same text in two places."""
    for place in ("here", "there"):
        (tmp_path / place).mkdir()
        for name in ("train", "other", "valid"):
            write_pairs(tmp_path / place, name, PAIRS)
    return tmp_path


def configure(project: Path, *changes: str) -> Config:
    data = {
        "source_lang": "en",
        "target_lang": "it",
        "root": str(project / "here"),
        "train": {"source": "train.en", "target": "train.it"},
        "valid": {"source": "valid.en", "target": "valid.it"},
        "test": {"from_train": 1},
    }
    return parse_config(json.dumps({"name": "run", "data": data}), "x.yaml", changes)


def start(project: Path, *changes: str) -> None:
    """Do what `mt train` does before its first stage."""
    run, config = RunDir(project / "run"), configure(project, *changes)
    refuse_changes(run, config, input_digests(config.data))
    atomic.write_text(run.config, dump_config(config))


def start_and_train(project: Path, *changes: str) -> RunDir:
    """Start a run, and write its checkpoint of step 100."""
    start(project, *changes)
    run = RunDir(project / "run")
    checkpoint(run, 100, inputs=input_digests(configure(project, *changes).data))
    return run


def checkpoint(run: RunDir, step: int, **origin: Any) -> Path:
    """Write a checkpoint that records what it was trained on, if anything."""
    with atomic.new_folder(run.checkpoint(step), step=step) as folder:
        atomic.write_text(folder / "state.json", "{}")
        if origin:
            atomic.write_json(CheckpointDir(folder).origin, origin)
    return run.checkpoint(step)


def refusal(project: Path, *changes: str) -> str:
    with pytest.raises(InputError) as caught:
        start(project, *changes)
    assert "another name" in caught.value.hint
    return caught.value.message


FROZEN = [
    ("seed", 2, 1),
    ("model.d_model", 256, 512),
    ("model.dropout", 0.2, 0.1),
    ("tokenizer.vocab_size", 8000, 10_000),
    ("tokenizer.shared", False, True),
    ("data.max_length", 100, 256),
    ("data.max_ratio", None, 9.0),
    ("data.target_lang", "de", "it"),
    ("data.test", None, {"from_train": 1}),
    ("training.max_tokens", 2048, 4096),
    ("training.accumulate", 2, 1),
    ("training.bidirectional_epochs", 4, 0),
    ("training.guided_alignment", 0.1, 0.0),
]


@pytest.mark.parametrize(("key", "now", "before"), FROZEN, ids=[key for key, _, _ in FROZEN])
def test_a_change_that_a_resume_cannot_survive_is_refused_by_name(
    project: Path, key: str, now: Any, before: Any
) -> None:
    run = start_and_train(project)
    config = run.config.read_bytes()
    message = refusal(project, f"{key}={json.dumps(now)}")
    assert message.startswith(f"{run.root}: cannot resume: {key}")
    assert f"{now!r}" in message
    # Refusing changes nothing, so that it is refused again, and the old configuration goes on.
    assert run.config.read_bytes() == config
    assert refusal(project, f"{key}={json.dumps(now)}") == message
    start(project)


def test_all_changes_are_named_at_once(project: Path) -> None:
    start_and_train(project)
    source = "[{source: train.en, target: train.it}, {builtin: phrasebook}]"
    message = refusal(project, "seed=5", "model.d_ff=64", "training.max_steps=3", f"data.train={source}")
    assert "cannot resume: data.train is now 2 sources, it was 1 source (an optional one counts once" in message
    assert "content" not in message
    assert "seed is now 5, it was 1" in message
    assert "model.d_ff is now 64, it was 2048" in message
    assert "max_steps" not in message


def test_a_change_of_one_source_is_named_by_its_key(project: Path) -> None:
    two = "data.train=[{source: train.en, target: train.it}, {source: other.en, target: other.it}]"
    run = start_and_train(project, two)
    weighted = refusal(project, two, "data.train.0.weight=2")
    assert weighted == f"{run.root}: cannot resume: data.train.0.weight is now 2.0, it was 1.0"
    write_lines(project / "here" / "new.en", ["changed", "changed"])
    renamed = refusal(project, two, "data.train.1.source=new.en")
    assert renamed == f"{run.root}: cannot resume: data.train.1.source is now 'new.en', it was 'other.en'"
    fewer = refusal(project)
    assert fewer == f"{run.root}: cannot resume: data.train is now 1 source, it was 2 sources"


@pytest.mark.parametrize(
    ("name", "key"),
    [("train.en", "data.train.source"), ("train.it", "data.train.target"), ("valid.it", "data.valid.target")],
)
def test_other_content_of_the_same_files_is_refused(project: Path, name: str, key: str) -> None:
    run = start_and_train(project)
    write_lines(project / "here" / name, ["changed", "changed"])
    message = refusal(project)
    assert message == f"{run.root}: cannot resume: {key}: the content has changed"
    assert refusal(project) == message


FREE = [
    "training.max_steps=200000",
    "training.log_every=7",
    "training.save_every=50",
    "training.learning_rate=1.0e-4",
    "training.patience=3",
    "training.device=cpu",
    "decoding.beam_size=1",
    "evaluation.methods=[greedy]",
]


@pytest.mark.parametrize("change", FREE)
def test_a_change_that_a_resume_survives_is_accepted_and_logged(project: Path, change: str, notices: list[str]) -> None:
    start_and_train(project)
    start(project)
    assert notices == []
    start(project, change)
    [notice] = notices
    assert notice.startswith(f"{change.partition('=')[0]} is now ")


def test_the_checkpoints_record_the_configuration_that_counts(project: Path, notices: list[str]) -> None:
    """`mt runs show` names the run's own config.yaml for a resume, and that may have been edited."""
    run, config = start_and_train(project), configure(project)
    checkpoint(run, 200, inputs=input_digests(config.data), config=dump_config(config))
    changes = ("seed=2", "training.optimizer=muon", "training.max_steps=200000")
    run.config.write_text(dump_config(configure(project, *changes)))
    message = refusal(project, *changes)
    assert message == (
        f"{run.root}: cannot resume: seed is now 2, it was 1; training.optimizer is now 'muon', it was 'adam'"
    )
    start(project, changes[-1])
    assert notices == ["training.max_steps is now 200000, it was 100000"]


@pytest.mark.parametrize("change", ["learning_rate=1.0e-4", "betas=[0.8, 0.9]", "ema_decay=0.9"])
def test_settings_that_come_too_late_are_refused(project: Path, change: str, notices: list[str]) -> None:
    run, change = start_and_train(project), f"training.{change}"
    with atomic.new_folder(run.model.root, steps=100):
        pass
    key = change.partition("=")[0]
    assert refusal(project, change).endswith(f"it is trained to its end, and {key} would change nothing any more")
    start(project, change, "training.patience=30")
    assert len(notices) == 2
    start(project)
    checkpoint(run, 101, inputs=input_digests(configure(project).data))
    start(project, change)


def test_guided_alignment_may_change_and_end(project: Path, notices: list[str]) -> None:
    guided = "training.guided_alignment=0.1"
    start_and_train(project, guided)
    start(project, guided.replace("1", "2"))
    start(project)
    assert [notice.rpartition(" ")[2] for notice in notices] == ["0.1", "0.2"]


def test_another_test_set_is_accepted_unless_it_was_split_off(project: Path, notices: list[str]) -> None:
    files = "data.test={source: other.en, target: other.it}"
    start_and_train(project, files)
    write_lines(project / "here" / "other.en", ["changed", "changed"])
    start(project, files)
    assert notices == []
    for other in ("data.test={source: valid.en, target: valid.it}", "data.test=null", files):
        start(project, other)
    assert notices == [
        "data.test.source is now 'valid.en', it was 'other.en'",
        "data.test.target is now 'valid.it', it was 'other.it'",
        "data.test is now None, it was 1 source",
        "data.test is now 1 source, it was None",
    ]
    assert "data.test.from_train is now 1, it was None" in refusal(project, "data.test={from_train: 1}")


def test_the_same_text_in_another_place_is_accepted(project: Path) -> None:
    start_and_train(project)
    start(project, f"data.root={project / 'there'}")
    write_lines(project / "there" / "train.en", ["changed", "changed"])
    assert "data.train.source: the content" in refusal(project, f"data.root={project / 'there'}")


@pytest.mark.parametrize("others", ["", ", {source: other.en, target: other.it}"])
def test_the_same_folder_in_another_place_is_accepted(project: Path, others: str, notices: list[str]) -> None:
    here, there, beside = (f"data.train=[{{folder: {place}}}{others}]" for place in (".", "../there", "../beside"))
    start_and_train(project, here)
    start(project, there)
    assert [line.partition(" is now")[0] for line in notices] == [f"data.train{'.0' * bool(others)}.folder"]
    (project / "beside").mkdir()
    write_pairs(project / "beside", "train", [("changed", "cambiato")])
    assert f"data.train{'.0' * bool(others)}.folder is now '../beside'" in refusal(project, beside)


def test_without_checkpoints_anything_goes(project: Path) -> None:
    start(project)
    start(project, "seed=2", "model.d_model=64", "tokenizer.vocab_size=500")
    write_lines(project / "here" / "train.en", ["changed", "changed"])
    start(project)
    # What counts later is the last start, whose checkpoints these are.
    RunDir(project / "run").checkpoint(5).mkdir(parents=True)
    start(project)
    assert "seed is now 2, it was 1" in refusal(project, "seed=2")


def test_without_checkpoints_other_tags_need_another_tokenizer(tiny: Path) -> None:
    changes = (("", ()), ("augmentation.terms=0.5", TERM_TAGS), ("model.target_tag=target", ("xx",)))
    for change, tags in changes:
        config = parse_config((tiny / "tiny.yaml").read_text(), "x.yaml", [f"data.root={tiny}", *change.split()])
        assert tuple(prepare_run(config, RunDir(tiny / "run")).source.tags) == tags


def test_what_another_training_measured_is_forgotten(tiny: Path) -> None:
    config = parse_config((tiny / "tiny.yaml").read_text(), "x.yaml", [f"data.root={tiny}"])
    run = RunDir(tiny / "run")
    records = (run.length, run.precision)
    for name, is_kept in (("other", False), ("step-00000100", True), ("damaged-step-00000100", True)):
        for record in records:
            atomic.write_text(record, "{}")
        (run.checkpoints / name).mkdir(parents=True)
        assert prepare(config, run, tiny)[1]["config"] == dump_config(config)
        assert [record.exists() for record in records] == [is_kept] * 2
        (run.checkpoints / name).rmdir()


@pytest.mark.parametrize("name", ["step-00000100", "step-00000007", "damaged-step-00000100"])
def test_only_checkpoints_count_damaged_ones_too(project: Path, name: str) -> None:
    start(project)
    checkpoints = RunDir(project / "run").checkpoints
    for other in (".step-00000100.partial", "step-00000100.bak", "step-100", "other"):
        (checkpoints / other).mkdir(parents=True)
    assert RunDir(project / "run").checkpoint_steps() == []
    start(project, "seed=2")
    (checkpoints / name).mkdir()
    assert "seed is now 3, it was 2" in refusal(project, "seed=3")


def test_a_text_that_changes_while_it_is_read_is_refused(project: Path) -> None:
    """Otherwise a checkpoint would have another digest than the text, and the first resume would be refused."""
    config, run = configure(project, "data.test=null"), RunDir(project / "run")
    before = input_digests(config.data)
    write_pairs(project / "here", "train", [*PAIRS, ("three", "tre")])
    with pytest.raises(InputError, match="data: a text changed while it was read"):
        clean_text(config, run, before)
    assert not run.text.exists()
    clean_text(config, run, input_digests(config.data))
    assert run.prepared_counts.exists()


def test_a_damaged_record_is_that_of_the_checkpoint_before(project: Path) -> None:
    run = start_and_train(project)
    newest = CheckpointDir(checkpoint(run, 200, inputs={"data.train.source": "other"}))
    assert "data.train.source: the content" in refusal(project)
    newest.origin.write_text(newest.origin.read_text().replace("other", "otter"))
    start(project)


def test_checkpoints_without_a_configuration_are_refused(project: Path) -> None:
    run = start_and_train(project)
    run.config.unlink()
    assert "there is no config.yaml, which describes its checkpoints" in refusal(project)


def test_a_configuration_that_is_not_utf8_is_refused(project: Path) -> None:
    start_and_train(project).config.write_bytes(b"name: \xff\n")
    with pytest.raises(InputError, match="not UTF-8"):
        start(project)
