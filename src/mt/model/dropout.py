"""Dropout that draws one random byte per element on a CPU."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Dropout(nn.Module):
    """Zeroes elements with probability p and scales the others by 1 / (1 - p); on a CPU, by `byte_dropout`.

    A compiler fuses torch's own dropout with its neighbours.
    """

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = p

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or self.p == 0:
            return x
        if x.device.type == "cpu" and not torch.compiler.is_compiling():
            return byte_dropout(x, self.p)
        return F.dropout(x, self.p)


def byte_dropout(x: Tensor, p: float) -> Tensor:
    """Apply dropout with p rounded to a multiple of 1/256 (0.3 to 0.3008), and the scale of the rounded p.

    torch's own draws one random float per element, which on a CPU costs more than the layer before it.
    """
    threshold = min(round(p * 256), 255)
    words = torch.empty((x.numel() + 7) // 8, dtype=torch.int64)
    words.random_(-(2**63), None)  # all 64 bits
    random_bytes = words.view(torch.uint8)[: x.numel()].view_as(x)
    # The comparison writes floats: by way of booleans it takes six times as long.
    keep = torch.ge(random_bytes, threshold, out=torch.empty_like(x))
    return x * keep.mul_(256 / (256 - threshold))
