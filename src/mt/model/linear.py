"""Linear layers, computed by the faster of the two libraries for matrix products that torch's CPU builds carry.

In single precision torch asks MKL. On AMD's processors oneDNN, which torch uses for other number formats, needs about
a tenth less time for large products; torch reaches it through an operator of its own.

    N rows   I, O features in and out
"""

from functools import cache
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

_LARGE = 512  # with fewer features on a side it gains less than it needs to prepare for a new number of rows


def product(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x (N, I) times the transposed weight (O, I), plus bias (O,); carries no gradient."""
    if _suits_onednn(x, weight):
        y: Tensor = torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")
        return y
    return F.linear(x, weight, bias)


class Linear(nn.Linear):
    """torch's linear layer, for lists of rows (N, I)."""

    def forward(self, x: Tensor) -> Tensor:
        # Decoding has few rows, which gain nothing; and a compiler knows best what it can join with a product.
        if torch.is_grad_enabled() and not torch.compiler.is_compiling() and _suits_onednn(x, self.weight):
            y: Tensor = _Product.apply(x, self.weight, self.bias)  # type: ignore[no-untyped-call]
            return y
        return super().forward(x)


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.has_bias = bias is not None
        return product(x, weight, bias)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        x, weight = ctx.saved_tensors
        # The weight's gradient is a sum over many rows, which MKL does as fast.
        return product(grads[0], weight.t()), grads[0].t() @ x, grads[0].sum(dim=0) if ctx.has_bias else None


def _suits_onednn(x: Tensor, weight: Tensor) -> bool:
    in_fp32 = x.dtype == weight.dtype == torch.float32 and not torch.is_autocast_enabled("cpu")
    return x.device.type == "cpu" and in_fp32 and min(weight.shape) >= _LARGE and _prefers_onednn()


@cache
def _prefers_onednn() -> bool:
    """True on AMD's processors. Measuring instead could choose otherwise after a restart, and change the last bits."""
    try:
        amd = "AuthenticAMD" in Path("/proc/cpuinfo").read_text()
    except OSError:  # not Linux
        return False
    return amd and hasattr(torch.ops.mkldnn, "_linear_pointwise")
