"""Several processes train as one would: the same batches, the same losses, checkpoints for any number of them."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file
from torch.distributed import TCPStore

from command import Command, Done, mt
from conftest import made_once, make_project
from engine_helpers import reseal
from mt.data.batching import BatchStream
from mt.data.token_store import EncodedCorpus
from mt.storage.manifest import sha256
from mt.storage.run_dir import CheckpointDir, ModelDir, RunDir
from mt.system.distributed import SINGLE_PROCESS, Distributed
from training_helpers import overrides

STORES: list[TCPStore] = []  # they end with the tests
STEPS = 50
# Sentences of up to seven tokens: some batches are smaller than four processes would like.
CHANGES = (
    "model.dropout=0.0",
    "model.bias=false",  # attention does not feel a bias of its keys, and Adam would follow its gradient's noise
    "data.max_length=20",
    "training.max_tokens=24",
    "training.accumulate=2",
    "training.ema_decay=0.9",
    "training.schedule=constant",
    f"training.max_steps={STEPS}",
    "training.validate_every=25",
    "training.save_every=25",
    "training.log_every=1",
)


def words(name: str, changes: tuple[str, ...]) -> list[str]:
    return ["train", "--config", "tiny.yaml", *overrides(f"name={name}", *changes)]


def start(folder: Path, size: int, name: str, *changes: str) -> list[Command]:
    """As torchrun does: it tells the processes their numbers, and keeps the store through which they meet."""
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    STORES.append(store)
    shared = {
        "WORLD_SIZE": str(size),
        "LOCAL_WORLD_SIZE": str(size),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(store.port),
        "TORCHELASTIC_USE_AGENT_STORE": "True",
    }
    return [
        Command(*words(name, changes), cwd=folder, RANK=str(rank), LOCAL_RANK=str(rank), **shared)
        for rank in range(size)
    ]


def train(folder: Path, size: int, name: str, *changes: str) -> list[Done]:
    done = [command.wait() for command in start(folder, size, name, *changes)]
    assert [each.code for each in done] == [0] * size, done
    return done


def run_of(folder: Path, name: str) -> RunDir:
    return RunDir(folder / "runs" / name)


def events(run: RunDir, kind: str = "train") -> list[dict]:
    return [event for event in map(json.loads, run.metrics.read_text().splitlines()) if event["event"] == kind]


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the tiny project, trained by one process."""

    def make(folder: Path) -> None:
        mt(*words("alone", CHANGES), cwd=make_project(folder))

    made = made_once(tmp_path_factory, "processes", make)
    return Path(shutil.copytree(made, tmp_path_factory.mktemp("processes") / "copy"))


def agree(folder: Path, name: str, alone: str = "alone") -> None:
    """A run's losses, validations, weights, averages and translations are those of one process."""
    runs = [run_of(folder, each) for each in (name, alone)]
    losses = [[event["loss"] for event in events(run)] for run in runs]
    assert len(losses[0]) == STEPS
    np.testing.assert_allclose(*losses, atol=1e-5)
    for mine, theirs in zip(*(events(run, "validation") for run in runs), strict=True):
        assert mine["loss"] == pytest.approx(theirs["loss"], abs=1e-5)
        assert (mine["bleu"], mine["samples"]) == (theirs["bleu"], theirs["samples"])
    last = f"checkpoints/step-{STEPS:08}"
    files = [f"{last}/{name}.safetensors" for name in ("model", "average", "optimizer")]
    for file in (*files, "model/model.safetensors"):
        mine, theirs = (load_file(run.root / file) for run in runs)
        assert mine.keys() == theirs.keys()
        for key, value in mine.items():
            np.testing.assert_allclose(value, theirs[key], atol=1e-4, err_msg=key)
    tests = [(run.scores / "test.beam").read_bytes() for run in runs]
    assert tests[0] == tests[1]


@pytest.mark.parametrize(
    ("size", "sharding"),
    [(2, "ddp"), (2, "fsdp"), *(pytest.param(4, kind, marks=pytest.mark.slow) for kind in ("ddp", "fsdp"))],
)
def test_processes_train_as_one(alone: Path, size: int, sharding: str) -> None:
    name = f"{sharding}-{size}"
    done = train(alone, size, name, *CHANGES, f"training.sharding={sharding}")
    agree(alone, name)
    assert "trained 50 steps" in done[0].stdout
    assert {each.stdout + each.stderr for each in done[1:]} == {""}, "only the main process speaks"


