"""Exact resume after any crash, checkpoints that are complete or absent, and signals that save and exit."""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from command import Command, mt
from conftest import made_once, make_project
from mt.api.training import train as api_train
from mt.storage import atomic
from mt.storage.manifest import read_manifest, verify
from mt.storage.run_dir import MANIFEST, RunDir
from mt.system.cpus import usable_cores
from mt.training.signals import StopRequest
from resume_helpers import LONG, events, hurt, last_step, overrides, resumes, run_of, train, wait_for_step, weights

KILLS = 10


def copy_of(project: Path, folder: Path) -> Path:
    return Path(shutil.copytree(project, folder))


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The weights at the end of a run of LONG."""
    folder = made_once(tmp_path_factory, "uninterrupted", lambda folder: train(make_project(folder), *LONG))
    return weights(folder)


def kill_until(folder: Path, kills: int, changes: tuple[str, ...], expected: str) -> None:
    """Train to the end despite some kills; check the weights whenever a training ends."""
    rng, killed, resumed = random.Random(len(changes)), 0, 0
    while killed < kills:
        command = Command("train", "--config", "tiny.yaml", *overrides(changes), cwd=folder)
        if killed % 4:  # some steps after the last seen one; every fourth kill comes at any time, even at start-up
            wait_for_step(folder, last_step(folder) + rng.choice([5, 5, 10, 15]), command)
        command.process.join(rng.uniform(0, 0.3 if killed % 4 else 1.5))
        if command.process.exitcode is None:
            command.signal(signal.SIGKILL)
        code = command.wait().code
        if code == -signal.SIGKILL:
            killed += 1
        else:  # finished before the signal: compare, and continue from the start
            assert code == 0
            assert weights(folder) == expected
            resumed += resumes(folder)
            shutil.rmtree(run_of(folder).root)
    train(folder, *changes)
    assert weights(folder) == expected
    assert resumed + resumes(folder) >= kills // 2, "the kills missed the training; the test proves nothing"
    assert not list(run_of(folder).root.rglob("*.partial")), "temporaries left behind"


def test_killed_anywhere_ends_in_the_same_weights(uninterrupted: str, tiny: Path) -> None:
    kill_until(tiny, KILLS, LONG, uninterrupted)


@pytest.mark.slow
def test_killed_anywhere_ends_in_the_same_average(tiny: Path) -> None:
    changes = (*LONG, "training.accumulate=2", "training.final_weights=average")
    train(copy_of(tiny, tiny / "uninterrupted"), *changes)
    kill_until(tiny, KILLS, changes, weights(tiny / "uninterrupted"))


@pytest.mark.parametrize("number", [pytest.param(signal.SIGTERM, marks=pytest.mark.slow), signal.SIGINT])
def test_a_signal_saves_and_exits_and_the_next_start_resumes(
    uninterrupted: str, tiny: Path, number: signal.Signals
) -> None:
    command = Command("train", "--config", "tiny.yaml", *overrides(LONG), cwd=tiny)
    wait_for_step(tiny, 20, command)
    command.signal(number)
    done = command.wait()
    assert done.code == 128 + number
    assert "everything is saved" in done.stderr
    [step] = [event["step"] for event in events(tiny) if event["event"] == "stopped"]
    assert 20 <= step < 300
    assert run_of(tiny).checkpoint(step).is_dir()
    assert f"resuming after step {step}" in train(tiny, *LONG).stderr
    assert weights(tiny) == uninterrupted


def test_a_run_trained_again_gets_a_new_model(tiny: Path) -> None:
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
    folder = copy_of(trained, tmp_path / "copy")
    shutil.rmtree(run_of(folder).model.root)
    hurt(run_of(folder).checkpoint(24) / name, damage)
    done = train(folder)
    assert "damaged" in done.stderr
    assert "resuming after step 20" in done.stderr
    assert weights(folder) == weights(trained)
    assert (run_of(folder).checkpoints / "damaged-step-00000024").is_dir()


def test_without_a_usable_checkpoint_there_is_no_silent_restart(trained: Path, tmp_path: Path) -> None:
    folder = copy_of(trained, tmp_path / "copy")
    for checkpoint in run_of(folder).checkpoints.glob("step-*"):
        hurt(checkpoint / "model.safetensors", "flip")
    for _ in range(2):  # not at the second start either
        assert "no usable checkpoint" in train(folder, code=4).stderr


def test_two_intact_checkpoints_are_kept_even_if_one_is_damaged(tiny: Path) -> None:
    train(tiny, "training.max_steps=12")
    hurt(run_of(tiny).checkpoint(12) / "model.safetensors", "flip")
    hurt(run_of(tiny).checkpoint(12) / "state.json", "truncate")
    train(tiny, "training.max_steps=16")
    intact = [path for path in run_of(tiny).checkpoints.glob("step-*") if verify(path)]
    assert len(intact) >= 2


def without_data(trained: Path, folder: Path) -> Path:
    """Copy a finished run whose prepared data were removed to save space."""
    shutil.rmtree(run_of(copy_of(trained, folder)).text.parent)
    return folder


def test_more_steps_resume_from_the_end_without_the_prepared_data(trained: Path, tiny: Path) -> None:
    train(tiny, "training.max_steps=40")
    folder = without_data(trained, tiny / "copy")
    assert "resuming after step 24" in train(folder, "training.max_steps=40").stderr
    assert weights(folder) == weights(tiny)


def test_a_resume_may_have_another_test_set(trained: Path, tiny: Path) -> None:
    """The training goes on as if the test set had been there from the beginning."""
    for language in ("en", "xx"):
        shutil.copy(tiny / f"valid.{language}", tiny / f"other.{language}")
    other = "data.test={source: other.en, target: other.xx}"
    train(tiny, other, "training.max_steps=40")
    folder = copy_of(trained, tiny / "copy")
    for language in ("en", "xx"):
        shutil.copy(tiny / f"valid.{language}", folder / f"other.{language}")
    assert "resuming after step 24" in train(folder, other, "training.max_steps=40").stderr
    assert weights(folder) == weights(tiny)
    resumed, expected = (read_manifest(run_of(path).model.root)["test"] for path in (folder, tiny))
    for result in (*resumed, *expected):
        result.pop("sentences_per_second")
    assert resumed == expected
    assert [result["method"] for result in expected] == ["greedy", "beam"]


def test_without_its_prepared_data_changes_are_refused(trained: Path, tmp_path: Path) -> None:
    """Otherwise the tokenizer would be trained on the new text, and the weights would be of the old one."""
    folder = without_data(trained, tmp_path / "copy")
    model, tokenizer = weights(folder), verify(run_of(folder).tokenizer)
    source = folder / "train.en"
    original = source.read_bytes()
    source.write_bytes(original.upper())
    stderr = train(folder, "training.max_steps=30", "model.d_ff=64", code=2).stderr
    assert f"{run_of(Path()).root}: cannot resume: model.d_ff is now 64, it was 32; data.train.source" in stderr
    assert (weights(folder), verify(run_of(folder).tokenizer)) == (model, tokenizer)
    source.write_bytes(original)
    assert "resuming after step 24" in train(folder, "training.max_steps=30").stderr


def change_tokenizer(run: RunDir) -> None:
    """Write another tokenizer with the key of the present one, as another version of the library might."""
    key, [name] = read_manifest(run.tokenizer)["key"], read_manifest(run.tokenizer)["files"]
    with atomic.new_folder(run.tokenizer, key=key) as other:
        atomic.write_text(other / name, (run.tokenizer / name).read_text() + "\n")


def test_another_tokenizer_in_the_run_is_refused(trained: Path, tmp_path: Path) -> None:
    folder = copy_of(trained, tmp_path / "copy")
    change_tokenizer(run_of(folder))
    again = train(folder, "training.max_steps=40", code=2)
    assert "tokenizer: the checkpoints were trained with another one" in again.stderr


def test_another_tokenizer_encodes_the_text_again(tiny: Path) -> None:
    train(tiny, "training.max_steps=4")
    run = run_of(tiny)
    shutil.rmtree(run.checkpoints)
    before = read_manifest(run.encoded("train"))["key"]
    change_tokenizer(run)
    assert "encoding train" in train(tiny, "training.max_steps=4").stderr
    assert read_manifest(run.encoded("train"))["key"] != before


def train_as_nobody(folder: Path, *changes: str) -> subprocess.CompletedProcess[str]:
    """Train as a user to whom permissions apply; they do not apply to root."""
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
        [sys.executable, "-c", code, "train", "--config", "tiny.yaml", *overrides(changes)],
        cwd=folder,
        capture_output=True,
        text=True,
    )


@pytest.fixture
def everyones(trained: Path) -> Iterator[Path]:
    """A copy of a finished run that other users can read, unlike pytest's folders."""
    with tempfile.TemporaryDirectory() as place:
        Path(place).chmod(0o755)
        shutil.copytree(trained, folder := Path(place) / "copy")
        yield folder


