"""What only a GPU can show: the same numbers as on the CPU, bf16 that learns, and exact resume."""

from pathlib import Path

import pytest
import torch

from model_helpers import lively_model, sources
from mt.decoding.engine import SearchOptions
from mt.decoding.search import search
from training_helpers import Parts, take_steps

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
    take_steps(trainer, 60)
    assert trainer.step_results.summary(seconds=1.0)["loss"] < 0.8 * first
    assert all(p.dtype == torch.float32 for p in parts.model.parameters())


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_a_resume_goes_on_in_the_same_place(tiny: Path, precision: str) -> None:
    parts = on_gpu(tiny, f"training.precision={precision}")
    trainer = parts.trainer()
    take_steps(trainer, 8)
    trainer.save()
    take_steps(trainer, 8)
    uninterrupted = parts.weights()
    resumed = parts.trainer()
    assert resumed.state.step == 8
    take_steps(resumed, 8)
    for a, b in zip(uninterrupted, parts.weights(), strict=True):  # CUDA's kernels add in no fixed order
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-4)


def test_an_update_that_is_not_finite_moves_nothing(tiny: Path) -> None:
    parts = on_gpu(tiny)
    trainer = parts.trainer()
    trainer.step()
    before, bias = parts.weights(), parts.model.decoder_norm.bias
    number = bias[0].item()
    with torch.no_grad():
        bias[0] = float("inf")
    trainer.step()
    trainer.step_results.flush()
    with torch.no_grad():
        bias[0] = number
    assert trainer.state.skipped_updates == 1
    assert all(torch.equal(a, b) for a, b in zip(before, parts.weights(), strict=True))


@pytest.mark.parametrize("beam_size", [1, 5])
def test_translations_are_those_of_the_cpu(beam_size: int) -> None:
    model, src_tokens = lively_model(), sources([7, 2, 5, 1])
    options = SearchOptions(beam_size)
    expected = [[h.ids for h in found] for found in search(model, src_tokens, options)]
    model.cuda()
    assert [[h.ids for h in found] for found in search(model, src_tokens.cuda(), options)] == expected
