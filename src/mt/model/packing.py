"""Packed sentences: the tokens of a batch in one list, without padding.

    B sentences   L positions of the longest   N real tokens   P padding (N + P = B * L)

Linear layers, norms and dropout treat every token alike, so they work on the real tokens (N, ...). Attention needs
sentences side by side (B, L, ...), so it unpacks inputs and packs the output, unless it has a kernel for packed ones.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from mt.model.positions import SinusoidalPositions
from mt.system.devices import has_flash_attention

PAD_ID = 0
_ALIGNMENT = 64  # bytes, as torch's own allocations


class Padding(NamedTuple):
    """Places of padding in a batch (B, L).

    Attributes:
        pad: (B, L), True at padding.
        real: (N,), the position in B * L of each real token.
        packed: (B * L,), the index among the real tokens of each position's token; arbitrary at padding.
        empty: (P,), the positions in B * L of padding.
    """

    pad: Tensor
    real: Tensor
    packed: Tensor
    empty: Tensor

    @classmethod
    def of(cls, pad: Tensor, real: Tensor, empty: Tensor) -> "Padding":
        """Derive `packed` from the other three."""
        packed = torch.zeros(pad.numel(), dtype=torch.int64, device=pad.device)
        packed[real] = torch.arange(len(real), device=pad.device)
        return cls(pad, real, packed, empty)


@dataclass(frozen=True)
class Packing:
    """The real tokens of a batch, sentence after sentence.

    Attributes:
        shape: (B, L).
        positions: (N,), each token's position in its sentence.
        padding: None if all sentences are equally long.
        starts: (B + 1,), int32, the index of each sentence's first token, and N; only on devices that have attention
            for packed sentences.
        rotation: (N, K), the sines and cosines of each token's position; None without rotary positions.
    """

    shape: tuple[int, int]
    positions: Tensor
    padding: Padding | None = None
    starts: Tensor | None = None
    rotation: Tensor | None = None

    @classmethod
    def of(cls, tokens: Tensor, used_on: torch.device | None = None) -> "Packing":
        """Find the padding of token ids (B, L).

        Args:
            tokens: on the CPU, since on a GPU this synchronises.
            used_on: the device that `send` will copy the packing to; None: that of the tokens.
        """
        batch, length = tokens.shape
        pad = tokens == PAD_ID
        starts = sentence_starts((~pad).sum(dim=1)) if has_flash_attention(used_on or tokens.device) else None
        if not pad.any():
            return cls((batch, length), torch.arange(length, device=tokens.device).repeat(batch), None, starts)
        real, empty = (marks.flatten().nonzero()[:, 0] for marks in (~pad, pad))
        return cls((batch, length), real % length, Padding.of(pad, real, empty), starts)

    @property
    def pad(self) -> Tensor | None:
        """(B, L), True at padding; None if there is none."""
        return None if self.padding is None else self.padding.pad

    @property
    def tensors(self) -> list[Tensor]:
        """All tensors, in the order that `with_tensors` takes them."""
        return [x for x in (self.positions, *(self.padding or ()), self.starts) if x is not None]

    def with_tensors(self, tensors: Iterator[Tensor]) -> "Packing":
        """Return the same packing of copies of its tensors."""
        positions = next(tensors)
        padding = None if self.padding is None else Padding(*islice(tensors, len(self.padding)))
        return Packing(self.shape, positions, padding, None if self.starts is None else next(tensors))

    def rotated(self, rotary: SinusoidalPositions | None) -> "Packing":
        """Return the same packing with the rotation of its positions, unless `rotary` is None."""
        return self if rotary is None else replace(self, rotation=rotary(self.positions, self.shape[1]))

    def pack(self, x: Tensor) -> Tensor:
        """Remove padding: (B, L, ...) to (N, ...)."""
        x = x.flatten(0, 1)
        if self.padding is not None:
            _, real, packed, empty = self.padding
            # A compiler would make separate graphs for zero and for one position in `empty`.
            empty = self.padding.pad.flatten() if torch.compiler.is_compiling() else empty
            x = _Pack.apply(x, real, packed, empty)  # type: ignore[no-untyped-call]
        return x

    def unpack(self, x: Tensor) -> Tensor:
        """Restore padding: (N, D) to (B, L, D). Vectors at padding are arbitrary: nothing may depend on them."""
        if self.padding is not None:
            x = _Unpack.apply(x, self.padding.packed, self.padding.real)  # type: ignore[no-untyped-call]
        return x.view(*self.shape, -1)


def send(
    tokens: Sequence[Tensor], packings: Sequence[Packing], device: torch.device
) -> tuple[list[Tensor], list[Packing]]:
    """Copy token ids and packings from the CPU to a device; to a GPU all at once, without waiting."""
    tensors = [*tokens, *(x for packing in packings for x in packing.tensors)]
    # On MPS an asynchronous copy could read memory that is in use again.
    sent = iter(_send_as_one(tensors, device) if device.type == "cuda" else [x.to(device) for x in tensors])
    return list(islice(sent, len(tokens))), [packing.with_tensors(sent) for packing in packings]


def _send_as_one(tensors: Sequence[Tensor], device: torch.device) -> list[Tensor]:
    """Copy tensors to a device through one pinned buffer; return views of the copy."""
    sizes = [-(-x.nbytes // _ALIGNMENT) * _ALIGNMENT for x in tensors]
    buffer = torch.empty(sum(sizes), dtype=torch.uint8, pin_memory=True)
    for x, part in zip(tensors, torch.split(buffer, sizes), strict=True):
        _view_as(x, part).copy_(x)
    sent = torch.split(buffer.to(device, non_blocking=True), sizes)
    return [_view_as(x, part) for x, part in zip(tensors, sent, strict=True)]


def _view_as(x: Tensor, part: Tensor) -> Tensor:
    """View the first bytes of `part` as a tensor like x."""
    return part[: x.nbytes].view(x.dtype).view(x.shape)


def sentence_starts(lengths: Tensor) -> Tensor:
    """Return the index of each sentence's first token, and the number of all tokens (B + 1,), for lengths (B,)."""
    return F.pad(lengths.cumsum(0), (1, 0)).int()


class _Pack(torch.autograd.Function):
    """Row selection whose gradient, like `_Unpack`'s, is a selection too; torch's own gradient adds rows one by one."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, real: Tensor, packed: Tensor, empty: Tensor) -> Tensor:
        ctx.packed, ctx.empty = packed, empty
        return x.index_select(0, real)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        grad = grads[0].index_select(0, ctx.packed)
        if ctx.empty.dtype == torch.bool:
            return grad.masked_fill_(ctx.empty[:, None], 0), None, None, None
        return grad.index_fill_(0, ctx.empty, 0), None, None, None


class _Unpack(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, packed: Tensor, real: Tensor) -> Tensor:
        ctx.real = real
        return x.index_select(0, packed)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        return grads[0].index_select(0, ctx.real), None, None
