"""The step: gradients however split, updates skipped when not finite, memory that runs out."""

import json
import math
import os
import signal
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from mt.data.batching import BatchStream
from mt.errors import DivergedError, MachineError, StoppedError
from mt.model import linear
from mt.storage import atomic, manifest
from mt.storage.run_dir import RunDir
from mt.system.distributed import Distributed
from mt.training.checkpoints import Checkpoints
from mt.training.step import TrainStep
from mt.training.validation import Validation
from training_helpers import NoMemory, Parts, assert_equal, project_copy, resume_is_exact, take_steps


def test_the_loss_is_the_mean_over_all_tokens_of_an_accumulated_step(tiny: Path) -> None:
    parts = Parts(tiny, "model.dropout=0.0")
    batches = parts.batches(3)
    together = parts.gradients(batches)
    # By hand, without the fused loss: every token of the step weighs the same.
    parts.model.zero_grad()
    n_target = sum(b.n_tgt for b in batches)
    for batch in batches:
        logits = parts.model(torch.from_numpy(batch.src_tokens), torch.from_numpy(batch.tgt_in))
        loss = torch.nn.functional.cross_entropy(
            logits.flatten(0, 1),
            torch.from_numpy(batch.tgt_out).flatten(),
            ignore_index=0,
            label_smoothing=0.1,
            reduction="sum",
        )
        (loss / n_target).backward()
    assert_equal(together, [p.grad for p in parts.model.parameters()])


