"""Linear layers: torch's values and gradients with either matrix library."""

from collections.abc import Callable
from functools import partial

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import model_helpers
from model_helpers import Watch
from mt.model import linear
from mt.model.linear import Linear, linear_without_grad

HAS_ONEDNN = hasattr(torch.ops.mkldnn, "_linear_pointwise")
needs_onednn = pytest.mark.skipif(not HAS_ONEDNN, reason="this torch has no oneDNN")
LIBRARIES = [pytest.param(True, id="onednn", marks=needs_onednn), pytest.param(False, id="torch")]
LARGE, SMALL = (512, 512), (511, 512)  # output and input features, at the threshold and just below
ROWS = 37

near = partial(model_helpers.near, tolerance=2e-6)


@pytest.fixture
def force(monkeypatch: pytest.MonkeyPatch) -> Callable[[bool], None]:
    """Return a function that sets if oneDNN is preferred."""
    return lambda prefers: monkeypatch.setattr(linear, "_prefers_onednn", lambda: prefers)


def layer_of(size: tuple[int, int], bias: bool, dtype: torch.dtype = torch.float32) -> Linear:
    torch.manual_seed(0)
    out_features, in_features = size
    return Linear(in_features, out_features, bias=bias, dtype=dtype)


def rows(size: tuple[int, int], dtype: torch.dtype = torch.float32, count: int = ROWS) -> tuple[Tensor, Tensor]:
    """Return an input (N, I), and factors (N, O) that give every output its own gradient."""
    generator = torch.Generator().manual_seed(1)
    x, factors = (torch.randn(count, features, generator=generator).to(dtype) for features in reversed(size))
    return x.requires_grad_(), factors


def outcome(y: Tensor, x: Tensor, factors: Tensor, *parameters: Tensor) -> list[Tensor]:
    """Return the output, and the gradients of input and parameters."""
    return [y.detach(), *torch.autograd.grad((y * factors).sum(), [x, *parameters])]


@pytest.mark.parametrize("prefers_onednn", LIBRARIES)
@pytest.mark.parametrize("bias", [True, False], ids=["bias", "no bias"])
@pytest.mark.parametrize(
    ("size", "count"),
    [(LARGE, ROWS), (LARGE, 1), (LARGE, 0), (SMALL, ROWS), ((1024, 512), ROWS), ((24, 16), ROWS)],
    ids=str,
)
def test_equals_torch(size: tuple[int, int], count: int, bias: bool, prefers_onednn: bool, force: Callable) -> None:
    """And twice the same, bit for bit."""
    force(prefers_onednn)
    layer, (x, factors) = layer_of(size, bias), rows(size, count=count)
    with Watch() as watch:
        actual = outcome(layer(x), x, factors, *layer.parameters())
    if count == ROWS:  # forward, and the gradient of the input
        assert watch.onednn == (2 if prefers_onednn and size in (LARGE, (1024, 512)) else 0)
    exact = [tensor.detach().double().requires_grad_() for tensor in (x, *layer.parameters())]
    expected = outcome(F.linear(*exact), exact[0], factors.double(), *exact[1:])
    again = outcome(layer(x), x, factors, *layer.parameters())
    assert len(actual) == 3 + bias
    for ours, theirs, repeated in zip(actual, expected, again, strict=True):
        assert ours.dtype == torch.float32
        near(ours, theirs)
        assert ours.equal(repeated)


@needs_onednn
def test_only_the_wanted_gradients_are_computed_and_added_up(force: Callable) -> None:
    force(True)
    layer, (x, factors) = layer_of(LARGE, True), rows(LARGE)
    for _ in range(2):
        (layer(x.detach()) * factors).sum().backward()
    near(layer.weight.grad, 2 * factors.T.double() @ x.detach().double())
    near(layer.bias.grad, 2 * factors.sum(dim=0))
    layer.requires_grad_(False)
    (layer(x) * factors).sum().backward()
    near(x.grad, factors @ layer.weight)


