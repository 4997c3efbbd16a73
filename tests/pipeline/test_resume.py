"""Promises 1, 2 and 6: exact resume after any crash, checkpoints whole or absent, signals save and exit."""

import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from command import Command, mt
from mt.storage import atomic
from mt.storage.manifest import read_manifest, verify
from mt.storage.run_dir import MANIFEST, CheckpointDir, RunDir
from mt.system.cpus import usable_cores
from mt.training.signals import StopRequest
from resume_helpers import LONG, events, hurt, last_step, resumes, run_of, train, wait_for_step, weights

KILLS = 20


@pytest.mark.parametrize("changes", [LONG, (*LONG, "training.accumulate=2", "training.final_weights=average")])
def test_killed_anywhere_ends_in_the_same_weights(tiny: Path, changes: tuple[str, ...]) -> None:
    expected_folder = tiny / "uninterrupted"
    shutil.copytree(tiny, expected_folder)
    train(expected_folder, *changes)

    rng = random.Random(len(changes))
    overrides = [word for change in changes for word in ("--set", change)]
    kills, resumed = 0, 0
    while kills < KILLS // 2:
        command = Command("train", "--config", "tiny.yaml", *overrides, cwd=tiny)
        if kills % 4:  # in training, some steps after those seen last; every fourth time anywhere, start-up included
            wait_for_step(tiny, last_step(tiny) + rng.choice([5, 5, 10, 15]), command)
        command.process.join(rng.uniform(0, 0.3 if kills % 4 else 1.5))
        if command.process.exitcode is None:
            command.signal(signal.SIGKILL)
        code = command.wait().code
        if code == -signal.SIGKILL:
            kills += 1
        else:  # finished before the signal: compare, and kill on from the start
            assert code == 0
            assert weights(tiny) == weights(expected_folder)
            resumed += resumes(tiny)
            shutil.rmtree(run_of(tiny).root)
    train(tiny, *changes)
    assert weights(tiny) == weights(expected_folder)
    assert resumed + resumes(tiny) >= KILLS // 4, "the kills missed the training; the test proves nothing"
    assert not list(run_of(tiny).root.rglob("*.partial")), "temporaries left behind"


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_signal_saves_and_exits_and_the_next_start_goes_on(tiny: Path, number: signal.Signals, code: int) -> None:
    changes = ("training.max_steps=300", "training.validate_every=150", "training.save_every=150")
    expected_folder = tiny / "uninterrupted"
    shutil.copytree(tiny, expected_folder)
    train(expected_folder, *changes)

    overrides = [word for change in changes for word in ("--set", change)]
    command = Command("train", "--config", "tiny.yaml", *overrides, cwd=tiny)
    wait_for_step(tiny, 20, command)
    command.signal(number)
    done = command.wait()
    assert done.code == code
    assert "everything is saved" in done.stderr
    stopped = [event for event in events(tiny) if event["event"] == "stopped"]
    assert 20 <= stopped[0]["step"] < 300
    assert run_of(tiny).checkpoint(stopped[0]["step"]).is_dir()

    assert f"resuming after step {stopped[0]['step']}" in train(tiny, *changes).stderr
    assert weights(tiny) == weights(expected_folder)


def test_a_run_that_is_trained_anew_gets_a_new_product(tiny: Path) -> None:
    """Its last step has the same name."""
    train(tiny, "training.final_weights=last")
    first, scores = weights(tiny), (run_of(tiny).scores / "test.json").read_bytes()
    shutil.rmtree(run_of(tiny).checkpoints)
    train(tiny, "training.final_weights=last", "seed=7")
    second = weights(tiny)
    assert second != first
    assert (run_of(tiny).scores / "test.json").read_bytes() != scores
    train(tiny, "training.final_weights=last", "seed=7")
    assert weights(tiny) == second


@pytest.mark.parametrize("name", ["model.safetensors", "optimizer.safetensors", "state.json", "MANIFEST.json"])
@pytest.mark.parametrize("damage", ["truncate", "flip", "delete"])
def test_a_damaged_checkpoint_is_set_aside_and_the_one_before_used(
    trained: Path, tmp_path: Path, name: str, damage: str
) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(trained, folder)
    shutil.rmtree(run_of(folder).model.root)
    hurt(run_of(folder).checkpoint(24) / name, damage)
    done = train(folder)
    assert "damaged" in done.stderr
    assert "resuming after step 20" in done.stderr
    assert weights(folder) == weights(trained)
    assert (run_of(folder).checkpoints / "damaged-step-00000024").is_dir()