@pytest.mark.slow
def test_checkpoints_that_cannot_be_listed_are_no_restart(everyones: Path) -> None:
    run = run_of(everyones)
    config = run.config.read_bytes()
    run.checkpoints.chmod(0)
    done = train_as_nobody(everyones, "seed=2")
    assert done.returncode == 4
    assert "runs/tiny/checkpoints: cannot be listed: Permission denied" in done.stderr
    run.checkpoints.chmod(0o755)
    run.checkpoints.rename(everyones / "moved")
    for target in ("checkpoints", "nowhere"):  # they may lie on a disk that is not mounted now
        run.checkpoints.symlink_to(target)
        assert "runs/tiny/checkpoints: cannot be listed: " in train(everyones, "seed=2", code=4).stderr
        run.checkpoints.unlink()
    assert run.config.read_bytes() == config
    (everyones / "moved").rename(run.checkpoints)
    assert "seed is now 2" in train(everyones, "seed=2", code=2).stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    ["model.safetensors", *(pytest.param(name, marks=pytest.mark.slow) for name in ("origin.json", "MANIFEST.json"))],
)
def test_a_checkpoint_that_cannot_be_read_is_not_damaged(everyones: Path, name: str) -> None:
    (run_of(everyones).checkpoint(24) / name).chmod(0)
    done = train_as_nobody(everyones, "training.max_steps=30")
    assert done.returncode == 4
    assert f"step-00000024/{name}: cannot be read: Permission denied" in done.stderr
    assert not run_of(everyones).has_damaged_checkpoints()
    (run_of(everyones).checkpoint(24) / name).chmod(0o644)
    assert "resuming after step 24" in train(everyones, "training.max_steps=30").stderr


