"""R-Drop: the fused loss of two passes equals plain autograd, and training takes its gradients from it."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from model_helpers import Watch, near
from mt.data.batching import Batch
from mt.model.loss import fused_cross_entropy, fused_r_drop_cross_entropy
from mt.model.packing import Packing
from mt.training.step import StepLoss, TrainStep, _every, seed_dropout
from training_helpers import NoMemory, Parts, assert_equal, resume_is_exact

D_MODEL, VOCAB = 16, 40


def two_passes(tokens: int, apart: float = 1.5) -> tuple[Tensor, Tensor, Tensor]:
    """States (2 N, D) of passes that differ by noise, an output matrix (V, D), and labels (N,)."""
    generator = torch.Generator().manual_seed(tokens)
    first = torch.randn(tokens, D_MODEL, generator=generator)
    states = torch.cat([first, first + apart * torch.randn(tokens, D_MODEL, generator=generator)])
    weight = torch.randn(VOCAB, D_MODEL, generator=generator) / 2
    labels = torch.randint(1, VOCAB, (tokens,), generator=generator)
    return states.requires_grad_(), weight.requires_grad_(), labels


def plain(states: Tensor, weight: Tensor, labels: Tensor, smoothing: float, strength: float) -> Tensor:
    """Equation 4 of the paper, halved: the passes' mean cross-entropy and a quarter of alpha times both divergences."""
    logits = states @ weight.T
    entropy = F.cross_entropy(logits, labels.repeat(2), label_smoothing=smoothing, reduction="sum") / 2
    p, q = logits.log_softmax(-1).chunk(2)
    divergences = [F.kl_div(a, b, log_target=True, reduction="sum") for a, b in ((p, q), (q, p))]
    return entropy + strength / 4 * (divergences[0] + divergences[1])


