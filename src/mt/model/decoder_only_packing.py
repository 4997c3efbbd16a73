"""Source and target of each sentence as one sequence, without padding between them.

B sentences   S, T source and target positions   M, N real tokens among them
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from mt.model.packing import Packing, Padding


@dataclass(frozen=True)
class Joined:
    """How two packed lists of tokens become one.

    Attributes:
        packing: of the joined sequences (B, S + T), whose padding is all at the end.
        source: (M,), where in the joined list each source token stands.
        target: (N,), the same of each target token.
        order: (M + N,), the joined list as places in the source's list followed by the target's.
        source_lengths: (B,).
    """

    packing: Packing
    source: Tensor
    target: Tensor
    order: Tensor
    source_lengths: Tensor


def join(src: Packing, tgt: Packing) -> Joined:
    """Puts each target behind its source. Nothing here waits for a GPU: all sizes are known."""
    (src_rows, src_lengths), (tgt_rows, tgt_lengths) = _rows_and_lengths(src), _rows_and_lengths(tgt)
    lengths = src_lengths + tgt_lengths
    begins = lengths.cumsum(0) - lengths
    tgt_positions = src_lengths[tgt_rows] + tgt.positions
    source, target = begins[src_rows] + src.positions, begins[tgt_rows] + tgt_positions
    places = torch.cat([source, target])
    order = torch.empty_like(places).index_copy_(0, places, torch.arange(len(places), device=places.device))
    positions = torch.cat([src.positions, tgt_positions])[order]
    shape = (src.shape[0], src.shape[1] + tgt.shape[1])
    padding = None
    if src.padding is not None or tgt.padding is not None:
        rows = torch.cat([src_rows, tgt_rows])[order]
        padding = _padding(shape, lengths, real=rows * shape[1] + positions)
    return Joined(Packing(shape, positions, padding), source, target, order, src_lengths)


def _rows_and_lengths(packing: Packing) -> tuple[Tensor, Tensor]:
    """The sentence of each real token, and the tokens of each sentence (B,)."""
    batch, length = packing.shape
    if packing.padding is not None:
        return packing.padding.real // length, length - packing.padding.pad.sum(dim=1)
    device = packing.positions.device
    return torch.arange(batch * length, device=device) // length, torch.full((batch,), length, device=device)


def _padding(shape: tuple[int, int], lengths: Tensor, real: Tensor) -> Padding:
    batch, length = shape
    pad = torch.arange(length, device=real.device) >= lengths[:, None]
    places = torch.zeros(batch * length, dtype=torch.int64, device=real.device)
    places[real] = torch.arange(len(real), device=real.device)
    holes = torch.nonzero_static(pad.flatten(), size=batch * length - len(real))[:, 0]
    return Padding(pad, real, places, holes)