def test_a_finished_run_does_nothing_again(trained: Path, tmp_path: Path) -> None:
    folder = copy_of(trained, tmp_path / "copy")
    before = weights(folder)
    steps = [event["step"] for event in events(folder) if event["event"] == "train"]
    facts = read_manifest(run_of(folder).model.root)
    assert facts["peak_memory"] > 0
    (run_of(folder).model.root / MANIFEST).write_text(json.dumps(facts | {"peak_memory": 77_700_000_000}))
    done = train(folder, "training.log_every=3")
    assert "at most 77.7 GB of memory" in done.stdout, "that of the training"
    assert weights(folder) == before
    assert [event["step"] for event in events(folder) if event["event"] == "train"] == steps
    for stage in ("reading the corpus", "training the tokenizer", "encoded", "translating"):
        assert stage not in done.stderr


def test_an_edited_readme_stays(trained: Path, tmp_path: Path) -> None:
    folder = copy_of(trained, tmp_path / "copy")
    readme = run_of(folder).model.readme
    readme.write_text("# Ours\n")
    assert "translating" not in train(folder, "training.log_every=3").stderr
    assert readme.read_text() == "# Ours\n"
    hurt(run_of(folder).model.weights, "cut")
    train(folder)
    verify(run_of(folder).model.root)


def test_scores_of_a_test_set_that_was_removed_do_not_stay(trained: Path, tmp_path: Path) -> None:
    folder = copy_of(trained, tmp_path / "copy")
    assert (run_of(folder).scores / "test.json").is_file()
    train(folder, "data.test=null", "training.max_steps=30")
    assert not (run_of(folder).scores / "test.json").exists()


def test_a_second_trainer_in_the_same_run_is_refused(tiny: Path) -> None:
    endless = overrides(["training.max_steps=100000", "training.patience=null"])
    first = Command("train", "--config", "tiny.yaml", *endless, cwd=tiny)
    wait_for_step(tiny, 4, first)
    second = train(tiny, code=2)
    assert str(first.process.pid) in second.stderr
    assert "another training" in second.stderr
    run_of(tiny).lock.unlink()  # as somebody might who takes it for a leftover
    for again in (("--dry-run",), ()):
        assert "another training" in mt("train", "--config", "tiny.yaml", *again, cwd=tiny, code=2).stderr
    first.signal(signal.SIGTERM)
    assert first.wait().code == 143


