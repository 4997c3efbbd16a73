"""Keys and values of attention, and the cache that grows with them in step-by-step decoding.

B sentences   W hypotheses per sentence   H heads   S positions   K = d_model / H   C slots of a cache
"""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class KeyValues:
    """Projected keys and values, each (B, H, S, K)."""

    keys: Tensor
    values: Tensor

    def select(self, rows: Tensor) -> "KeyValues":
        """Select rows of the batch, in any number and order."""
        return KeyValues(self.keys.index_select(0, rows), self.values.index_select(0, rows))


class KeyValueCache:
    """One layer's keys and values of the target so far, in slots shared by all hypotheses of a sentence.

    A step fills one slot per hypothesis. Nothing moves when a hypothesis continues another one: a mask shows each
    hypothesis the slots of its own past (`DecoderState`). The buffers are (B, H, C, K).
    """

    def __init__(self) -> None:
        self.keys = self.values = torch.empty(0)

    @property
    def capacity(self) -> int:
        return self.keys.shape[2] if self.keys.dim() == 4 else 0

    def append(self, used: int, new: KeyValues) -> KeyValues:
        """Write (B, H, W, K) after the `used` slots and return all filled slots (B, H, used + W, K)."""
        end = used + new.keys.shape[2]
        if end > self.capacity:
            self.keys, self.values = (
                _reallocate(buffer, new.keys, used, max(64, 2 * end)) for buffer in (self.keys, self.values)
            )
        self.keys[:, :, used:end] = new.keys
        self.values[:, :, used:end] = new.values
        return KeyValues(self.keys[:, :, :end], self.values[:, :, :end])

    def select_sentences(self, rows: Tensor, used: int) -> None:
        """Keep the given rows of the batch."""
        self.keys, self.values = (
            _reallocate(buffer.index_select(0, rows), buffer[: len(rows)], used, self.capacity)
            for buffer in (self.keys[:, :, :used], self.values[:, :, :used])
        )

    def compact(self, slots: Tensor) -> None:
        """Move slots (B, C') to the front."""
        index = slots[:, None, :, None].expand(-1, self.keys.shape[1], -1, self.keys.shape[3])
        for buffer in (self.keys, self.values):
            buffer[:, :, : slots.shape[1]] = buffer.gather(2, index)


def _reallocate(buffer: Tensor, like: Tensor, used: int, capacity: int) -> Tensor:
    """Copy the used slots into a new buffer of this capacity; its other dimensions are those of `like`."""
    batch, heads, _, width = like.shape
    new = like.new_empty(batch, heads, capacity, width)
    if used:
        new[:, :, :used] = buffer[:, :, :used]
    return new
