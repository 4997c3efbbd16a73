"""The loss's Triton kernel against plain torch and double precision; `test_loss_kernel.py` runs it."""

import pytest
import torch
from torch import Tensor

from mt.model import loss as fused
from mt.model.loss import fused_cross_entropy
from mt.model.loss_kernel import cross_entropy_rows
from mt.model.loss_rows import IGNORED, plain_rows

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
ROUNDING = {torch.float32: 2e-7, torch.bfloat16: 2**-8, torch.float16: 2**-11}
ROWS = 3


def drawn(vocab: int, dtype: torch.dtype, stride: int) -> tuple[Tensor, Tensor, Tensor]:
    """Rows of logits (R, V), followed by NaN up to their stride, labels (R,) and memory for the losses (2, R)."""
    generator = torch.Generator().manual_seed(vocab)
    memory = torch.full((ROWS, stride), float("nan"))
    memory[:, :vocab] = 4 * torch.randn(ROWS, vocab, generator=generator)
    labels = torch.randint(0, vocab, (ROWS,), generator=generator)
    labels[-1] = vocab - 1
    return memory.to(DEVICE, dtype)[:, :vocab], labels.to(DEVICE), torch.full((2, ROWS), 7.0, device=DEVICE)


def exact(logits: Tensor, labels: Tensor, smoothing: float) -> tuple[Tensor, Tensor]:
    """Return losses (2, R) and the gradient of the first (R, V) by autograd, in double precision."""
    z = logits.double().requires_grad_()
    losses = [
        torch.nn.functional.cross_entropy(z, labels, label_smoothing=e, reduction="none") for e in (smoothing, 0.0)
    ]
    losses[0].sum().backward()
    return torch.stack(losses).detach(), z.grad


def error(actual: Tensor, wanted: Tensor) -> float:
    """Return the largest difference, as a share of the largest element."""
    return ((actual.double() - wanted).abs().max() / wanted.abs().max()).item()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize(("vocab", "stride"), [(1, 1), (40, 64), (37, 37), (1000, 1024), (9001, 9024)])
def test_kernel_and_twin_are_as_exact_as_their_format(
    vocab: int, stride: int, smoothing: float, dtype: torch.dtype
) -> None:
    for function in (cross_entropy_rows, plain_rows):
        logits, labels, losses = drawn(vocab, dtype, stride)
        wanted, gradient = exact(logits, labels, smoothing)
        before = logits.clone()
        function(logits, labels, losses, smoothing, 0.0)
        assert (losses - wanted).abs().max() <= 2e-7 * wanted.abs().max() + 1e-6 * (vocab == 1)
        assert torch.equal(logits, before)
        losses.fill_(7.0)
        function(logits, labels, losses, smoothing, 1.0)
        assert (losses - wanted).abs().max() <= 2e-7 * wanted.abs().max() + 1e-6 * (vocab == 1)
        differences = (logits.double() - gradient).abs()
        # The format's rounding of each element, and fp32's of its terms.
        rounding = ROUNDING[dtype]
        if dtype == torch.bfloat16 and function is cross_entropy_rows and DEVICE == "cpu":
            rounding *= 2  # the interpreter cuts bits off instead of rounding
        absolute = 2e-6 if function is plain_rows else 4e-7
        assert (differences <= rounding * 1.01 * gradient.abs() + absolute).all()


def test_fp16_keeps_small_probabilities_by_its_scale() -> None:
    logits, labels, losses = drawn(1000, torch.float16, 1024)
    logits[:, 0] = 26.0
    _, gradient = exact(logits, labels, 0.0)
    small = gradient.abs() < 1e-8
    assert small.float().mean() > 0.5
    cross_entropy_rows(logits, labels, losses, 0.0, 1024.0)
    missing = (logits.double() / 1024 - gradient)[small].abs().max()
    assert missing < 3.1e-11


@pytest.mark.parametrize("rows", ["kernel", "plain"])
@pytest.mark.parametrize("block_bytes", [2**29, 4 * 200 * 10])
@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float32, 2e-6), (torch.bfloat16, 0.012), (torch.float16, 0.0015)]
)
def test_the_whole_loss_is_near_double_precision(
    dtype: torch.dtype, tolerance: float, block_bytes: int, rows: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The states and the matrix have few bits, so that errors are the logits', the gradients' and the products'."""
    monkeypatch.setattr(fused, "_cross_entropy", fused._cuda_cross_entropy)
    monkeypatch.setattr(fused, "rows_function", lambda *_: {"kernel": cross_entropy_rows, "plain": plain_rows}[rows])
    monkeypatch.setattr(fused, "_blocks", lambda x, divisor, vocab: fused_blocks(len(x), block_bytes // (4 * vocab)))
    generator = torch.Generator().manual_seed(3)
    states, weight = (torch.randn(n, 32, generator=generator) for n in (24, 200))
    states, weight = ((x * s).to(dtype).float().to(DEVICE) for x, s in ((states, 1.0), (weight, 0.5)))
    labels = torch.randint(0, 200, (24,), generator=generator).to(DEVICE)
    z = [x.double().requires_grad_() for x in (states, weight)]
    wanted = torch.nn.functional.cross_entropy(z[0] @ z[1].T, labels, label_smoothing=0.1, reduction="sum")
    (wanted * 3000).backward()
    states, weight = states.requires_grad_(), weight.requires_grad_()
    with torch.autocast(DEVICE, dtype=dtype, enabled=dtype != torch.float32):
        loss, nll = fused_cross_entropy(states, weight, labels, 0.1)
    (loss * 3000).backward()  # in fp16 a loss scale's factor must overflow nothing
    assert loss.dtype == nll.dtype == states.grad.dtype == weight.grad.dtype == torch.float32
    errors = [error(a, b) for a, b in ((loss, wanted), (states.grad, z[0].grad), (weight.grad, z[1].grad))]
    assert max(errors) < tolerance
    with torch.inference_mode(), torch.autocast(DEVICE, dtype=dtype, enabled=dtype != torch.float32):
        again = fused_cross_entropy(states, weight, labels, 0.1)
    assert torch.equal(again[0], loss)
    assert torch.equal(again[1], nll)


def fused_blocks(length: int, size: int) -> list[slice]:
    return [slice(start, start + size) for start in range(0, length, size)]


def test_no_tokens_are_zero(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fused, "_cross_entropy", fused._cuda_cross_entropy)
    states, weight = (torch.ones(n, 8, device=DEVICE, requires_grad=True) for n in (0, 20))
    loss, nll = fused_cross_entropy(states, weight, torch.zeros(0, dtype=torch.int64, device=DEVICE), 0.1)
    loss.backward()
    assert loss == nll == 0
    assert not weight.grad.any()


def test_a_row_without_a_label_has_neither_loss_nor_gradient() -> None:
    for function in (cross_entropy_rows, plain_rows):
        logits, labels, losses = drawn(1000, torch.float32, 1024)
        wanted, gradient = exact(logits, labels, 0.1)
        labels[0] = IGNORED
        function(logits, labels, losses, 0.1, 1.0)
        assert not losses[:, 0].any()
        assert not logits[0].any()
        torch.testing.assert_close(losses[:, 1:].double(), wanted[:, 1:], rtol=1e-6, atol=0)
        torch.testing.assert_close(logits[1:].double(), gradient[1:], rtol=0, atol=4e-6)