@needs_onednn
def test_the_output_may_be_overwritten(force: Callable) -> None:
    # As relu does in feed-forward layers.
    force(True)
    layer, (x, factors) = layer_of(LARGE, True), rows(LARGE)
    in_place = outcome(layer(x).relu_(), x, factors, *layer.parameters())
    expected = outcome(F.linear(x, layer.weight, layer.bias).relu(), x, factors, *layer.parameters())
    for ours, theirs in zip(in_place, expected, strict=True):
        near(ours, theirs)


@pytest.mark.parametrize("prefers_onednn", LIBRARIES)
@pytest.mark.parametrize("bias", [True, False], ids=["bias", "no bias"])
@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_without_gradients_it_is_torchs_own(mode: type, bias: bool, prefers_onednn: bool, force: Callable) -> None:
    force(prefers_onednn)
    layer, (x, _) = layer_of(LARGE, bias), rows(LARGE)
    with_gradient = layer(x).detach()
    with mode(), Watch() as watch:
        y = layer(x)
        assert y.equal(F.linear(x, layer.weight, layer.bias))
    assert watch.onednn == 0
    assert not y.requires_grad
    near(y.clone(), with_gradient)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16], ids=str)
def test_other_number_formats_are_left_to_torch(dtype: torch.dtype, force: Callable) -> None:
    force(True)
    layer, (x, factors) = layer_of(LARGE, True, dtype), rows(LARGE, dtype)
    with Watch() as watch:
        actual = outcome(layer(x), x, factors, *layer.parameters())
        assert linear_without_grad(x.detach(), layer.weight.detach()).dtype == dtype
    assert watch.onednn == 0
    expected = outcome(F.linear(x, layer.weight, layer.bias), x, factors, *layer.parameters())
    assert all(ours.dtype == dtype and ours.equal(theirs) for ours, theirs in zip(actual, expected, strict=True))


def test_autocast_is_left_to_torch(force: Callable) -> None:
    force(True)
    layer, (x, factors) = layer_of(LARGE, True), rows(LARGE)
    with Watch() as watch, torch.autocast("cpu", dtype=torch.bfloat16):
        y = layer(x)
        assert linear_without_grad(x.detach(), layer.weight.detach()).dtype == torch.bfloat16
        expected = F.linear(x, layer.weight, layer.bias)
    assert y.dtype == torch.bfloat16
    assert y.equal(expected)
    gradients = outcome(y, x, factors, *layer.parameters())[1:]
    assert watch.onednn == 0
    assert all(gradient.dtype == torch.float32 for gradient in gradients)


@pytest.mark.parametrize("prefers_onednn", LIBRARIES)
@pytest.mark.parametrize("size", [LARGE, SMALL, (1024, 512)], ids=str)
@pytest.mark.parametrize("bias", [True, False], ids=["bias", "no bias"])
def test_linear_without_grad_accepts_transposed_views(
    size: tuple[int, int], bias: bool, prefers_onednn: bool, force: Callable
) -> None:
    force(prefers_onednn)
    x, factors = (tensor.detach() for tensor in rows(size))
    weight, added = torch.randn(size), torch.randn(size[0]) if bias else None
    with Watch() as watch:
        forward, backward = linear_without_grad(x, weight, added), linear_without_grad(factors, weight.t())
        turned = linear_without_grad(x.t().contiguous().t(), weight.t().contiguous().t(), added)
    assert watch.onednn == (3 if prefers_onednn and size != SMALL else 0)
    exact = x.double() @ weight.double().T + (added.double() if bias else 0)
    near(forward, exact)
    near(turned, exact)
    near(backward, factors.double() @ weight.double())


@pytest.mark.parametrize(
    ("cpuinfo", "prefers"),
    [("vendor_id\t: AuthenticAMD\n", HAS_ONEDNN), ("vendor_id\t: GenuineIntel\n", False), (None, False)],
)
def test_only_amd_processors_prefer_onednn(cpuinfo: str | None, prefers: bool, monkeypatch, tmp_path) -> None:
    file = tmp_path / "cpuinfo"
    if cpuinfo is not None:
        file.write_text(cpuinfo)
    monkeypatch.setattr(linear, "Path", lambda _: file)
    assert linear._prefers_onednn.__wrapped__() == prefers
