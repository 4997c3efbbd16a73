"""Linear layers, on a CPU computed by the faster of the two matrix libraries in torch.

In single precision torch uses MKL. On AMD processors oneDNN, which torch uses for other number formats, takes about a
tenth less time for large products; an operator of torch calls it.

    N rows   I, O features in and out
"""

from functools import cache
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

_MIN_FEATURES = 512  # below, oneDNN saves less time than it takes to prepare for a new number of rows


class Linear(nn.Linear):
    """torch's linear layer, for lists of rows (N, I).

    Attributes:
        parts: the matrices of equal size that the weight joins for speed.
        gain: of the initial weights of joined matrices.
    """

    def __init__(
        self, in_features: int, out_features: int, bias: bool = True, parts: int = 1, gain: float = 1.0, **kwargs: Any
    ) -> None:
        super().__init__(in_features, out_features, bias, **kwargs)
        self.parts, self.gain = parts, gain

    def forward(self, x: Tensor) -> Tensor:
        # Decoding has too few rows to profit, and a compiler fuses torch's own operator better.
        if torch.is_grad_enabled() and not torch.compiler.is_compiling() and _use_onednn(x, self.weight):
            y: Tensor = _OneDnnLinear.apply(x, self.weight, self.bias)  # type: ignore[no-untyped-call]
            return y
        return super().forward(x)


def linear_without_grad(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return x (N, I) times the transposed weight (O, I), plus bias (O,), without recording a gradient."""
    if _use_onednn(x, weight):
        y: Tensor = torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")
        return y
    return F.linear(x, weight, bias)


class _OneDnnLinear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.has_bias = bias is not None
        return linear_without_grad(x, weight, bias)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        x, weight = ctx.saved_tensors
        grad_bias = grads[0].sum(dim=0) if ctx.has_bias else None
        # The weight's gradient is a sum over many rows, at which MKL is as fast.
        return linear_without_grad(grads[0], weight.t()), grads[0].t() @ x, grad_bias


def _use_onednn(x: Tensor, weight: Tensor) -> bool:
    fp32 = x.dtype == weight.dtype == torch.float32 and not torch.is_autocast_enabled("cpu")
    return x.device.type == "cpu" and fp32 and min(weight.shape) >= _MIN_FEATURES and _prefers_onednn()


@cache
def _prefers_onednn() -> bool:
    """Return True on AMD processors; a measurement could differ after a restart and change the last bits."""
    try:
        amd = "AuthenticAMD" in Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:  # not Linux
        return False
    return amd and hasattr(torch.ops.mkldnn, "_linear_pointwise")
