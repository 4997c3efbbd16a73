"""State of step-by-step decoding, carried from one target position to the next.

B sentences   W hypotheses per sentence   C slots of the caches   H heads   K = d_model / H   S source positions
"""

import math
from collections.abc import Sequence
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


def additive_mask(hidden: Tensor, dtype: torch.dtype) -> Tensor:
    """Return a mask to add to attention scores, built once for all layers: minus infinity where `hidden` is True."""
    return torch.zeros(hidden.shape, dtype=dtype, device=hidden.device).masked_fill_(hidden, -math.inf)


class DecoderState:
    """Keys and values of source and target, and a mask of the slots in each hypothesis's past.

    Hypotheses that fork share their past: a step fills one slot of the caches per hypothesis, and reordering beams
    copies nothing but the mask `visible`. Slots in no hypothesis's past are reclaimed when the caches are full.

    Attributes:
        source: keys and values of the source (B, H, S, K), one per decoder layer; none after a prompt.
        source_mask: (B, 1, 1, S), added to the scores of attention to the source; None if nothing is padding.
        caches: keys and values of the target so far, one per layer; after a prompt, the source's come first.
        prompt_lengths: (B,), source tokens that a decoder-only model has read; the target's positions continue there.
        max_prompt: the largest of them.
        position: the next target position.
        used: slots filled.
        visible: (B, W, used), True at the slots in a hypothesis's past; None while each sentence has only one.
    """

    def __init__(self, source: Sequence[KeyValues] = (), source_mask: Tensor | None = None) -> None:
        self.source = source
        self.source_mask = source_mask
        self.caches = [KeyValueCache() for _ in source]
        self.prompt_lengths: Tensor | None = None
        self.max_prompt = self.position = self.used = 0
        self.visible: Tensor | None = None

    @classmethod
    def after_prompt(cls, caches: list[KeyValueCache], length: int, pad: Tensor | None) -> "DecoderState":
        """Return the state of a decoder-only model that has read a source (B, S) of `length` S into its caches.

        `pad` (B, S) is True at padding; None if nothing is padding.
        """
        state, keys = cls(), caches[0].keys
        state.caches, state.used, state.max_prompt = caches, length, length
        state.prompt_lengths = torch.full((len(keys),), length, device=keys.device)
        if pad is not None:
            state.prompt_lengths = state.prompt_lengths - pad.sum(dim=1)
            state.visible = ~pad[:, None]
        return state

    def select(self, rows: Tensor | None, origins: Tensor) -> None:
        """Keep some sentences, and continue some hypotheses.

        Args:
            rows: (B',), the sentences to keep; None keeps all.
            origins: (B', W'), the hypothesis of its sentence that each new one continues.
        """
        if rows is not None:
            self.source = [key_values.select(rows) for key_values in self.source]
            if self.source_mask is not None:
                self.source_mask = self.source_mask[rows]
            if self.prompt_lengths is not None:
                self.prompt_lengths = self.prompt_lengths[rows]
            if self.visible is not None:
                self.visible = self.visible[rows]
            for cache in self.caches:
                cache.select_sentences(rows, self.used)
        if self.visible is None:
            if origins.shape[1] == 1:
                return
            self.visible = torch.ones(len(origins), 1, self.used, dtype=torch.bool, device=origins.device)
        self.visible = self.visible.gather(1, origins[:, :, None].expand(-1, -1, self.used))

    def positions(self) -> Tensor:
        """Return the next target position: (1,), or after a prompt (B,), since there the target follows the source."""
        if self.prompt_lengths is not None:
            return self.prompt_lengths + self.position
        return torch.full((1,), self.position, device=self.source[0].keys.device)

    def reserve(self, width: int) -> Tensor | None:
        """Reserve slots for the next step of W = `width` hypotheses, and return the mask for `SelfAttention.step`."""
        if self.visible is None and width == 1:
            return None
        like = self.source[0].keys if self.source else self.caches[0].keys
        if self.visible is None:
            self.visible = torch.ones(len(like), width, self.used, dtype=torch.bool, device=like.device)
        if 0 < self.caches[0].capacity < self.used + width:
            self._reclaim()
        own_slot = torch.eye(width, dtype=torch.bool, device=self.visible.device).expand(len(like), -1, -1)
        # After a prompt, the hypotheses share one mask until the first step.
        self.visible = torch.cat([self.visible.expand(-1, width, -1), own_slot], dim=2)
        return additive_mask(~self.visible[:, None], like.dtype)

    def advance(self, width: int) -> None:
        """Count the position and the slots of a step."""
        self.position += 1
        self.used += width

    def _reclaim(self) -> None:
        """Drop the slots in no hypothesis's past if they are half of all; otherwise the caches will grow."""
        assert self.visible is not None
        in_use = self.visible.any(dim=1)  # (B, C)
        n_slots = int(in_use.sum(dim=1).max())
        if 2 * n_slots > self.used:
            return
        slots = in_use.int().argsort(dim=1, descending=True, stable=True)[:, :n_slots]
        for cache in self.caches:
            cache.compact(slots)
        self.visible = self.visible.gather(2, slots[:, None].expand(-1, self.visible.shape[1], -1))
        self.used = n_slots
