"""`mt train --dry-run`: refuses what training would refuse, estimates the cost, and leaves nothing behind."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path

import pytest

from command import mt
from data_helpers import make_config, make_data_config, write_lines
from mt.data.corpus import read_pairs
from mt.data.split import Split
from mt.errors import MachineError
from mt.extras.planning.corpus_sample import sample_corpus
from mt.extras.planning.dry_run import disk_space, read_texts, training_progress
from mt.storage import lock as run_lock
from mt.storage.run_dir import CheckpointDir, RunDir
from mt.training.train_state import TrainState
from resume_helpers import overrides

DRY = ["train", "--config", "tiny.yaml", "--dry-run"]


def dry(folder: Path, *changes: str, code: int | None = 0):
    return mt(*DRY, *overrides(changes), cwd=folder, code=code)


def rows(text: str) -> dict[str, str]:
    return dict(re.split(" {2,}", line, maxsplit=1) for line in text.splitlines()[:-1])


def files(folder: Path) -> dict[str, tuple[int, int]]:
    """Return all files of a folder with their modification times and sizes."""
    paths = [path for path in folder.rglob("*") if "__pycache__" not in path.parts]
    return {str(path): (path.stat().st_mtime_ns, path.stat().st_size) for path in paths}


def test_the_table_has_every_aspect_and_nothing_is_left_behind(tiny: Path, tmp_path: Path) -> None:
    before = files(tiny)
    output = dry(tiny).stdout
    assert files(tiny) == before
    found = rows(output)
    patterns = {
        "run": "runs/tiny, new",
        "device": "cpu, fp32.*",
        "training text": "300 pairs before deduplication",
        "validation text": "12 pairs",
        "test text": "12 pairs",
        "tokenizer": "301 pieces",
        "model": "10,448 parameters",
        "training": r"24 steps of about (\d+) tokens, (\d+\.\d) passes over the text",
        "time": r"about \d+ s \(\d+ s of it validation\), \S+ s a step.*",
        "memory": r"0\.\d GB, and some 0\.3 for scoring, of \d+ GB here",
        "disk": r"up to 0\.\d+ GB, of [\d,]+ GB free",
    }
    matches = {name: re.fullmatch(pattern, found[name]) for name, pattern in patterns.items()}
    assert all(matches.values()), found
    assert 200 < int(matches["training"][1]) <= 400
    assert output.splitlines()[-1].startswith("nothing was trained")


def test_the_number_format_is_shown(tiny: Path) -> None:
    assert rows(dry(tiny, "training.precision=bf16").stdout)["device"] == "cpu, bf16"


@pytest.mark.slow
def test_estimated_epochs_are_those_of_training(tiny: Path) -> None:
    estimated = float(re.search(r"(\S+) passes", dry(tiny, "data.drop_duplicates=false").stdout)[1])
    mt("train", "--config", "tiny.yaml", "--set", "data.drop_duplicates=false", cwd=tiny)
    events = [json.loads(line) for line in (tiny / "runs" / "tiny" / "metrics.jsonl").read_text().splitlines()]
    (last,) = [event for event in events if event["event"] == "train" and event["step"] == 24]
    assert last["epoch"] == int(estimated) > 0


def test_dropped_and_held_out_pairs_are_counted(tiny: Path) -> None:
    write_lines(tiny / "train.en", [*(tiny / "train.en").read_text().splitlines(), "", "a", "b"])
    write_lines(tiny / "train.xx", [*(tiny / "train.xx").read_text().splitlines(), "x", "p " * 90, ""])
    found = rows(dry(tiny, "data.valid={from_train: 20}", "data.test={from_train: 1000}", "data.max_length=6").stdout)
    assert found["validation text"] == "20 pairs"
    assert found["test text"] == "30 pairs"  # no more than a tenth
    counts, dropped = found["training text"].split("; cleaning drops ")
    assert counts == "250 pairs before deduplication"
    assert re.fullmatch(r"2 empty, 1 badly proportioned, about \d\d\.\d% longer than max_length", dropped)


def test_only_human_pairs_are_counted_to_be_held_out(tmp_path: Path) -> None:
    """As `Split` does; it also drops synthetic pairs with a held-out side from the training text."""
    for name, number in (("own", 200), ("made", 5000)):
        for code in ("en", "it"):
            write_lines(tmp_path / f"{name}.{code}", (f"{name} {code} {i}" for i in range(number)))
    train = [{"source": f"{name}.en", "target": f"{name}.it", "synthetic": name == "made"} for name in ("own", "made")]
    config = make_config(tmp_path, train, valid={"from_train": 1000}, test={"from_train": 5})
    found, split = read_texts(config.data), Split(config.data, config.seed)
    held_out = [sum(split.holds_out(*pair) for pair in read_pairs(each, config.data)) for each in config.data.train]
    assert found.held_out == {"valid": (20, True), "test": (5, True)}
    assert held_out == [25, 0]
    assert found.pairs == [175, 5000]


def test_the_steps_and_time_of_an_earlier_run_are_read(tmp_path: Path) -> None:
    run = RunDir(tmp_path)
    assert training_progress(run) == (0, 0.0)
    run.checkpoint(30).mkdir(parents=True)
    assert training_progress(run) == (30, 0.0)
    CheckpointDir(run.checkpoint(30)).state.write_text(json.dumps(asdict(TrainState(step=30, elapsed=12.5))))
    assert training_progress(run) == (30, 12.5)


def test_an_earlier_run_is_left_untouched(trained: Path, tmp_path: Path) -> None:
    shutil.copytree(trained, tmp_path / "copy")
    before = files(tmp_path / "copy")
    done = dry(tmp_path / "copy", "training.max_steps=48")
    assert rows(done.stdout)["run"] == "runs/tiny, resumes after step 24"
    assert "training.max_steps is now 48, it was 24" in done.stderr
    refused = dry(tmp_path / "copy", "seed=2", code=2)
    assert "cannot resume: seed" in refused.stderr
    assert files(tmp_path / "copy") == before


def test_a_model_to_start_from_must_fit(trained: Path, tiny: Path) -> None:
    given = f"training.init_from={trained / 'runs' / 'tiny'}"
    found = rows(dry(tiny, given).stdout)
    assert found["starts from"] == str(trained / "runs" / "tiny" / "model")
    assert found["tokenizer"] == "301 pieces"
    assert "differs from this configuration in model.d_ff" in dry(tiny, given, "model.d_ff=64", code=2).stderr
    assert "nowhere" in dry(tiny, "training.init_from=nowhere", code=2).stderr


def test_several_languages(two_languages: Path) -> None:
    found = rows(mt("train", "--config", "two.yaml", "--dry-run", "--set", "name=new", cwd=two_languages).stdout)
    assert found["training text"].startswith("800 pairs")
    assert found["validation text"] == "40 pairs"
    assert not (two_languages / "runs" / "new").exists()


def test_a_language_without_a_usable_pair(two_languages: Path, tmp_path: Path) -> None:
    for file in two_languages.glob("*.*"):
        shutil.copy(file, tmp_path)
    (tmp_path / "train.yy").write_text("\n" * 400)
    done = mt("train", "--config", "two.yaml", "--dry-run", cwd=tmp_path, code=2)
    assert "data.train: no pair into yy is left to train on" in done.stderr
    checked = mt("data", "check", "two.yaml", cwd=tmp_path, code=2)
    assert "data.train: no pair into yy that training would take" in checked.stdout
    assert "into xx that" not in checked.stdout


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (["data.train.target=gone"], "gone: no such file"),
        (["data.train.target=test.xx"], "train.en has 300 lines but test.xx has 12"),
        (["data.valid={source: none, target: none.xx}"], "data.valid: no sentence pair in it"),
        (["data.test.source=valid.en", "data.test.target=train.xx"], "valid.en has 12 lines but train.xx has 300"),
        (["data.train={source: none, target: none.xx}"], "data.train: no sentence pair in it"),
        (["data.max_length=3"], "none of its pairs is within data.max_length"),
        (
            ["data.train={source: one, target: one.xx}", "data.valid={from_train: 1}"],
            "when 1 for validation and test",
        ),
        (
            ["data.train={source: bt, target: bt.xx}", "data.valid={from_train: 1}"],
            "bt and bt.xx: back-translated",
        ),
        (["training.device=cuda"], "training.device: this machine has no usable cuda device"),
        (["model.n_heads=3"], "cannot be divided among 3 heads"),
        (["training.freeze=[encoder, decoder, source_embedding, output]"], "training.freeze: nothing is left to train"),
        (
            ["model.architecture=decoder_only", "model.encoder_layers=0", "training.freeze=[encoder]"],
            "training.freeze: this model has no part encoder",
        ),
        (["evaluation.bleu_tokenize=ko-mecab"], "evaluation.bleu_tokenize: ko-mecab cannot be used here"),
    ],
)
def test_refuses_what_training_would_refuse(tiny: Path, changes: list[str], message: str) -> None:
    for name, lines in {"none": [], "one": ["a b", ""], "bt": ["c d", "<BT> a b"] * 9}.items():
        write_lines(tiny / name, lines)
        write_lines(tiny / f"{name}.xx", lines)
    done = dry(tiny, *changes, code=2)
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
    assert not (tiny / "runs").exists()


def test_insufficient_disks_are_refused(tiny: Path) -> None:
    many = ["training.keep_checkpoints=100000", "training.save_every=1", "model.d_ff=8192"]
    dry(tiny, *many)  # of 24 steps
    done = dry(tiny, *many, "training.max_steps=1000000", code=4)
    assert "GB free on this disk, but the run may need" in done.stderr
    done = mt(*DRY, "--runs", "tiny.yaml", cwd=tiny, code=4)
    assert "tiny.yaml: cannot write here" in done.stderr
    (tiny / "runs").mkdir()
    (tiny / "runs" / "tiny").symlink_to(tiny / "nowhere")
    assert "cannot write here" in dry(tiny, code=4).stderr


def test_space_that_a_run_uses_already_need_not_be_free(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "checkpoints" / "a").write_bytes(bytes(600))
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=500))
    assert disk_space(tmp_path, [tmp_path], 1000, complete=True) == "up to 0.00 GB, of 0.00 GB free"
    with pytest.raises(MachineError, match="may need"):
        disk_space(tmp_path, [tmp_path], 1200, complete=True)


def test_sizes_have_no_exponents(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with (tmp_path / "a").open("wb") as file:
        file.truncate(1_230_000_000)  # sparse
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=2_345_000_000_000))
    text = disk_space(tmp_path, [tmp_path], 123_000_000_000, complete=False)
    assert text == "at least 123 GB, 1.23 of it in use, of 2,345 GB free"


@pytest.mark.slow
def test_a_signal_to_the_process_group_leaves_no_text_behind(tiny: Path) -> None:
    """A closed terminal and a batch system send such a signal."""
    temporary = tiny / "temporary"
    temporary.mkdir()
    command = [sys.executable, "-m", "mt", *DRY]
    environment = {**os.environ, "TMPDIR": str(temporary)}
    with subprocess.Popen(
        command, cwd=tiny, env=environment, start_new_session=True, stderr=subprocess.DEVNULL
    ) as process:
        while not list(temporary.rglob("train.source")):
            assert process.poll() is None
            time.sleep(0.02)
        os.killpg(process.pid, signal.SIGTERM)
    assert list(temporary.iterdir()) == []


def test_the_folder_of_a_pipeline_is_refused(tiny: Path) -> None:
    (tiny / "runs" / "tiny" / ".pipeline").mkdir(parents=True)
    refused = [mt(*words, cwd=tiny, code=2).stderr for words in (DRY, DRY[:-1])]
    assert all("runs/tiny is the folder of a pipeline" in text for text in refused)


def test_a_locked_run_is_refused(tiny: Path) -> None:
    with run_lock.exclusive(tiny / "runs" / "tiny" / ".lock"):
        assert "another training" in dry(tiny, code=2).stderr
    run_lock.refuse_locked(tiny / "runs" / "tiny" / ".lock")  # the lock is free again


def test_only_the_first_rows_of_a_hub_data_set_are_read(tmp_path: Path) -> None:
    folder = tmp_path / "set"
    folder.mkdir()
    data = make_data_config(tmp_path, {"hub": str(folder)})
    for rows, pairs in ((2500, 2000), (1, 1)):
        write_lines(folder / "train.csv", ["en,it", *(f"hello {n},ciao {n}" for n in range(rows))])
        sample = sample_corpus(data.train, data)
        assert (sample.pairs, sample.complete) == ([pairs], pairs == rows)


def test_the_unread_part_of_a_hub_data_set_is_not_estimated(tiny: Path) -> None:
    folder = tiny / "set"
    folder.mkdir()
    write_lines(folder / "train.csv", ["en,xx", *(["a b c,x y z", "c a b,z x y"] * 1100)])
    changes = [
        "data.train=[{hub: set}]",
        "data.valid={from_train: 1000}",
        "data.test=null",
        "data.drop_duplicates=false",
    ]
    found = rows(dry(tiny, *changes, "training.max_epochs=1").stdout)
    assert found["training text"].startswith("at least 2,000 pairs")
    assert found["validation text"] == "1,000 pairs"
    assert found["training"].startswith("at most 24 steps")
    assert found["disk"].startswith("at least ")