def test_no_usable_checkpoint_is_never_a_silent_restart(trained: Path, tmp_path: Path) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(trained, folder)
    for checkpoint in run_of(folder).checkpoints.glob("step-*"):
        hurt(checkpoint / "model.safetensors", "flip")
    for _ in range(2):  # not at the second start either
        assert "no usable checkpoint" in train(folder, code=4).stderr


def test_two_whole_checkpoints_are_kept_even_if_one_rots(tiny: Path) -> None:
    train(tiny, "training.max_steps=12")
    hurt(run_of(tiny).checkpoint(12) / "model.safetensors", "flip")
    hurt(run_of(tiny).checkpoint(12) / "state.json", "truncate")
    train(tiny, "training.max_steps=16")
    whole = [path for path in run_of(tiny).checkpoints.glob("step-*") if verify(path)]
    assert len(whole) >= 2


def test_more_steps_go_on_from_the_end(tiny: Path) -> None:
    expected_folder = tiny / "uninterrupted"
    shutil.copytree(tiny, expected_folder)
    train(expected_folder, "training.max_steps=40")
    train(tiny, "training.max_steps=24")
    assert "resuming after step 24" in train(tiny, "training.max_steps=40").stderr
    assert weights(tiny) == weights(expected_folder)


@pytest.mark.parametrize(
    ("change", "key"),
    [
        ("model.d_ff=64", "model.d_ff"),
        ("tokenizer.vocab_size=330", "tokenizer.vocab_size"),
        ("data.max_length=30", "data.max_length"),
        ("data.train.target=valid.xx", "data.train"),
        ("seed=2", "seed"),
        ("training.max_tokens=300", "training.max_tokens"),
    ],
)
def test_a_change_that_a_resume_cannot_survive_is_refused_by_name(trained: Path, change: str, key: str) -> None:
    done = train(trained, change, code=2)
    assert key in done.stderr
    assert "cannot resume" in done.stderr


def test_changed_text_is_refused_by_name(trained: Path, tmp_path: Path) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(trained, folder)
    with (folder / "train.en").open("a") as file:
        file.write("a b c\n")
    assert "data.train.source" in train(folder, code=2).stderr


def without_data(trained: Path, folder: Path) -> Path:
    """A copy of a finished run whose prepared data were removed to save space."""
    shutil.copytree(trained, folder)
    shutil.rmtree(run_of(folder).text.parent)
    return folder


def test_without_its_prepared_data_a_run_resumes_with_the_same_weights(trained: Path, tmp_path: Path) -> None:
    shutil.copytree(trained, tmp_path / "expected")
    train(tmp_path / "expected", "training.max_steps=40")
    folder = without_data(trained, tmp_path / "copy")
    assert "resuming after step 24" in train(folder, "training.max_steps=40").stderr
    assert weights(folder) == weights(tmp_path / "expected")


@pytest.mark.parametrize(
    ("as_before", "same_size"),
    [(False, True), (True, True), (True, False)],
    ids=["recorded", "older", "smaller"],
)
def test_without_its_prepared_data_changed_text_is_refused(
    trained: Path, tmp_path: Path, as_before: bool, same_size: bool
) -> None:
    """Otherwise the tokenizer would be trained on the new text, and the weights would be of the old one."""
    folder = without_data(trained, tmp_path / "copy")
    if as_before:
        forget_origins(run_of(folder))
    model, tokenizer = weights(folder), verify(run_of(folder).tokenizer)
    original = {side: (folder / f"train.{side}").read_bytes() for side in ("en", "xx")}
    for side, content in original.items():
        (folder / f"train.{side}").write_bytes(content.upper() if same_size else b"a b\n" * 300)
    said = train(folder, "training.max_steps=30", code=2).stderr
    assert f"{run_of(Path()).root}: cannot resume: " in said
    assert "tokenizer" in said if as_before else "data.train.source: the content" in said
    assert (weights(folder), verify(run_of(folder).tokenizer)) == (model, tokenizer)
    for side, content in original.items():
        (folder / f"train.{side}").write_bytes(content)
    assert "resuming after step 24" in train(folder, "training.max_steps=30").stderr


def forget_origins(run: RunDir) -> None:
    """Makes checkpoints such as versions wrote that did not record what they were trained on."""
    for step in run.checkpoint_steps():
        folder = CheckpointDir(run.checkpoint(step))
        manifest = read_manifest(folder.root)
        del manifest["files"][folder.origin.name]
        folder.origin.unlink()
        atomic.write_json(folder.root / MANIFEST, manifest)


