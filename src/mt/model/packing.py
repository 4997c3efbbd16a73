"""Sentences without their padding, so that no layer but attention spends time on it.

    B sentences   L positions of the longest   N real tokens   P padding (N + P = B * L)

Linear layers, norms and dropout treat every token alike, so they work on a list of the real ones (N, ...). Attention
needs sentences side by side (B, L, ...); it puts padding in and takes it out again.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

PAD_ID = 0


@dataclass(frozen=True)
class Packing:
    """Where the tokens of a padded batch stand in a list of the real ones.

    Attributes:
        shape: (B, L).
        positions: (N,), each token's place in its sentence; (B * L,) where nothing is padding.
        pad: (B, L), True at padding. This and the next three are None where nothing is padding.
        real: (N,), where in B * L each token stands.
        places: (B * L,), where in the list each position's token stands; anywhere for padding.
        holes: (P,), where in B * L the padding is.
    """

    shape: tuple[int, int]
    positions: Tensor
    pad: Tensor | None = None
    real: Tensor | None = None
    places: Tensor | None = None
    holes: Tensor | None = None

    @classmethod
    def of(cls, tokens: Tensor) -> "Packing":
        """Packs token ids (B, L). On a GPU this waits for all work before it; better do it on the CPU and move it."""
        batch, length = tokens.shape
        pad = tokens == PAD_ID
        if not pad.any():
            return cls.full(batch, length, tokens.device)
        real, holes = (marks.flatten().nonzero()[:, 0] for marks in (~pad, pad))
        places = torch.zeros(batch * length, dtype=torch.int64, device=tokens.device)
        places[real] = torch.arange(len(real), device=tokens.device)
        return cls((batch, length), real % length, pad, real, places, holes)

    @classmethod
    def full(cls, batch: int, length: int, device: torch.device) -> "Packing":
        """The packing of sentences of one length."""
        return cls((batch, length), torch.arange(length, device=device).repeat(batch))

    def to(self, device: torch.device) -> "Packing":
        moved = [None if x is None else x.to(device, non_blocking=True) for x in self._tensors()]
        return Packing(self.shape, *moved)  # type: ignore[arg-type]  # the first of them is never None

    def pack(self, x: Tensor) -> Tensor:
        """Takes padding out: (B, L, ...) to (N, ...)."""
        x = x.flatten(0, 1)
        return x if self.real is None else _Pack.apply(x, self)  # type: ignore[no-untyped-call]

    def unpack(self, x: Tensor) -> Tensor:
        """Puts padding in: (N, D) to (B, L, D). What stands there is arbitrary: nothing may depend on it."""
        x = x if self.real is None else _Unpack.apply(x, self)  # type: ignore[no-untyped-call]
        return x.unflatten(0, self.shape)

    def _tensors(self) -> tuple[Tensor | None, ...]:
        return self.positions, self.pad, self.real, self.places, self.holes


class _Pack(torch.autograd.Function):
    """Both directions of both functions copy whole rows; torch's own gradients would add them up one by one."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, packing: Packing) -> Tensor:
        ctx.packing = packing
        return x.index_select(0, packing.real)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        return grads[0].index_select(0, ctx.packing.places).index_fill_(0, ctx.packing.holes, 0), None


class _Unpack(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, packing: Packing) -> Tensor:
        ctx.packing = packing
        return x.index_select(0, packing.places)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        return grads[0].index_select(0, ctx.packing.real), None