DECODER = "model={architecture: decoder_only, d_model: 16, n_heads: 2, d_ff: 32, decoder_layers: 1, norm: pre}"
MEANS = ("training.final_weights=average", "training.average_checkpoints=2")
OTHERS = {"decoder": (DECODER,), "more": (*MEANS, "training.r_drop=1.0", "tokenizer.bpe_dropout=0.2")}


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["decoder", "more"])
@pytest.mark.parametrize("sharding", ["ddp", "fsdp"])
def test_so_do_those_of_other_models_and_settings(alone: Path, kind: str, sharding: str) -> None:
    changes = (*OTHERS[kind], *CHANGES)
    mt(*words(kind, changes), cwd=alone)  # the second time it is there
    name = f"{kind}-{sharding}"
    train(alone, 2, name, *changes, f"training.sharding={sharding}")
    agree(alone, name, kind)


def test_one_process_of_torchrun_runs_nothing_distributed(alone: Path) -> None:
    """Its weights are those of a training without torchrun, bit for bit."""
    train(alone, 1, "single", *CHANGES)
    single, other = (sha256(run_of(alone, name).model.weights) for name in ("single", "alone"))
    assert single == other


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ((1, "ddp"), (4, "ddp")),
        pytest.param((4, "ddp"), (2, "fsdp"), marks=pytest.mark.slow),
        pytest.param((2, "fsdp"), (1, "none"), marks=pytest.mark.slow),
    ],
)
def test_any_number_of_processes_goes_on(alone: Path, before: tuple[int, str], after: tuple[int, str]) -> None:
    name = f"from-{before[0]}-to-{after[0]}"
    half = [c for c in CHANGES if "max_steps" not in c]
    train(alone, before[0], name, *half, "training.max_steps=25", f"training.sharding={before[1]}")
    done = train(alone, after[0], name, *CHANGES, f"training.sharding={after[1]}")
    assert "resuming after step 25" in done[0].stderr
    agree(alone, name)


@pytest.mark.slow
def test_split_batches_go_on_in_shards(alone: Path) -> None:
    """FSDP's ranks wait for each other in every pass, also those with fewer sentences than pieces."""
    half = [c for c in CHANGES if "max_steps" not in c]
    train(alone, 1, "split", *half, "training.max_steps=25")
    checkpoint = run_of(alone, "split").checkpoint(25)
    state = CheckpointDir(checkpoint).state
    state.write_text(json.dumps({**json.loads(state.read_text()), "pieces": 4}))  # as after running out of memory
    reseal(ModelDir(checkpoint))
    train(alone, 2, "split", *CHANGES, "training.sharding=fsdp")
    agree(alone, "split")