def test_checkpoints_of_an_older_version_resume(trained: Path, tmp_path: Path) -> None:
    shutil.copytree(trained, tmp_path / "expected")
    train(tmp_path / "expected", "training.max_steps=40")
    shutil.copytree(trained, folder := tmp_path / "copy")
    forget_origins(run_of(folder))
    train(folder, "training.max_steps=40")
    assert weights(folder) == weights(tmp_path / "expected")
    assert CheckpointDir(run_of(folder).checkpoint(40)).origin.is_file()


def test_another_tokenizer_in_the_run_is_refused(trained: Path, tmp_path: Path) -> None:
    shutil.copytree(trained, folder := tmp_path / "copy")
    run = run_of(folder)
    key, [name] = read_manifest(run.tokenizer)["key"], read_manifest(run.tokenizer)["files"]
    with atomic.new_folder(run.tokenizer, key=key) as other:
        atomic.write_text(other / name, (run.tokenizer / name).read_text() + "\n")
    again = train(folder, "training.max_steps=40", code=2)
    assert "tokenizer: the checkpoints were trained with another one" in again.stderr


def test_encoded_text_is_that_of_the_present_tokenizer(tiny: Path) -> None:
    """Two tokenizers may come from the same settings and text, as of two versions of the library."""
    train(tiny, "training.max_steps=4")
    run = run_of(tiny)
    shutil.rmtree(run.checkpoints)
    before = read_manifest(run.encoded("train"))["key"]
    key, [name] = read_manifest(run.tokenizer)["key"], read_manifest(run.tokenizer)["files"]
    with atomic.new_folder(run.tokenizer, key=key) as other:
        atomic.write_text(other / name, (run.tokenizer / name).read_text() + "\n")
    assert "encoding train" in train(tiny, "training.max_steps=4").stderr
    assert read_manifest(run.encoded("train"))["key"] != before


def train_as_nobody(folder: Path, *changes: str) -> subprocess.CompletedProcess[str]:
    """Trains as a user whom permissions bind; root is bound by none."""
    words = [word for change in changes for word in ("--set", change)]
    code = (
        "import os, sys\n"
        "from mt.cli import main\n"
        "import mt.pipeline.run, datasets, torch._dynamo, matplotlib.figure\n"  # where nobody may not read the packages
        "os.getuid() or os.setuid(65534)\n"
        "main()\n"
    )
    for path in (folder, *folder.rglob("*")):
        if os.getuid() == 0 and not path.is_symlink():
            os.chown(path, 65534, 65534)
    return subprocess.run(
        [sys.executable, "-c", code, "train", "--config", "tiny.yaml", *words],
        cwd=folder,
        capture_output=True,
        text=True,
    )


@pytest.fixture
def everyones(trained: Path) -> Iterator[Path]:
    """A copy of a finished run where another user finds it: pytest's folders are closed to others."""
    with tempfile.TemporaryDirectory() as place:
        Path(place).chmod(0o755)
        shutil.copytree(trained, folder := Path(place) / "copy")
        yield folder


def test_checkpoints_that_cannot_be_listed_are_no_restart(everyones: Path) -> None:
    run = run_of(everyones)
    config = run.config.read_bytes()
    run.checkpoints.chmod(0)
    done = train_as_nobody(everyones, "seed=2")
    assert done.returncode == 4
    assert "runs/tiny/checkpoints: cannot be listed: Permission denied" in done.stderr
    assert run.config.read_bytes() == config
    run.checkpoints.chmod(0o755)
    assert "seed is now 2" in train(everyones, "seed=2", code=2).stderr


@pytest.mark.parametrize("target", ["checkpoints", "nowhere"])
def test_checkpoints_behind_a_dead_link_are_no_restart(trained: Path, tmp_path: Path, target: str) -> None:
    """They may lie on a disk that is not mounted now."""
    shutil.copytree(trained, folder := tmp_path / "copy")
    run = run_of(folder)
    config = run.config.read_bytes()
    run.checkpoints.rename(folder / "moved")
    run.checkpoints.symlink_to(target)
    assert "runs/tiny/checkpoints: cannot be listed: " in train(folder, "seed=2", code=4).stderr
    assert run.config.read_bytes() == config


@pytest.mark.parametrize("name", ["model.safetensors", "origin.json", "MANIFEST.json"])
def test_a_checkpoint_that_cannot_be_read_is_not_damaged(everyones: Path, name: str) -> None:
    (run_of(everyones).checkpoint(24) / name).chmod(0)
    done = train_as_nobody(everyones, "training.max_steps=30")
    assert done.returncode == 4
    assert f"step-00000024/{name}: cannot be read: Permission denied" in done.stderr
    assert not run_of(everyones).has_damaged_checkpoints()
    (run_of(everyones).checkpoint(24) / name).chmod(0o644)
    assert "resuming after step 24" in train(everyones, "training.max_steps=30").stderr


