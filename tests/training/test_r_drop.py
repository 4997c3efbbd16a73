"""Training with R-Drop: gradients of autograd, dropout of both passes, split batches and resumes."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from model_helpers import plain_r_drop
from mt.data.batching import Batch
from mt.model.packing import Packing
from mt.training.step import StepLoss, TrainStep, _piece, seed_dropout
from training_helpers import Parts, assert_equal


def step(parts: Parts, batches: list[Batch], r_drop: float, at: int = 0) -> tuple[StepLoss, list[Tensor]]:
    """What `TrainStep` gives with some strength."""
    training = parts.config.training.model_copy(update={"r_drop": r_drop})
    parts.model.zero_grad()
    result = TrainStep(parts.config.model_copy(update={"training": training}), parts.model).accumulate_gradients(
        batches, at
    )
    return result, [p.grad.clone() for p in parts.model.parameters()]


def test_without_dropout_it_changes_nothing(tiny: Path) -> None:
    parts = Parts(tiny, "model.dropout=0.0")
    batches = parts.batches(3)
    (without, gradients), (result, with_it) = (step(parts, batches, strength) for strength in (0.0, 5.0))
    torch.testing.assert_close(result.sums, without.sums, rtol=1e-5, atol=0)
    assert_equal(with_it, gradients)
    assert (result.n_target, result.n_tokens) == (without.n_target, without.n_tokens)


def test_with_dropout_the_passes_differ_and_the_gradients_are_those_of_autograd(tiny: Path) -> None:
    parts = Parts(tiny, "model.dropout=0.3")
    # Padding on both sides: what is packed must find its label in both passes.
    batch = next(b for b in parts.batches(20) if (b.tgt_out == 0).any() and (b.src_tokens == 0).any())
    result, gradients = step(parts, [batch], 5.0, at=3)
    parts.model.zero_grad()
    seed_dropout(parts.config.seed, 3, 0, 0)
    src_tokens, tgt_in = (torch.from_numpy(array).repeat(2, 1) for array in (batch.src_tokens, batch.tgt_in))
    labels = torch.from_numpy(batch.tgt_out[batch.tgt_out > 0])
    states = parts.model.states(src_tokens, tgt_in, Packing.of(src_tokens), Packing.of(tgt_in))
    loss = plain_r_drop(states, parts.model.output.weight, labels, 0.1, 5.0)
    (loss / batch.n_tgt).backward()
    torch.testing.assert_close(result.sums[0], loss.detach(), rtol=1e-5, atol=0)
    assert_equal(gradients, [p.grad for p in parts.model.parameters()])
    p, q = (states @ parts.model.output.weight.T).detach().softmax(-1).chunk(2)
    assert (p - q).abs().max() > 0.01
    weaker, other_gradients = step(parts, [batch], 1.0, at=3)
    assert weaker.sums[0] < 0.999 * result.sums[0]
    assert weaker.sums[1] == result.sums[1]
    assert not torch.allclose(gradients[0], other_gradients[0])


def test_the_parts_of_a_step_are_dropped_from_differently(tiny: Path) -> None:
    """Twice the same batch would otherwise be twice the same loss; and so would the pieces of a batch that is split."""
    parts = Parts(tiny, "model.dropout=0.3")
    [batch] = parts.batches(1)
    alone, twice = (step(parts, [batch] * times, 0.0)[0].sums[0].item() for times in (1, 2))
    assert abs(twice - 2 * alone) > 1e-3 * alone
    doubled = replace(batch, **{name: getattr(batch, name)[[0, 0]] for name in ("src_tokens", "tgt_in", "tgt_out")})
    train_step = TrainStep(parts.config, parts.model)
    first, second = (
        (seed_dropout(parts.config.seed, 0, 0, piece), train_step._backward(_piece(doubled, piece, 2), 1)[0].item())[1]
        for piece in range(2)
    )
    assert first != second
    train_step.pieces = 2
    total = train_step._forward_backward([doubled], 0, 1)[0].item()
    assert total == pytest.approx(first + second, rel=1e-6)
