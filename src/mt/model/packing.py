"""Sentences without their padding, so that no layer but attention spends time on it.

    B sentences   L positions of the longest   N real tokens   P padding (N + P = B * L)

Linear layers, norms and dropout treat every token alike, so they work on a list of the real ones (N, ...). Attention
needs sentences side by side (B, L, ...); it puts padding in and takes it out again.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

PAD_ID = 0


def send(x: Tensor, device: torch.device) -> Tensor:
    """Moves a CPU tensor to a device; a GPU fetches it when its work so far is done, and nobody waits."""
    if device.type == "cuda":
        return x.pin_memory().to(device, non_blocking=True)
    return x.to(device)  # MPS would go on reading memory that is given to others by then


class Padding(NamedTuple):
    """Where padding is in a batch (B, L).

    Attributes:
        pad: (B, L), True at padding.
        real: (N,), where in B * L each real token stands.
        places: (B * L,), where in the list of real tokens each position's token stands; anywhere for padding.
        holes: (P,), where in B * L the padding is.
    """

    pad: Tensor
    real: Tensor
    places: Tensor
    holes: Tensor


@dataclass(frozen=True)
class Packing:
    """How the tokens of a batch are listed without padding.

    Attributes:
        shape: (B, L).
        positions: (N,), each token's place in its sentence.
        padding: None where all sentences are equally long.
    """

    shape: tuple[int, int]
    positions: Tensor
    padding: Padding | None = None

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
        return cls((batch, length), real % length, Padding(pad, real, places, holes))

    @classmethod
    def full(cls, batch: int, length: int, device: torch.device) -> "Packing":
        """The packing of sentences of one length."""
        return cls((batch, length), torch.arange(length, device=device).repeat(batch))

    @property
    def pad(self) -> Tensor | None:
        """(B, L), True at padding; None where there is none."""
        return None if self.padding is None else self.padding.pad

    def to(self, device: torch.device) -> "Packing":
        padding = None if self.padding is None else Padding(*(send(x, device) for x in self.padding))
        return Packing(self.shape, send(self.positions, device), padding)

    def pack(self, x: Tensor) -> Tensor:
        """Takes padding out: (B, L, ...) to (N, ...)."""
        x = x.flatten(0, 1)
        if self.padding is not None:
            x = _Pack.apply(x, self.padding)  # type: ignore[no-untyped-call]
        return x

    def unpack(self, x: Tensor) -> Tensor:
        """Puts padding in: (N, D) to (B, L, D). What stands there is arbitrary: nothing may depend on it."""
        if self.padding is not None:
            x = _Unpack.apply(x, self.padding)  # type: ignore[no-untyped-call]
        return x.view(*self.shape, -1)


class _Pack(torch.autograd.Function):
    """Here and in the other, both directions copy whole rows; torch's own gradients would add them up one by one."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, padding: Padding) -> Tensor:
        ctx.padding = padding
        return x.index_select(0, padding.real)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        return grads[0].index_select(0, ctx.padding.places).index_fill_(0, ctx.padding.holes, 0), None


class _Unpack(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, padding: Padding) -> Tensor:
        ctx.padding = padding
        return x.index_select(0, padding.places)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        return grads[0].index_select(0, ctx.padding.real), None