def expected(
    states: Tensor, weight: Tensor, labels: Tensor, smoothing: float, strength: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Loss and both gradients by torch, in double precision."""
    inputs, matrix = states.detach().double().requires_grad_(), weight.detach().double().requires_grad_()
    loss = plain(inputs, matrix, labels, smoothing, strength)
    loss.backward()
    return loss.detach(), inputs.grad, matrix.grad


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("strength", [0.0, 1.0, 5.0])
@pytest.mark.parametrize("tokens", [1, 15, 256, 257, 700])
def test_equals_torch(tokens: int, strength: float, smoothing: float) -> None:
    states, weight, labels = two_passes(tokens)
    loss, nll = fused_r_drop_cross_entropy(states, weight, labels, smoothing, strength)
    loss.backward()
    wanted, states_gradient, weight_gradient = expected(states, weight, labels, smoothing, strength)
    near(loss, wanted, 1e-5)
    near(nll, expected(states, weight, labels, 0.0, 0.0)[0], 1e-5)
    near(states.grad, states_gradient, 1e-5)
    near(weight.grad, weight_gradient, 1e-5)
    assert not nll.requires_grad


def test_without_tokens_there_is_no_loss() -> None:
    states, weight, labels = two_passes(0)
    loss, nll = fused_r_drop_cross_entropy(states, weight, labels, 0.1, 5.0)
    loss.backward()
    assert loss == nll == 0
    assert not weight.grad.any()


def test_the_divergence_weighs_in() -> None:
    """So that the comparison above is no comparison of zeros."""
    states, weight, labels = two_passes(15)
    losses = [expected(states, weight, labels, 0.1, strength)[0].item() for strength in (0, 5)]
    assert losses[1] > 1.5 * losses[0]


@pytest.mark.parametrize("tokens", [15, 300])
def test_the_passes_may_be_exchanged(tokens: int) -> None:
    states, weight, labels = two_passes(tokens)
    exchanged = states.detach().roll(tokens, 0).requires_grad_()
    loss, nll = fused_r_drop_cross_entropy(states, weight, labels, 0.1, 5.0)
    loss.backward()
    other, other_nll = fused_r_drop_cross_entropy(exchanged, weight.detach(), labels, 0.1, 5.0)
    other.backward()
    near(other, loss.detach(), 1e-6)
    near(other_nll, nll, 1e-6)
    near(exchanged.grad.roll(tokens, 0), states.grad, 1e-6)


def test_equal_passes_have_the_plain_loss() -> None:
    states, weight, labels = two_passes(300, apart=0)
    loss, nll = fused_r_drop_cross_entropy(states, weight, labels, 0.1, 100.0)
    loss.backward()
    once = states.detach()[:300].requires_grad_()
    matrix = weight.detach().requires_grad_()
    wanted, wanted_nll = fused_cross_entropy(once, matrix, labels, 0.1)
    wanted.backward()
    near(loss, wanted.detach(), 1e-5)
    near(nll, wanted_nll, 1e-5)
    near(weight.grad, matrix.grad, 1e-4)
    for half in states.grad.chunk(2):
        near(half, once.grad / 2, 1e-4)


def test_gradients_take_the_factor_from_above_and_add_up() -> None:
    states, weight, labels = two_passes(15)
    for divisor in (7, 3):
        (fused_r_drop_cross_entropy(states, weight, labels, 0.1, 5.0)[0] / divisor).backward()
    _, states_gradient, weight_gradient = expected(states, weight, labels, 0.1, 5.0)
    near(states.grad, states_gradient * (1 / 7 + 1 / 3), 1e-5)
    near(weight.grad, weight_gradient * (1 / 7 + 1 / 3), 1e-5)


def test_large_logits_do_not_overflow() -> None:
    states, weight, labels = two_passes(15)
    states = (states.detach() * 50).requires_grad_()
    loss, _ = fused_r_drop_cross_entropy(states, weight, labels, 0.1, 5.0)
    loss.backward()
    wanted, states_gradient, _ = expected(states, weight, labels, 0.1, 5.0)
    near(loss, wanted)
    near(states.grad, states_gradient)


def test_bf16_autocast_is_close() -> None:
    states, weight, labels = two_passes(600)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss, nll = fused_r_drop_cross_entropy(states, weight, labels, 0.1, 5.0)
    loss.backward()
    wanted, states_gradient, weight_gradient = expected(states, weight, labels, 0.1, 5.0)
    assert loss.dtype == nll.dtype == states.grad.dtype == weight.grad.dtype == torch.float32
    near(loss, wanted, 0.01)
    near(nll, expected(states, weight, labels, 0.0, 0.0)[0], 0.01)
    near(states.grad, states_gradient, 0.05)
    near(weight.grad, weight_gradient, 0.05)


def test_never_holds_the_logits_of_the_whole_batch() -> None:
    states, weight, labels = two_passes(1500)
    with Watch() as watch:
        fused_r_drop_cross_entropy(states, weight, labels, 0.1, 5.0)[0].backward()
    assert watch.largest <= max(512 * VOCAB, states.numel()) < 2 * labels.numel() * VOCAB


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
    loss = plain(states, parts.model.output.weight, labels, 0.1, 5.0)
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
        (seed_dropout(parts.config.seed, 0, 0, piece), train_step._backward(_every(doubled, piece, 2), 1)[0].item())[1]
        for piece in range(2)
    )
    assert first != second
    total = train_step._forward_backward([doubled], 0, 1, 2)[0].item()
    assert total == pytest.approx(first + second, rel=1e-6)


def test_out_of_memory_splits_the_batch_and_changes_nothing(tiny: Path) -> None:
    parts = Parts(tiny, "model.dropout=0.0", "training.r_drop=5.0")
    batches = parts.batches(2)
    whole = parts.gradients(batches)
    most = max(len(b.src_tokens) for b in batches)
    limit = NoMemory(2 * most // 3, torch.OutOfMemoryError("CUDA out of memory"))
    assert_equal(whole, parts.gradients(batches, limit))


def test_a_resume_is_exact(tiny: Path) -> None:
    parts = Parts(tiny, "training.r_drop=3.0", "training.accumulate=2", "model.dropout=0.2")
    assert resume_is_exact(parts)
