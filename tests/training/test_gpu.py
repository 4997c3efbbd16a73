"""What only a GPU can show: the same numbers as on the CPU, bf16 that learns, and exact resume."""

from pathlib import Path

import pytest
import torch

from model_helpers import lively_model, sources
from mt.decoding.engine import SearchOptions
from mt.decoding.search import search
from training_helpers import Parts

pytestmark = pytest.mark.gpu

EXACT = ("training.precision=fp32", "model.dropout=0.0")


def on_gpu(folder: Path, *changes: str) -> Parts:
    parts = Parts(folder, *changes)
    parts.model.cuda()
    return parts


def test_losses_and_gradients_are_those_of_the_cpu(tiny: Path) -> None:
    parts = Parts(tiny, *EXACT)
    batches = parts.batches(3)
    expected = parts.gradients(batches)
    parts.model.cuda()
    for cpu, gpu in zip(expected, parts.gradients(batches), strict=True):
        torch.testing.assert_close(gpu.cpu(), cpu, rtol=1e-3, atol=1e-5)


def test_bf16_learns_and_logs(tiny: Path) -> None:
    parts = on_gpu(tiny, "training.precision=bf16", "training.learning_rate=5e-3")
    trainer = parts.trainer()
    assert trainer.train_step.reads_late
    trainer.step()
    first = trainer.step_results.summary(seconds=1.0)["loss"]
    for _ in range(60):
        trainer.step()
    assert trainer.step_results.summary(seconds=1.0)["loss"] < 0.8 * first
    assert all(p.dtype == torch.float32 for p in parts.model.parameters())


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_a_resume_goes_on_in_the_same_place(tiny: Path, precision: str) -> None:
    parts = on_gpu(tiny, f"training.precision={precision}")
    trainer = parts.trainer()
    for _ in range(8):
        trainer.step()
    trainer.save()
    for _ in range(8):
        trainer.step()
    uninterrupted = [p.detach().clone() for p in parts.model.parameters()]
    resumed = parts.trainer()
    assert resumed.state.step == 8
    for _ in range(8):
        resumed.step()
    for a, b in zip(uninterrupted, parts.model.parameters(), strict=True):  # CUDA's kernels add in no fixed order
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-4)


def test_an_update_that_is_not_finite_moves_nothing(tiny: Path) -> None:
    parts = on_gpu(tiny)
    trainer = parts.trainer()
    trainer.step()
    weight = parts.model.encoder[0].feed_forward.up.weight
    with torch.no_grad():
        saved = weight[0, 0].clone()
        weight[0, 0] = float("inf")
    others = [p.detach().clone() for p in parts.model.parameters() if p is not weight]
    trainer.step()
    trainer.step_results.flush()
    assert trainer.state.skipped_updates == 1
    with torch.no_grad():
        weight[0, 0] = saved
    now = [p for p in parts.model.parameters() if p is not weight]
    assert all(torch.equal(a, b) for a, b in zip(others, now, strict=True))


@pytest.mark.parametrize("beam_size", [1, 5])
def test_translations_are_those_of_the_cpu(beam_size: int) -> None:
    model, src_tokens = lively_model(), sources([7, 2, 5, 1])
    options = SearchOptions(beam_size)
    expected = [[h.ids for h in found] for found in search(model, src_tokens, options)]
    model.cuda()
    assert [[h.ids for h in found] for found in search(model, src_tokens.cuda(), options)] == expected
