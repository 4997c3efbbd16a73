"""The fused losses: value and gradients of plain formulas, without the logits of a whole batch."""

from collections.abc import Sequence

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from model_helpers import Watch, near, plain_r_drop, small_model, sources, targets
from mt.data.tokenizer import PAD_ID
from mt.model import linear
from mt.model.loss import distillation_cross_entropy, fused, fused_cross_entropy, r_drop_cross_entropy, with_bias
from mt.model.packing import Packing

D_MODEL, VOCAB = 16, 40
NEEDS_ONEDNN = pytest.mark.skipif(not hasattr(torch.ops.mkldnn, "_linear_pointwise"), reason="torch without oneDNN")
LOSSES = ["cross_entropy", "r_drop", "distillation"]
each_loss = pytest.mark.parametrize("kind", LOSSES)


class Case:
    """Random input of a loss: states (N, D) or of two passes (2 N, D), an output matrix (V, D) and labels (N,).

    Args:
        strength: the alpha of R-Drop, or the share of the teachers, whose widths differ.
        scale: of the states.
        apart: the noise between the passes of R-Drop.
    """

    def __init__(
        self,
        kind: str,
        tokens: int,
        smoothing: float = 0.1,
        strength: float = 0.5,
        scale: float = 1,
        apart: float = 1.5,
    ) -> None:
        generator = torch.Generator().manual_seed(tokens)

        def normal(*shape: int) -> Tensor:
            return torch.randn(*shape, generator=generator)

        self.kind, self.smoothing, self.strength = kind, smoothing, strength
        states = normal(tokens, D_MODEL)
        if kind == "r_drop":
            states = torch.cat([states, states + apart * normal(tokens, D_MODEL)])
        self.states = (scale * states).requires_grad_()
        self.weight = (normal(VOCAB, D_MODEL) / 2).requires_grad_()
        self.labels = torch.randint(1, VOCAB, (tokens,), generator=generator)
        widths = [D_MODEL + 8 * n for n in range(1 + tokens % 3)]
        self.teachers = [(normal(tokens, width), normal(VOCAB, width) / 2) for width in widths]

    def fused(self) -> tuple[Tensor, Tensor]:
        arguments = self.states, self.weight, self.labels, self.smoothing
        if self.kind == "r_drop":
            return fused(r_drop_cross_entropy, *arguments, self.strength)
        if self.kind == "distillation":
            return fused(distillation_cross_entropy, *arguments, self.teachers, self.strength)
        return fused_cross_entropy(*arguments)

    def plain(self, smoothing: float, strength: float) -> list[Tensor]:
        """Return the loss and both gradients by torch, in double precision."""
        states, weight = (x.detach().double().requires_grad_() for x in (self.states, self.weight))
        if self.kind == "r_drop":
            loss = plain_r_drop(states, weight, self.labels, smoothing, strength)
        else:
            logits = states @ weight.T
            loss = F.cross_entropy(logits, self.labels, label_smoothing=smoothing, reduction="sum")
        if self.kind == "distillation":
            taught = sum((x.double() @ output.double().T).softmax(-1) for x, output in self.teachers)
            soft = F.cross_entropy(logits, taught / len(self.teachers), reduction="sum")
            loss = (1 - strength) * loss + strength * soft
        loss.backward()
        return [loss.detach(), states.grad, weight.grad]

    def check(self, tolerances: Sequence[float] = (1e-5, 1e-5)) -> None:
        """Compare loss and likelihood, and both gradients, with the plain formula."""
        loss, nll = self.fused()
        loss.backward()
        expected, states_gradient, weight_gradient = self.plain(self.smoothing, self.strength)
        near(loss, expected, tolerances[0])
        near(nll, self.plain(0.0, 0.0)[0], tolerances[0])
        near(self.states.grad, states_gradient, tolerances[1])
        near(self.weight.grad, weight_gradient, tolerances[1])
        assert not nll.requires_grad
        assert {loss.dtype, nll.dtype} == {torch.float32}


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.9])
@pytest.mark.parametrize("tokens", [1, 15, 129, 256, 257, 512, 513, 1330])
@pytest.mark.parametrize("onednn", [False, pytest.param(True, marks=NEEDS_ONEDNN)], ids=["torch", "onednn"])
@pytest.mark.parametrize(
    ("kind", "strength"),
    [
        ("cross_entropy", 0.0),
        *(("r_drop", x) for x in (0.0, 1.0, 5.0)),
        *(("distillation", x) for x in (0.0, 0.6, 1.0)),
    ],
)
def test_equals_torch(
    kind: str, strength: float, smoothing: float, tokens: int, onednn: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(linear, "_prefers_onednn", lambda: onednn)
    monkeypatch.setattr(linear, "_MIN_FEATURES", 1)
    Case(kind, tokens, smoothing, strength).check()


@pytest.mark.parametrize("frozen", ["states", "weight"])
def test_either_side_may_be_frozen(frozen: str) -> None:
    case = Case("cross_entropy", 15, 0.1, 0.0)
    getattr(case, frozen).requires_grad_(False)
    case.fused()[0].backward()
    _, states_gradient, weight_gradient = case.plain(0.1, 0.0)
    if frozen == "weight":
        near(case.states.grad, states_gradient, 1e-5)
    else:
        near(case.weight.grad, weight_gradient, 1e-5)


@each_loss
def test_large_logits_do_not_overflow(kind: str) -> None:
    Case(kind, 15, scale=50).check((1e-4, 1e-4))


@each_loss
def test_bf16_autocast_is_close(kind: str) -> None:
    case = Case(kind, 1330)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        case.check((0.01, 0.05))
    assert case.states.grad.dtype == case.weight.grad.dtype == torch.float32


def test_double_precision_is_kept() -> None:
    case = Case("cross_entropy", 15)
    case.states, case.weight = (x.detach().double().requires_grad_() for x in (case.states, case.weight))
    case.check()
    assert case.states.grad.dtype == case.weight.grad.dtype == torch.float64


@each_loss
def test_gradients_are_scaled_and_accumulated(kind: str) -> None:
    case = Case(kind, 15)
    for divisor in (7, 3):
        (case.fused()[0] / divisor).backward()
    _, states_gradient, weight_gradient = case.plain(case.smoothing, case.strength)
    near(case.states.grad, states_gradient * (1 / 7 + 1 / 3))
    near(case.weight.grad, weight_gradient * (1 / 7 + 1 / 3))


@each_loss
def test_no_tokens_are_zero(kind: str) -> None:
    case = Case(kind, 0)
    loss, nll = case.fused()
    loss.backward()
    assert loss == nll == 0
    assert case.states.grad.shape == (0, D_MODEL)
    assert not case.weight.grad.any()


@each_loss
def test_never_holds_the_logits_of_the_whole_batch(kind: str) -> None:
    case = Case(kind, 2000)
    with Watch() as watch:
        case.fused()[0].backward()
    inputs = [case.states, *(states for states, _ in case.teachers)]
    assert watch.largest <= max(512 * VOCAB, *(x.numel() for x in inputs)) < len(case.labels) * VOCAB


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_no_gradient_is_computed_without_grad_mode(mode: type) -> None:
    case = Case("cross_entropy", 15)
    with mode(), Watch() as watch:
        loss, nll = case.fused()
    assert not loss.requires_grad
    near(loss, case.plain(0.1, 0.0)[0])
    near(nll, case.plain(0.0, 0.0)[0])
    assert watch.products == 1


@pytest.mark.parametrize("tie", [True, False])
@pytest.mark.parametrize("lengths", [(6, 2), (4, 4)], ids=["padded", "full"])
def test_a_model_gets_the_gradients_of_the_plain_path(tie: bool, lengths: tuple[int, int]) -> None:
    src_tokens, tgt_in = sources([5, 3]), targets(lengths)
    tgt_out = targets(lengths, seed=2)
    src, tgt = Packing.of(src_tokens), Packing.of(tgt_in)
    model, plain = small_model(tie_embeddings=tie), small_model(tie_embeddings=tie)
    states = model.states(src_tokens, tgt_in, src, tgt)
    fused_cross_entropy(states, model.output.weight, tgt.pack(tgt_out), 0.1)[0].backward()
    logits = plain(src_tokens, tgt_in).flatten(0, 1)
    F.cross_entropy(logits, tgt_out.flatten(), label_smoothing=0.1, ignore_index=PAD_ID, reduction="sum").backward()
    for (name, ours), theirs in zip(model.named_parameters(), plain.parameters(), strict=True):
        assert theirs.grad.abs().max() > 0, name
        near(ours.grad, theirs.grad)
    # A tied matrix has gradients of tokens that are only read and of tokens that are only labels.
    assert (model.output.weight.grad.abs().amax(dim=1) > 0).all()


def test_an_output_bias_is_in_the_loss_and_gets_its_gradient() -> None:
    states, labels = torch.randn(7, 16, requires_grad=True), torch.arange(7)
    output = torch.nn.Linear(16, 12)
    torch.nn.init.normal_(output.bias)
    results = []
    for is_fused in (True, False):
        if is_fused:
            loss, _ = fused_cross_entropy(*with_bias(states, output), labels, 0.1)
        else:
            loss = F.cross_entropy(output(states), labels, label_smoothing=0.1, reduction="sum")
        results.append([loss, *torch.autograd.grad(loss, (states, output.weight, output.bias))])
    for one, other in zip(*results, strict=True):
        near(one, other)


def test_the_divergence_of_r_drop_weighs_in() -> None:
    """So that the comparison with torch is no comparison of zeros."""
    losses = [Case("r_drop", 15).plain(0.1, strength)[0].item() for strength in (0, 5)]
    assert losses[1] > 1.5 * losses[0]


def test_equal_passes_of_r_drop_have_the_plain_loss() -> None:
    case = Case("r_drop", 300, strength=100.0, apart=0)
    loss, nll = case.fused()
    loss.backward()
    once, matrix = case.states.detach()[:300].requires_grad_(), case.weight.detach().requires_grad_()
    expected, expected_nll = fused_cross_entropy(once, matrix, case.labels, 0.1)
    expected.backward()
    near(loss, expected.detach(), 1e-5)
    near(nll, expected_nll, 1e-5)
    near(case.weight.grad, matrix.grad)
    for half in case.states.grad.chunk(2):
        near(half, once.grad / 2)


def test_a_student_that_is_its_teacher_has_nothing_to_learn() -> None:
    case = Case("distillation", 15, strength=1.0)
    case.teachers = [(case.states.detach(), case.weight.detach())]
    case.fused()[0].backward()
    assert case.states.grad.abs().max() < 1e-6
    assert case.weight.grad.abs().max() < 1e-5
