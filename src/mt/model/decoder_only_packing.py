"""Source and target of each sentence as one sequence, without padding between them.

B sentences   S, T source and target positions   M, N real tokens of source and target
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from mt.model.packing import Packing, Padding, sentence_starts


@dataclass(frozen=True)
class Joined:
    """Two packed lists of tokens joined into one.

    Attributes:
        packing: of the joined sequences (B, S + T), whose padding is all at the end.
        source: (M,), the index in the joined list of each source token.
        target: (N,), the same of each target token.
        order: (M + N,), the index in source tokens followed by target tokens of each joined token.
        source_lengths: (B,).
    """

    packing: Packing
    source: Tensor
    target: Tensor
    order: Tensor
    source_lengths: Tensor


def join(src: Packing, tgt: Packing) -> Joined:
    """Append each target to its source. All sizes are known, so nothing synchronises with a GPU."""
    (src_rows, src_lengths), (tgt_rows, tgt_lengths) = _rows_and_lengths(src), _rows_and_lengths(tgt)
    lengths = src_lengths + tgt_lengths
    starts = lengths.cumsum(0) - lengths
    tgt_positions = src_lengths[tgt_rows] + tgt.positions
    source, target = starts[src_rows] + src.positions, starts[tgt_rows] + tgt_positions
    joined = torch.cat([source, target])
    order = torch.empty_like(joined).index_copy_(0, joined, torch.arange(len(joined), device=joined.device))
    positions = torch.cat([src.positions, tgt_positions])[order]
    shape = batch, length = src.shape[0], src.shape[1] + tgt.shape[1]
    padding = None
    if src.padding is not None or tgt.padding is not None:
        real = torch.cat([src_rows, tgt_rows])[order] * length + positions
        pad = torch.arange(length, device=real.device) >= lengths[:, None]
        empty = torch.nonzero_static(pad.flatten(), size=batch * length - len(real))[:, 0]
        padding = Padding.of(pad, real, empty)
    cumulative = None if src.starts is None else sentence_starts(lengths)
    return Joined(Packing(shape, positions, padding, cumulative), source, target, order, src_lengths)


def _rows_and_lengths(packing: Packing) -> tuple[Tensor, Tensor]:
    """Return the sentence of each real token (N,), and the number of tokens in each sentence (B,)."""
    batch, length = packing.shape
    if packing.padding is not None:
        return packing.padding.real // length, length - packing.padding.pad.sum(dim=1)
    device = packing.positions.device
    return torch.arange(batch * length, device=device) // length, torch.full((batch,), length, device=device)