def test_a_finished_run_does_nothing_again(trained: Path, tmp_path: Path) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(trained, folder)
    before = weights(folder)
    steps = [event["step"] for event in events(folder) if event["event"] == "train"]
    done = train(folder, "training.log_every=3")
    assert weights(folder) == before
    assert [event["step"] for event in events(folder) if event["event"] == "train"] == steps
    for stage in ("reading the corpus", "training the tokenizer", "encoded", "translating"):
        assert stage not in done.stderr


def test_a_second_trainer_in_the_same_run_is_refused(tiny: Path) -> None:
    first = Command("train", "--config", "tiny.yaml", "--set", "training.max_steps=100000", cwd=tiny)
    wait_for_step(tiny, 4, first)
    second = train(tiny, code=2)
    assert str(first.process.pid) in second.stderr
    assert "another training" in second.stderr
    run_of(tiny).lock.unlink()  # what somebody does who takes it for a leftover
    for again in (("--dry-run",), ()):
        assert "another training" in mt("train", "--config", "tiny.yaml", *again, cwd=tiny, code=2).stderr
    first.signal(signal.SIGTERM)
    assert first.wait().code == 143


@pytest.mark.slow
def test_a_compiled_model_resumes_too(tiny: Path) -> None:
    """torch.compile takes a minute on a CPU, and needs a C++ compiler."""
    expected_folder = tiny / "uninterrupted"
    shutil.copytree(tiny, expected_folder)
    train(expected_folder, "training.compile=true")
    train(tiny, "training.compile=true", "training.max_steps=16")
    assert "resuming after step 16" in train(tiny, "training.compile=true").stderr
    assert weights(tiny) == weights(expected_folder)


@pytest.mark.slow
@pytest.mark.skipif(usable_cores() < 2, reason="there is one core")
def test_two_threads_add_up_the_same_after_a_resume(tiny: Path) -> None:
    """A validation sets the matrix library's number of threads; what comes before one must be added up no other way."""
    sizes = ("model.d_model=256", "model.d_ff=1024", "training.max_tokens=1500", "training.validate_every=5")
    words = [word for change in sizes for word in ("--set", change)]

    def train_with_two(folder: Path, *more: str) -> str:
        command = [sys.executable, "-m", "mt", "train", "--config", "tiny.yaml", *words, *more]
        environment = {**os.environ, "OMP_NUM_THREADS": "2"}
        return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=True).stderr

    expected_folder = tiny / "uninterrupted"
    shutil.copytree(tiny, expected_folder)
    train_with_two(expected_folder)
    train_with_two(tiny, "--set", "training.max_steps=13")
    assert "resuming after step 13" in train_with_two(tiny)
    assert weights(tiny) == weights(expected_folder)


def test_a_second_signal_leaves_at_once() -> None:
    """The loop below never looks at the request, like a step that takes for ever."""
    code = (
        "import time\n"
        "from mt.training.signals import StopRequest\n"
        "with StopRequest():\n"
        "    print('ready', flush=True)\n"
        "    while True:\n"
        "        time.sleep(0.05)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stderr is not None
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGTERM)
    assert "repeat the signal to stop at once" in process.stderr.readline()
    assert process.poll() is None
    process.send_signal(signal.SIGTERM)
    time.sleep(0.5)
    assert process.poll() is None, "torchrun hands on what a terminal has sent already; that is no second wish"
    time.sleep(2)
    process.send_signal(signal.SIGHUP)
    assert process.wait(10) == -signal.SIGHUP
    process.communicate()


def test_a_closed_terminal_saves_and_exits(tiny: Path) -> None:
    """Its window is gone: the kernel sends SIGHUP, and writing to it fails from then on."""
    terminal, inside = os.openpty()
    command = ["setsid", "--ctty", sys.executable, "-m", "mt", "train", "--config", "tiny.yaml"]
    streams = dict.fromkeys(("stdin", "stdout", "stderr"), inside)
    process = subprocess.Popen([*command, "--set", "training.max_steps=100000"], cwd=tiny, **streams)
    os.close(inside)
    shown = b""
    while b"step 20," not in shown:
        shown += os.read(terminal, 4096)
    os.close(terminal)
    assert process.wait(60) == 128 + signal.SIGHUP
    [stopped] = [event for event in events(tiny) if event["event"] == "stopped"]
    assert stopped["signal"] == signal.SIGHUP
    assert run_of(tiny).checkpoint_steps()[-1] == stopped["step"] >= 20


def test_an_ignored_hangup_stays_ignored() -> None:
    previous = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with StopRequest() as stop:
            signal.raise_signal(signal.SIGHUP)
        assert stop.signal is None
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, previous)
