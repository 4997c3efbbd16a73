"""The fused loss: value and gradients of cross-entropy, without the logits of a whole batch."""

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
    """Draw states (N, D), an output matrix (V, D), and labels (N,)."""
    generator = torch.Generator().manual_seed(seed)
    states = torch.randn(tokens, D_MODEL, generator=generator)
    weight = torch.randn(VOCAB, D_MODEL, generator=generator)
    labels = torch.randint(1, VOCAB, (tokens,), generator=generator)
    return states.requires_grad_(), weight.requires_grad_(), labels


def plain_cross_entropy(states: Tensor, weight: Tensor, labels: Tensor, smoothing: float) -> Tensor:
    """-(1 - e) log p(label) - e / V sum_v log p(v), summed over tokens."""
    log_probs = (states @ weight.T).log_softmax(dim=-1)
    return -(1 - smoothing) * log_probs.gather(1, labels[:, None]).sum() - smoothing / VOCAB * log_probs.sum()


def expected(states: Tensor, weight: Tensor, labels: Tensor, smoothing: float) -> tuple[Tensor, Tensor, Tensor]:
    """Return the loss and both gradients of the plain formula, in double precision."""
    inputs, matrix = (x.detach().double().requires_grad_() for x in (states, weight))
    loss = plain_cross_entropy(inputs, matrix, labels, smoothing)
    loss.backward()
    return loss.detach(), inputs.grad, matrix.grad


def test_the_plain_formula_is_torchs() -> None:
    states, weight, labels = batch(15)
    for smoothing in (0.0, 0.1):
        theirs = F.cross_entropy(states @ weight.T, labels, label_smoothing=smoothing, reduction="sum")
        near(theirs, expected(states, weight, labels, smoothing)[0], 1e-6)


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.9])
@pytest.mark.parametrize("tokens", [1, 15, 511, 512, 513, 1330])
@pytest.mark.parametrize("onednn", [False, pytest.param(True, marks=NEEDS_ONEDNN)], ids=["torch", "onednn"])
def test_equals_the_plain_formula(smoothing: float, tokens: int, onednn: bool, monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_double_precision_is_kept() -> None:
    states, weight, labels = (tensor.detach() for tensor in batch(15))
    states, weight = states.double().requires_grad_(), weight.double().requires_grad_()
    loss, _ = fused_cross_entropy(states, weight, labels, 0.1)
    loss.backward()
    assert states.grad.dtype == weight.grad.dtype == torch.float64
    for actual, wanted in zip((loss, states.grad, weight.grad), expected(states, weight, labels, 0.1), strict=True):
        near(actual, wanted, 1e-5)


def test_gradients_are_scaled_and_accumulated() -> None:
    states, weight, labels = batch(15)
    for divisor in (7, 3):
        (fused_cross_entropy(states, weight, labels, 0.1)[0] / divisor).backward()
    _, states_gradient, weight_gradient = expected(states, weight, labels, 0.1)
    near(states.grad, states_gradient * (1 / 7 + 1 / 3))
    near(weight.grad, weight_gradient * (1 / 7 + 1 / 3))


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
    # A tied matrix has gradients of tokens that are only read and of tokens that are only labels.
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
def test_no_gradient_is_computed_without_grad_mode(mode: type) -> None:
    states, weight, labels = batch(15)
    with mode(), Watch() as watch:
        loss, nll = fused_cross_entropy(states, weight, labels, 0.1)
    assert not loss.requires_grad
    near(loss, expected(states, weight, labels, 0.1)[0])
    near(nll, expected(states, weight, labels, 0.0)[0])
    assert watch.products == 1
