"""What step-by-step decoding carries along from one target position to the next.

B sentences   W hypotheses a sentence   C slots of the caches   H heads   K width of a head   S source positions
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from mt.model.attention import Cache, KeyValues, added


class Prompt:
    """What a model without an encoder has read before the target: the source, in the first slots of its caches.

    Args:
        caches: of each layer, with the S slots of the source filled.
        shape: (B, S).
        pad: (B, S), True at padding; None where nothing is.

    Attributes:
        lengths: (B,), the tokens of each source; the target's positions run on from there.
        longest: S.
    """

    def __init__(self, caches: list[Cache], shape: Sequence[int], pad: Tensor | None) -> None:
        self.caches = caches
        self.longest = shape[1]
        self.sees = None if pad is None else ~pad[:, None]  # (B, 1, S)
        full = torch.full((shape[0],), self.longest, device=caches[0].keys.device)
        self.lengths = full if pad is None else full - pad.sum(dim=1)


class DecoderState:
    """Keys and values of source and target, and which of the target's each hypothesis descends from.

    Hypotheses that fork share their past: a step fills one slot of the caches a hypothesis, and nothing is copied when
    beams are reordered; only `sees` is. Slots that no hypothesis descends from any more are reclaimed when the caches
    are full.

    Attributes:
        memory: keys and values of the source, one a decoder layer, each (B, H, S, K), for all hypotheses of a sentence;
            none where the source is in the caches.
        memory_mask: (B, 1, 1, S), added to the scores of attention to the source; None where nothing is padding.
        prompt: the source, where it is in the caches.
        caches: keys and values of the target so far, one a layer; those of the prompt before them.
        position: the next target position.
        used: slots filled.
        sees: (B, W, used), True at the slots that a hypothesis descends from; None while each sentence has but one.
    """

    def __init__(
        self, memory: Sequence[KeyValues] = (), memory_mask: Tensor | None = None, prompt: Prompt | None = None
    ) -> None:
        self.memory = memory
        self.memory_mask = memory_mask
        self.prompt = prompt
        self.caches = [Cache() for _ in memory] if prompt is None else prompt.caches
        self.position = 0
        self.used = 0 if prompt is None else prompt.longest
        self.sees: Tensor | None = None if prompt is None else prompt.sees

    def select(self, rows: Tensor | None, origins: Tensor) -> None:
        """Keeps some sentences, and goes on with hypotheses that continue earlier ones.

        Args:
            rows: (B',) of the sentences kept; None keeps all.
            origins: (B', W'), which of its sentence's hypotheses each new one continues.
        """
        if rows is not None:
            self._keep_sentences(rows)
        if self.sees is None:
            if origins.shape[1] == 1:
                return
            self.sees = torch.ones(len(origins), 1, self.used, dtype=torch.bool, device=origins.device)
        self.sees = self.sees.gather(1, origins[:, :, None].expand(-1, -1, self.used))

    def make_room(self, width: int) -> Tensor | None:
        """Reserves slots for the next step, and says what each hypothesis sees: the mask of `SelfAttention.step`."""
        if self.sees is None and width == 1:
            return None
        like = self.memory[0].keys if self.memory else self.caches[0].keys
        if self.sees is None:
            self.sees = torch.ones(len(like), width, self.used, dtype=torch.bool, device=like.device)
        if 0 < self.caches[0].capacity < self.used + width:
            self._reclaim()
        itself = torch.eye(width, dtype=torch.bool, device=self.sees.device).expand(len(like), -1, -1)
        # What a prompt's hypotheses see is the same for all until the first step.
        self.sees = torch.cat([self.sees.expand(-1, width, -1), itself], dim=2)
        return added(~self.sees[:, None], like.dtype)

    def advance(self, width: int) -> None:
        self.position += 1
        self.used += width

    def _keep_sentences(self, rows: Tensor) -> None:
        self.memory = [keys_values.select(rows) for keys_values in self.memory]
        if self.memory_mask is not None:
            self.memory_mask = self.memory_mask[rows]
        if self.prompt is not None:
            self.prompt.lengths = self.prompt.lengths[rows]
        if self.sees is not None:
            self.sees = self.sees[rows]
        for cache in self.caches:
            cache.keep_sentences(rows, self.used)

    def _reclaim(self) -> None:
        """Drops dead slots where that frees half of them; otherwise the caches grow."""
        assert self.sees is not None
        alive = self.sees.any(dim=1)  # (B, C)
        most = int(alive.sum(dim=1).max())
        if 2 * most > self.used:
            return
        slots = alive.int().argsort(dim=1, descending=True, stable=True)[:, :most]
        for cache in self.caches:
            cache.keep_slots(slots)
        self.sees = self.sees.gather(2, slots[:, None].expand(-1, self.sees.shape[1], -1))
        self.used = most