@pytest.mark.parametrize("dead", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_a_dead_process_ends_the_others_within_seconds(tiny: Path, dead: int) -> None:
    commands = start(tiny, 3, "killed", *CHANGES, "training.max_steps=100000")
    wait_for(tiny, "killed", 5)
    commands[dead].signal(signal.SIGKILL)
    began = time.monotonic()
    done = [command.wait(30) for command in commands]
    assert time.monotonic() - began < 20
    assert [each.code for each in done] == [-9 if rank == dead else 4 for rank in range(3)]
    said = "".join(each.stderr for each in done)
    assert said.count("another process of this training has died") == 1
    assert "Traceback" not in said


def wait_for(folder: Path, name: str, step: int) -> None:
    deadline = time.monotonic() + 120
    path = run_of(folder, name).metrics
    while not path.exists() or f'"step": {step},' not in path.read_text():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_signal_to_one_stops_all_after_the_same_step(tiny: Path) -> None:
    commands = start(tiny, 2, "stopped", *CHANGES, "training.max_steps=100000")
    wait_for(tiny, "stopped", 5)
    commands[1].signal(signal.SIGTERM)
    done = [command.wait(60) for command in commands]
    assert [each.code for each in done] == [143, 143]
    step = re.search(r"stopped after step (\d+); everything is saved", "".join(each.stderr for each in done))
    assert step is not None
    assert run_of(tiny, "stopped").checkpoint(int(step[1])).is_dir()


@pytest.mark.slow
def test_the_launcher_starts_again_after_a_death(tiny: Path) -> None:
    """The real torchrun: a killed process, a restart from the last checkpoint, and a polite end of the launcher."""
    changes = (*CHANGES, "training.max_steps=100000", "training.save_every=5")
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    launcher = subprocess.Popen(
        [*command, "--max-restarts", "1", "-m", "mt", *words("again", changes)],
        cwd=tiny, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    try:
        wait_for(tiny, "again", 10)
        os.kill(children(launcher.pid)[1], signal.SIGKILL)
        deadline = time.monotonic() + 120
        run = run_of(tiny, "again")
        while not (resumed := events(run, "resume")) or events(run)[-1]["time"] < resumed[0]["time"]:
            assert time.monotonic() < deadline
            time.sleep(0.1)
        assert resumed[0]["step"] >= 5
        assert resumed[0]["step"] % 5 == 0
        launcher.terminate()
        said, _ = launcher.communicate(timeout=60)
    finally:
        launcher.kill()
    assert said.count("mt: stopped after step") == 1, said
    assert said.count("mt: another process of this training has died") <= 1
    assert "this is a bug" not in said


@pytest.mark.slow
def test_the_demo_scores_the_same_in_several_processes(tmp_path: Path) -> None:
    """Without dropout, which each process draws on its own.

    Sums in another order differ in their last bits, as they do with another number of threads, and 1,600 steps make
    that grow; so scores agree as far as two trainings of one process do.
    """
    config = Path(__file__).parent.parent.parent / "configs" / "demo.yaml"
    loss, valid, test = {}, {}, {}
    for size in (1, 2, 4):
        launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(size)]
        changes = overrides("model.dropout=0.0", f"name=demo-{size}")
        command = [*launcher, "-m", "mt", "train", "--config", str(config), "--runs", str(tmp_path), *changes]
        subprocess.run(command, check=True, cwd=tmp_path)
        run = RunDir(tmp_path / f"demo-{size}")
        loss[size] = [event["loss"] for event in events(run)]
        valid[size] = [event["bleu"] for event in events(run, "validation")]
        scores = json.loads((run.scores / "test.json").read_text())
        test[size] = {result["method"]: result["bleu"] for result in scores["results"]}
    print(loss, valid, test, sep="\n")
    for size in (2, 4):
        assert loss[size][0] == pytest.approx(loss[1][0], abs=1e-3), "the mean of a hundred steps"
        assert loss[size] == pytest.approx(loss[1], abs=0.02)
        assert valid[size][-1] == pytest.approx(valid[1][-1], abs=1)
        assert test[size] == pytest.approx(test[1], abs=3)


def children(pid: int) -> list[int]:
    return [int(n) for n in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


@pytest.mark.parametrize(
    ("size", "change", "message"),
    [
        (3, "training.max_stepz=3", "max_stepz"),
        (2, "training.sharding=none", "training.sharding: it is none, but 2 processes were started"),
    ],
)
def test_errors_are_told_once(tiny: Path, size: int, change: str, message: str) -> None:
    done = [command.wait() for command in start(tiny, size, "wrong", change)]
    assert [each.code for each in done] == [2] * size
    [told] = [each.stderr for each in done if each.stderr]
    assert message in told


def test_damaged_variables_are_named(tiny: Path) -> None:
    done = mt(*words("x", ()), cwd=tiny, code=2, WORLD_SIZE="2", RANK="first")
    assert "RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE" in done.stderr


def test_shares_of_a_batch_are_the_batch(alone: Path) -> None:
    """Every sentence is in one share; an empty share holds one that does not count."""
    corpus = EncodedCorpus.open(run_of(alone, "alone").encoded("train"))
    whole = BatchStream(corpus, 24, seed=1)
    shares = [BatchStream(corpus, 24, seed=1, distributed=Distributed(rank, 4)) for rank in range(4)]
    empty = 0
    while not whole.epochs_done:
        batch, parts = whole.next(), [share.next() for share in shares]
        assert {(part.n_src, part.n_tgt) for part in parts} == {(batch.n_src, batch.n_tgt)}
        counted = [row for part in parts if part.weight for row in part.tgt_out.tolist()]
        assert sorted([t for t in row if t] for row in counted) == sorted(
            [t for t in row if t] for row in batch.tgt_out.tolist()
        )
        empty += sum(part.weight == 0 for part in parts)
    assert empty > 0


def test_alone_there_is_nobody_to_talk_to() -> None:
    assert SINGLE_PROCESS.broadcast(3) == 3
    assert SINGLE_PROCESS.all_gather([1, 2]) == [1, 2]
    assert list(SINGLE_PROCESS.shard([1, 2])) == [1, 2]
    assert not SINGLE_PROCESS.any(False)
    assert SINGLE_PROCESS.any(True)
    assert SINGLE_PROCESS.claims_error_report()


@pytest.mark.slow
def test_one_process_never_imports_torchs_distributed_code(tiny: Path) -> None:
    code = (
        "import sys; sys.argv = ['mt', 'train', '--config', 'tiny.yaml', '--set', 'training.max_steps=1', "
        "'--set', 'training.warmup_steps=1']\n"
        "from mt.cli import main\n"
        "try: main()\n"
        "finally: print('joined' if __import__('torch').distributed.is_initialized() else 'alone')"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tiny, capture_output=True, text=True, timeout=120)
    assert done.stdout.splitlines()[-1] == "alone"