@pytest.mark.slow
def test_a_compiled_model_resumes_too(tiny: Path) -> None:
    """torch.compile takes a minute on a CPU, and needs a C++ compiler."""
    expected_folder = copy_of(tiny, tiny / "uninterrupted")
    train(expected_folder, "training.compile=true")
    train(tiny, "training.compile=true", "training.max_steps=16")
    assert "resuming after step 16" in train(tiny, "training.compile=true").stderr
    assert weights(tiny) == weights(expected_folder)


@pytest.mark.slow
@pytest.mark.skipif(usable_cores() < 2, reason="there is one core")
def test_two_threads_add_up_the_same_after_a_resume(tiny: Path) -> None:
    """A validation sets the matrix library's number of threads; steps before the first one must add up equally."""
    sizes = ("model.d_model=256", "model.d_ff=1024", "training.max_tokens=1500", "training.validate_every=5")

    def train_with_two(folder: Path, *more: str) -> str:
        command = [sys.executable, "-m", "mt", "train", "--config", "tiny.yaml", *overrides(sizes), *more]
        environment = {**os.environ, "OMP_NUM_THREADS": "2"}
        return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=True).stderr

    expected_folder = copy_of(tiny, tiny / "uninterrupted")
    train_with_two(expected_folder)
    train_with_two(tiny, "--set", "training.max_steps=13")
    assert "resuming after step 13" in train_with_two(tiny)
    assert weights(tiny) == weights(expected_folder)


def test_another_thread_leaves_signals_alone() -> None:
    before = signal.getsignal(signal.SIGTERM)
    seen = []

    def work() -> None:
        with StopRequest() as request:
            seen.append((request.signal, signal.getsignal(signal.SIGTERM)))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [(None, before)]


def test_a_second_signal_leaves_at_once() -> None:
    """The loop below never looks at the request, like a step that never ends."""
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
    assert process.poll() is None, "torchrun forwards a signal that the terminal sent, too: no repetition"
    time.sleep(2)
    process.send_signal(signal.SIGHUP)
    assert process.wait(10) == -signal.SIGHUP
    process.communicate()


def test_a_second_ctrl_c_interrupts_a_program_and_does_not_end_it(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mt.training.signals._DUPLICATE_SECONDS", -1.0)
    monkeypatch.chdir(tiny)
    previous = signal.signal(signal.SIGINT, signal.default_int_handler)

    def press(event: Mapping[str, Any]) -> None:
        if event["event"] == "train":
            signal.raise_signal(signal.SIGINT)
            signal.raise_signal(signal.SIGINT)

    try:
        with pytest.raises(KeyboardInterrupt):
            api_train("tiny.yaml", progress=press)
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, previous)


def test_the_signals_of_a_program_around_python_are_left_to_it() -> None:
    """A second import of the module finds handlers that it did not set, as in such a program."""
    code = (
        "import signal, sys\n"
        "signal.signal(signal.SIGTERM, lambda *_: None)\n"
        "del sys.modules['_signal']\n"
        "import _signal\n"
        "assert signal.getsignal(signal.SIGTERM) is None\n"
        "from mt.training.signals import StopRequest\n"
        "with StopRequest():\n"
        "    assert signal.getsignal(signal.SIGTERM) is None\n"
        "    assert callable(signal.getsignal(signal.SIGHUP))\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_closed_terminal_saves_and_exits(tiny: Path) -> None:
    """Its window is gone: the kernel sends SIGHUP, and writing to it fails from then on."""
    terminal, inside = os.openpty()
    command = ["setsid", "--ctty", sys.executable, "-m", "mt", "train", "--config", "tiny.yaml"]
    changes = overrides(["training.max_steps=100000", "training.log_every=50"])
    streams = dict.fromkeys(("stdin", "stdout", "stderr"), inside)
    process = subprocess.Popen([*command, *changes], cwd=tiny, **streams)
    os.close(inside)
    shown = b""
    while b"step 50," not in shown:  # this terminal has no width, so no status line
        shown += os.read(terminal, 4096)
    time.sleep(0.03)  # until it is in a step again
    os.close(terminal)
    assert process.wait(60) == 128 + signal.SIGHUP
    [stopped] = [event for event in events(tiny) if event["event"] == "stopped"]
    assert stopped["signal"] == signal.SIGHUP
    assert run_of(tiny).checkpoint_steps()[-1] == stopped["step"] >= 50


def test_an_ignored_hangup_stays_ignored() -> None:
    previous = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with StopRequest() as stop:
            signal.raise_signal(signal.SIGHUP)
        assert stop.signal is None
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, previous)