@pytest.mark.parametrize(
    ("error", "r_drop"),
    [
        (torch.OutOfMemoryError("CUDA out of memory"), 0.0),
        (torch.OutOfMemoryError("CUDA out of memory"), 5.0),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: 9 bytes"), 0.0),
    ],
)
def test_out_of_memory_splits_the_batch_and_changes_nothing(tiny: Path, error: Exception, r_drop: float) -> None:
    parts = Parts(tiny, "model.dropout=0.0", f"training.r_drop={r_drop}")
    batches = parts.batches(2)
    most = max(len(b.src_tokens) for b in batches)
    assert_equal(parts.gradients(batches), parts.gradients(batches, NoMemory(most // 3, error)))


def test_out_of_memory_in_the_smallest_pieces_is_one_sentence(tiny: Path) -> None:
    parts = Parts(tiny)
    with pytest.raises(MachineError, match="out of memory at step 1") as caught:
        parts.gradients(parts.batches(1), NoMemory(0, torch.OutOfMemoryError("CUDA out of memory")))
    assert caught.value.exit_code == 4


def test_out_of_memory_in_one_of_several_processes_ends_the_job(tiny: Path) -> None:
    parts = Parts(tiny)
    gradients = TrainStep(parts.config, parts.model)
    NoMemory(1, torch.OutOfMemoryError("CUDA out of memory"))(gradients)
    gradients._distributed = Distributed(1, 4)
    with pytest.raises(MachineError, match="out of memory at step 8 in process 1 of 4"):
        gradients.accumulate_gradients(parts.batches(1), 7)


def test_other_errors_are_not_taken_for_lack_of_memory(tiny: Path) -> None:
    parts = Parts(tiny)
    with pytest.raises(RuntimeError, match="shape"):
        parts.gradients(parts.batches(1), NoMemory(0, RuntimeError("shape mismatch")))


@pytest.mark.parametrize(("optimizer", "late"), [("adamw", False), ("adamw", True), ("muon", False), ("muon", True)])
def test_an_update_that_is_not_finite_is_skipped_and_counted(tiny: Path, optimizer: str, late: bool) -> None:
    parts = Parts(tiny, f"training.optimizer={optimizer}")
    trainer = parts.trainer(late)
    trainer.step()
    sound = parts.weights()
    bias = parts.model.decoder_norm.bias
    number = bias[0].item()
    with torch.no_grad():
        bias[0] = math.inf
    trainer.step()
    assert trainer.state.skipped_updates == (0 if late else 1)
    trainer.step_results.flush()
    assert trainer.state.skipped_updates == 1
    assert trainer.state.step == 2
    with torch.no_grad():
        bias[0] = number
    assert all(torch.equal(before, now) for before, now in zip(sound, parts.model.parameters(), strict=True))
    trainer.step()
    trainer.step_results.flush()
    assert trainer.state.skipped_in_a_row == 0
    assert [event["step"] for event in recorded(parts, "skipped_update")] == [2]


@pytest.mark.parametrize("late", [False, True])
def test_five_in_a_row_stop_with_exit_3(tiny: Path, late: bool) -> None:
    parts = Parts(tiny, "training.save_every=8", "training.log_every=8")
    with torch.no_grad():
        parts.model.output.weight.fill_(math.nan)
    trainer = parts.trainer(late)
    with pytest.raises(DivergedError, match="learning_rate") as caught:
        trainer.run()
    assert caught.value.exit_code == 3
    assert trainer.state.step == (6 if late else 5)
    assert trainer.state.skipped_updates == 5


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_reading_late_changes_nothing(tiny: Path, optimizer: str) -> None:
    ends = []
    for late in (False, True):
        parts = Parts(project_copy(tiny, str(late)), f"training.optimizer={optimizer}")
        trainer = parts.trainer(late)
        take_steps(trainer, 3)
        bias = parts.model.decoder_norm.bias
        number = bias[0].item()
        with torch.no_grad():  # an update that is skipped must not move Adam's averages either
            bias[0] = math.inf
        trainer.step()
        with torch.no_grad():
            bias[0] = number
        take_steps(trainer, 2)
        summary = trainer.step_results.summary(seconds=1.0)
        ends.append((parts.weights(), summary, trainer.state.skipped_updates))
    (first, summary, skipped), (second, other_summary, other_skipped) = ends
    assert skipped == other_skipped == 1
    assert summary == other_summary
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


def test_dropout_depends_on_the_step_and_on_nothing_else(tiny: Path) -> None:
    parts = Parts(tiny, "model.dropout=0.5")
    batches = parts.batches(2)
    first = parts.gradients(batches)
    torch.randn(17)  # whatever else draws random numbers in between
    assert all(torch.equal(a, b) for a, b in zip(first, parts.gradients(batches), strict=True))
    parts.model.zero_grad()
    TrainStep(parts.config, parts.model).accumulate_gradients(batches, step=1)
    assert not torch.equal(first[0], next(parts.model.parameters()).grad)


def recorded(parts: Parts, kind: str) -> list[dict]:
    lines = map(json.loads, parts.run.metrics.read_text().splitlines())
    return [event for event in lines if event["event"] == kind]


def scripted(*bleus: float) -> Callable[[object], Validation]:
    """Return a validation of these scores."""
    scores = iter(bleus)
    return lambda _: Validation(1.0, math.e, next(scores), "", [])


def test_patience_ends_training_and_the_best_checkpoint_is_kept(tiny: Path) -> None:
    parts = Parts(tiny, "training.patience=2", "training.max_steps=1000", "training.validate_every=4")
    trainer = parts.trainer(validate=scripted(1, 5, 3, 4, 9))
    state = trainer.run()
    assert (state.step, state.best_step) == (16, 8)
    assert 8 in trainer.checkpoints.steps()
    assert "step 8" in trainer.final_weights.final()[1]


def test_max_epochs_ends_after_whole_epochs(tiny: Path) -> None:
    parts = Parts(tiny, "training.max_epochs=2", "training.max_steps=1000")
    plans = [BatchStream(parts.corpus, 200, seed=parts.config.seed, epoch=epoch)._plan for epoch in range(2)]
    assert parts.trainer().run().step == sum(map(len, plans))


def test_an_extension_that_was_lost_and_abandoned_is_followed_by_a_resume(tiny: Path) -> None:
    parts = Parts(tiny, "training.max_steps=4", "training.warmup_steps=1")
    parts.trainer().run()
    parts.trainer().metrics.write("train", 6)
    with parts.run.metrics.open("a") as file:
        file.write('{"event": "tr')  # killed
    for _ in range(2):
        parts.trainer().run()
    events = [json.loads(line) for line in parts.run.metrics.read_text().splitlines() if line.endswith("}")]
    assert [(event["event"], event["step"]) for event in events[-2:]] == [("train", 6), ("resume", 4)]


def test_a_damaged_best_checkpoint_is_not_shipped(tiny: Path) -> None:
    trainer = Parts(tiny).trainer()
    trainer.run()
    best = trainer.checkpoints._run.checkpoint(trainer.state.best_step) / "model.safetensors"
    best.write_bytes(best.read_bytes()[:-1])
    with pytest.raises(MachineError, match="damaged"):
        trainer.final_weights.final()


@pytest.mark.parametrize(
    ("onednn", "changes"),
    [
        (False, ()),
        (True, ()),
        (False, ("training.r_drop=3.0", "model.dropout=0.2")),
        (False, ("training.optimizer=muon", "model.dropout=0.2")),
    ],
)
def test_a_resume_is_exact(tiny: Path, monkeypatch, onednn: bool, changes: tuple[str, ...]) -> None:
    if onednn and not hasattr(torch.ops.mkldnn, "_linear_pointwise"):
        pytest.skip("this torch has no oneDNN")
    monkeypatch.setattr(linear, "_MIN_FEATURES", 0)
    monkeypatch.setattr(linear, "_prefers_onednn", lambda: onednn)
    assert resume_is_exact(Parts(tiny, "training.accumulate=2", *changes))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_in_the_last_validation_loses_nothing(tiny: Path, number: signal.Signals) -> None:
    """Its steps are saved before it, for whoever sends the signal may not wait for its end."""
    parts = Parts(tiny, "training.max_steps=10", "training.validate_every=4", "training.save_every=4")
    trainer = parts.trainer()

    def validate(_: object) -> Validation:
        if trainer.state.step == 10:
            assert trainer.checkpoints.steps()[-1] == 10
            os.kill(os.getpid(), number)
        return Validation(1.0, math.e, 0.0, "", [])

    trainer._validate = validate
    with pytest.raises(StoppedError, match="stopped after step 10; everything is saved"):
        trainer.run()
    assert trainer.state.validated_step == 10
    again = parts.trainer()
    again._validate = lambda _: pytest.fail("what was validated is not validated again")
    assert again.run().validated_step == 10


def test_a_validation_that_fails_loses_no_step_and_is_made_again(tiny: Path) -> None:
    changes = ("training.max_steps=10", "training.validate_every=4", "training.final_weights=average_best")
    whole = Parts(project_copy(tiny, "whole"), *changes)
    expected = whole.trainer(validate=scripted(1, 3, 2)).run()
    parts = Parts(tiny, *changes)
    with pytest.raises(StopIteration):
        parts.trainer(validate=scripted(1)).run()
    assert Checkpoints(parts.run).steps()[-1] == 8
    parts.forget()
    found = parts.trainer(validate=scripted(3, 2)).run()
    assert replace(found, seconds=0, elapsed=0) == replace(expected, seconds=0, elapsed=0)
    assert_equal(whole.model.parameters(), parts.model.parameters())
    assert [event["step"] for event in recorded(parts, "validation")] == [4, 8, 10]


def test_the_remaining_time_counts_from_the_first_step(tiny: Path) -> None:
    """A validation that a resumed training makes first is none of its steps."""
    ended = list[float]()

    def validate(_: object) -> Validation:
        ended.append(time.monotonic())
        return Validation(1.0, math.e, 1.0, "", [])

    parts = Parts(tiny, "training.max_steps=8", "training.validate_every=4")
    with pytest.raises(StopIteration):
        parts.trainer(validate=scripted()).run()
    trainer = parts.trainer(validate=validate)
    trainer.run()
    assert len(ended) == 2
    started, step = trainer._session_start
    assert step == 4
    assert ended[0] <= started <= ended[1]


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        (["training.max_steps=4"], "step 4 is the last (training.max_steps)"),
        (["training.max_epochs=1"], "epoch 1 is the last (training.max_epochs), with step "),
        (
            ["training.patience=1", "training.validate_every=2"],
            "after step 4 the last 1 validations were no better than that of step 2 (training.patience)",
        ),
    ],
)
def test_it_says_why_it_has_ended(tiny: Path, notices: list[str], changes: list[str], reason: str) -> None:
    parts = Parts(tiny, *changes)
    for runs in (1, 2):  # of the second one all steps are done
        parts.trainer().run()
        assert sum(f"training has ended: {reason}" in notice for notice in notices) == runs


def test_a_checkpoint_that_is_removed_frees_the_disk(tiny: Path) -> None:
    """The moments of a resumed training are its own, no map of the file."""
    parts = Parts(tiny)
    trainer = parts.trainer()
    trainer.step()
    trainer.save()
    assert parts.trainer().state.step == 1
    assert str(parts.run.root) not in Path("/proc/self/maps").read_text()


def test_a_session_verifies_each_checkpoint_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run, read = RunDir(tmp_path), list[Path]()
    for step in range(1, 5):
        with atomic.new_folder(run.checkpoint(step)) as folder:
            (folder / "weights").write_bytes(b"w")
    digest = manifest.sha256
    monkeypatch.setattr(manifest, "sha256", lambda path: read.append(path) or digest(path))
    checkpoints = Checkpoints(run)
    for _ in range(3):
        checkpoints.prune(3, set())
    assert checkpoints.steps() == [2, 3, 4]
    assert read == [run.checkpoint(step) / "weights" for step in (4, 3, 2)]


def test_a_best_step_whose_checkpoint_is_gone_is_forgotten(tiny: Path) -> None:
    """The newest checkpoint is damaged, and the one before it was saved when an older one, gone since, was the best."""
    parts = Parts(tiny, "training.max_steps=12", "training.validate_every=4")
    first = parts.trainer(validate=scripted(1, 2, 3))
    first.run()
    assert first.checkpoints.steps() == [8, 12]
    (parts.run.checkpoint(12) / "model.safetensors").write_bytes(b"damaged")
    parts.configure("training.max_steps=10", "training.validate_every=100")
    second = parts.trainer(validate=scripted(0.5))
    assert (second.state.step, second.state.best_step) == (8, None)
    second.run()
    assert "step 10" in second.final_weights.final()[1]


def test_steps_whose_updates_were_all_skipped_have_no_loss(tiny: Path) -> None:
    parts = Parts(tiny)
    trainer = parts.trainer()
    with torch.no_grad():
        parts.model.decoder_norm.bias[0] = math.inf
    trainer.step()
    assert trainer.step_results.summary(seconds=1.0) == {}
