"""The fused loss: equal to torch's cross-entropy in value and gradients, without the logits of a whole batch."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from model_helpers import Watch, near, small_model, sources, targets
from mt.data.tokenizer import PAD_ID
from mt.model import linear
from mt.model.loss import fused_cross_entropy
from mt.model.packing import Packing

D_MODEL, VOCAB = 16, 40
NEEDS_ONEDNN = pytest.mark.skipif(not hasattr(torch.ops.mkldnn, "_linear_pointwise"), reason="torch without oneDNN")


def batch(tokens: int, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """States (N, D), an output matrix (V, D), and labels (N,)."""
    generator = torch.Generator().manual_seed(seed)
    states = torch.randn(tokens, D_MODEL, generator=generator)
    weight = torch.randn(VOCAB, D_MODEL, generator=generator)
    labels = torch.randint(1, VOCAB, (tokens,), generator=generator)
    return states.requires_grad_(), weight.requires_grad_(), labels


def expected(states: Tensor, weight: Tensor, labels: Tensor, smoothing: float) -> tuple[Tensor, Tensor, Tensor]:
    """Loss and both gradients by torch, in double precision."""
    inputs, matrix = states.detach().double().requires_grad_(), weight.detach().double().requires_grad_()
    loss = F.cross_entropy(inputs @ matrix.T, labels, label_smoothing=smoothing, reduction="sum")
    loss.backward()
    return loss.detach(), inputs.grad, matrix.grad


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.9])
@pytest.mark.parametrize("tokens", [1, 15, 511, 512, 513, 1330])
@pytest.mark.parametrize("onednn", [False, pytest.param(True, marks=NEEDS_ONEDNN)], ids=["torch", "onednn"])
def test_equals_torch(smoothing: float, tokens: int, onednn: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linear, "_prefers_onednn", lambda: onednn)
    monkeypatch.setattr(linear, "_MIN_FEATURES", 1)
    states, weight, labels = batch(tokens)
    loss, nll = fused_cross_entropy(states, weight, labels, smoothing)
    loss.backward()
    wanted, states_gradient, weight_gradient = expected(states, weight, labels, smoothing)
    near(loss, wanted)
    near(nll, expected(states, weight, labels, 0.0)[0])
    near(states.grad, states_gradient)
    near(weight.grad, weight_gradient)
    assert not nll.requires_grad


def test_double_precision_stays_so() -> None:
    states, weight, labels = (tensor.detach() for tensor in batch(15))
    states, weight = states.double().requires_grad_(), weight.double().requires_grad_()
    loss, _ = fused_cross_entropy(states, weight, labels, 0.1)
    loss.backward()
    wanted, states_gradient, weight_gradient = expected(states, weight, labels, 0.1)
    assert states.grad.dtype == weight.grad.dtype == torch.float64
    near(loss, wanted, 1e-5)
    near(states.grad, states_gradient, 1e-5)
    near(weight.grad, weight_gradient, 1e-5)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_the_sum_runs_over_tokens(smoothing: float) -> None:
    states, weight, labels = batch(24)
    loss, nll = fused_cross_entropy(states, weight, labels, smoothing)
    alone = [fused_cross_entropy(states[i : i + 1], weight, labels[i : i + 1], smoothing) for i in range(24)]
    near(loss, sum(one[0].detach() for one in alone))
    near(nll, sum(one[1] for one in alone))


def test_no_tokens_are_zero() -> None:
    states, weight, labels = batch(0)
    loss, nll = fused_cross_entropy(states, weight, labels, 0.1)
    loss.backward()
    assert loss == nll == 0
    assert states.grad.shape == (0, D_MODEL)
    assert (weight.grad == 0).all()


def test_large_logits_do_not_overflow() -> None:
    states, weight, labels = (tensor.detach() for tensor in batch(15))
    states = (states * 100).requires_grad_()
    loss, _ = fused_cross_entropy(states, weight, labels, 0.1)
    loss.backward()
    near(loss, expected(states, weight, labels, 0.1)[0])
    near(states.grad, expected(states, weight, labels, 0.1)[1])


def test_gradients_take_the_factor_from_above() -> None:
    states, weight, labels = batch(15)
    (fused_cross_entropy(states, weight, labels, 0.1)[0] / 7).backward()
    _, states_gradient, weight_gradient = expected(states, weight, labels, 0.1)
    near(states.grad, states_gradient / 7)
    near(weight.grad, weight_gradient / 7)


def test_gradients_add_up_over_micro_batches() -> None:
    states, weight, labels = batch(15)
    for _ in range(2):
        fused_cross_entropy(states, weight, labels, 0.1)[0].backward()
    near(weight.grad, 2 * expected(states, weight, labels, 0.1)[2])


@pytest.mark.parametrize("tie", [True, False])
@pytest.mark.parametrize("lengths", [(6, 2), (4, 4)], ids=["padded", "full"])
def test_a_model_gets_the_gradients_of_the_plain_path(tie: bool, lengths: tuple[int, int]) -> None:
    src_tokens, tgt_in = sources([5, 3]), targets(lengths)
    tgt_out = targets(lengths, seed=2)
    src, tgt = Packing.of(src_tokens), Packing.of(tgt_in)
    model = small_model(tie_embeddings=tie)
    states = model.states(src_tokens, tgt_in, src, tgt)
    fused_cross_entropy(states, model.output.weight, tgt.pack(tgt_out), 0.1)[0].backward()
    plain = small_model(tie_embeddings=tie)
    logits = plain(src_tokens, tgt_in).flatten(0, 1)
    F.cross_entropy(logits, tgt_out.flatten(), label_smoothing=0.1, ignore_index=PAD_ID, reduction="sum").backward()
    for (name, ours), theirs in zip(model.named_parameters(), plain.parameters(), strict=True):
        assert theirs.grad.abs().max() > 0, name
        near(ours.grad, theirs.grad)
    # Tokens that are read but never a label, and the reverse: a tied matrix needs both.
    assert (model.output.weight.grad.abs().amax(dim=1) > 0).all()


def test_bf16_autocast_is_close() -> None:
    states, weight, labels = batch(1330)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss, nll = fused_cross_entropy(states, weight, labels, 0.1)
    loss.backward()
    wanted, states_gradient, weight_gradient = expected(states, weight, labels, 0.1)
    assert loss.dtype == nll.dtype == states.grad.dtype == weight.grad.dtype == torch.float32
    near(loss, wanted, 0.005)
    near(nll, expected(states, weight, labels, 0.0)[0], 0.005)
    near(states.grad, states_gradient, 0.02)
    near(weight.grad, weight_gradient, 0.02)


def test_never_holds_the_logits_of_the_whole_batch() -> None:
    states, weight, labels = batch(2000)
    with Watch() as watch:
        fused_cross_entropy(states, weight, labels, 0.1)[0].backward()
    assert watch.largest <= max(512 * VOCAB, states.numel()) < labels.numel() * VOCAB


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_no_gradient_is_computed_where_none_is_wanted(mode: type) -> None:
    states, weight, labels = batch(15)
    with mode(), Watch() as watch:
        loss, nll = fused_cross_entropy(states, weight, labels, 0.1)
    assert not loss.requires_grad
    near(loss, expected(states, weight, labels, 0.1)[0])
    near(nll, expected(states, weight, labels, 0.0)[0])
    assert watch.products == 1
