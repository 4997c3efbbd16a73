"""Multi-head attention on torch's scaled dot-product kernel, and the caches of step-by-step decoding.

B batch   T queries   S keys   N, M real tokens of both sides   D d_model   H heads   K = D / H
W hypotheses a sentence   C slots of a cache
"""

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mt.config.model import ModelConfig
from mt.model.linear import Linear
from mt.model.packing import Packing


def visible(pad: Tensor | None) -> Tensor | None:
    """Turns padding marks into the mask that `scaled_dot_product_attention` wants.

    Here and in `added` the two conventions meet: ours is True at padding, torch's is True where a query may look.

    Args:
        pad: (B, S), True at padding; None where nothing is padding.

    Returns:
        (B, 1, 1, S), True where every query and head may look, or None.
    """
    return None if pad is None else ~pad[:, None, None, :]


def added(hidden: Tensor, dtype: torch.dtype) -> Tensor:
    """What decoding adds to attention scores, made once for all layers: minus infinity where `hidden` is True."""
    return torch.zeros(hidden.shape, dtype=dtype, device=hidden.device).masked_fill_(hidden, -math.inf)


@dataclass(frozen=True)
class KeyValues:
    """Projected keys and values, each (B, H, S, K)."""

    keys: Tensor
    values: Tensor

    def select(self, rows: Tensor) -> "KeyValues":
        """Takes rows of the batch (any number, any order)."""
        return KeyValues(self.keys.index_select(0, rows), self.values.index_select(0, rows))


class Cache:
    """A layer's keys and values of the target so far, in slots that all hypotheses of a sentence share.

    A step fills one slot a hypothesis. Nothing is moved when a hypothesis continues another one: each looks at the
    slots it descends from (`DecoderState`). Buffers are (B, H, C, K) with room for C slots.
    """

    def __init__(self) -> None:
        self.keys = self.values = torch.empty(0)

    @property
    def capacity(self) -> int:
        return self.keys.shape[2] if self.keys.dim() == 4 else 0

    def extend(self, used: int, new: KeyValues) -> KeyValues:
        """Writes (B, H, W, K) behind the `used` slots and returns those of all slots (B, H, used + W, K)."""
        end = used + new.keys.shape[2]
        if end > self.capacity:
            self.keys, self.values = (
                _moved(buffer, new.keys, used, max(64, 2 * end)) for buffer in (self.keys, self.values)
            )
        self.keys[:, :, used:end] = new.keys
        self.values[:, :, used:end] = new.values
        return KeyValues(self.keys[:, :, :end], self.values[:, :, :end])

    def keep_sentences(self, rows: Tensor, used: int) -> None:
        """Keeps rows of the batch."""
        self.keys, self.values = (
            _moved(buffer.index_select(0, rows), buffer[: len(rows)], used, self.capacity)
            for buffer in (self.keys[:, :, :used], self.values[:, :, :used])
        )

    def keep_slots(self, slots: Tensor) -> None:
        """Moves slots (B, C') to the front."""
        index = slots[:, None, :, None].expand(-1, self.keys.shape[1], -1, self.keys.shape[3])
        for buffer in (self.keys, self.values):
            buffer[:, :, : slots.shape[1]] = buffer.gather(2, index)


def _moved(buffer: Tensor, like: Tensor, used: int, capacity: int) -> Tensor:
    """A larger buffer with the same first slots."""
    batch, heads, _, width = like.shape
    moved = like.new_empty(batch, heads, capacity, width)
    if used:
        moved[:, :, :used] = buffer[:, :, :used]
    return moved


def has_bias(config: ModelConfig) -> bool:
    """Whether the projections of attention have one."""
    return config.bias if config.attention_bias is None else config.attention_bias


class SelfAttention(nn.Module):
    """Every position attends to the positions of its own sequence ("Attention Is All You Need", section 3.2).

    One matrix projects queries, keys and values at once.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        d_model, bias = config.d_model, has_bias(config)
        self.n_heads = config.n_heads
        self.dropout = config.attention_dropout
        self.in_proj = Linear(d_model, 3 * d_model, bias=bias)
        self.out_proj = Linear(d_model, d_model, bias=bias)

    def forward(
        self,
        x: Tensor,
        packing: Packing,
        causal: bool,
        mask: Tensor | None = None,
        cache: Cache | None = None,
    ) -> Tensor:
        """Looks at a whole sequence.

        Args:
            x: (N, D), packed sentences (B, T).
            packing: how.
            causal: no position sees a later one, so padding at the end needs no mask.
            mask: (B, 1, T, T), True where a query may look, if neither `causal` nor the padding says it.
            cache: an empty one, to be filled with the keys and values.
        """
        queries, seen = self._project(x, packing)
        if mask is None and not causal:
            mask = visible(packing.pad)
        if cache is not None:
            cache.extend(0, seen)
        heads = attend(queries, seen, mask, causal, self.dropout * self.training)
        joined: Tensor = self.out_proj(packing.pack(heads))
        return joined

    def weights(self, x: Tensor, packing: Packing, causal: bool, mask: Tensor | None = None, *_: object) -> Tensor:
        """How much each position attends to each, (B, H, T, T); arguments as of `forward`."""
        queries, seen = self._project(x, packing)
        if causal:
            mask = torch.ones(queries.shape[2], queries.shape[2], dtype=torch.bool, device=x.device).tril()
        elif mask is None:
            mask = visible(packing.pad)
        return weigh(queries, seen.keys, mask)

    def _project(self, x: Tensor, packing: Packing) -> tuple[Tensor, KeyValues]:
        projected = packing.unpack(self.in_proj(x)).chunk(3, dim=-1)
        queries, keys, values = (split_heads(part, self.n_heads) for part in projected)
        return queries, KeyValues(keys, values)

    def step(self, x: Tensor, cache: Cache, used: int, mask: Tensor | None) -> Tensor:
        """One decoding step of W hypotheses a sentence.

        Args:
            x: (B * W, D), the hypotheses of a sentence next to one another.
            cache: its slots; these W are added.
            used: slots filled so far.
            mask: added to the attention scores, (B, 1, W, used + W); None where every hypothesis sees all slots.
        """
        batch = len(x) if mask is None else len(mask)
        projected = self.in_proj(x).view(batch, len(x) // batch, 3, self.n_heads, -1)
        queries, keys, values = projected.permute(2, 0, 3, 1, 4)  # (B, H, W, K) each
        seen = cache.extend(used, KeyValues(keys, values))
        joined: Tensor = self.out_proj(attend_masked(queries, seen, mask).flatten(0, 1))
        return joined


class CrossAttention(nn.Module):
    """Target positions attend to the encoder's output."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        d_model, bias = config.d_model, has_bias(config)
        self.n_heads = config.n_heads
        self.dropout = config.attention_dropout
        self.q_proj = Linear(d_model, d_model, bias=bias)
        self.kv_proj = Linear(d_model, 2 * d_model, bias=bias)
        self.out_proj = Linear(d_model, d_model, bias=bias)

    def project(self, memory: Tensor, src: Packing) -> KeyValues:
        """Keys and values of the encoder's output (M, D); decoding computes them once a sentence."""
        keys, values = src.unpack(self.kv_proj(memory)).chunk(2, dim=-1)
        return KeyValues(split_heads(keys, self.n_heads), split_heads(values, self.n_heads))

    def forward(self, x: Tensor, tgt: Packing, memory: KeyValues, memory_pad: Tensor | None) -> Tensor:
        """Args: x (N, D), packed; memory from `project`; memory_pad (B, S), True at padding."""
        queries = split_heads(tgt.unpack(self.q_proj(x)), self.n_heads)
        heads = attend(queries, memory, visible(memory_pad), False, self.dropout * self.training)
        joined: Tensor = self.out_proj(tgt.pack(heads))
        return joined

    def weights(self, x: Tensor, tgt: Packing, memory: KeyValues, memory_pad: Tensor | None) -> Tensor:
        """How much each target position attends to each source position, (B, H, T, S); arguments as of `forward`."""
        queries = split_heads(tgt.unpack(self.q_proj(x)), self.n_heads)
        return weigh(queries, memory.keys, visible(memory_pad))

    def step(self, x: Tensor, memory: KeyValues, mask: Tensor | None) -> Tensor:
        """One decoding step: x (B * W, D), the hypotheses of a sentence as queries side by side, so that the source is
        not copied for each; mask (B, 1, 1, S), added to the attention scores."""
        queries = split_heads(self.q_proj(x).view(len(memory.keys), -1, x.shape[1]), self.n_heads)
        joined: Tensor = self.out_proj(attend_masked(queries, memory, mask).flatten(0, 1))
        return joined


def split_heads(x: Tensor, n_heads: int) -> Tensor:
    batch, length, d_model = x.shape
    return x.view(batch, length, n_heads, d_model // n_heads).transpose(1, 2)  # (B, H, T, K)


def weigh(queries: Tensor, keys: Tensor, mask: Tensor | None) -> Tensor:
    """softmax(q k' / sqrt(K)), (B, H, T, S): what `attend` does not show."""
    scores = queries @ keys.transpose(2, 3) / math.sqrt(queries.shape[3])
    if mask is not None:
        scores = scores + added(~mask, scores.dtype)
    return scores.softmax(dim=-1)


def attend(queries: Tensor, memory: KeyValues, mask: Tensor | None, causal: bool, dropout: float) -> Tensor:
    """softmax(q k' / sqrt(K)) v over all heads, heads joined again: (B, H, T, K) -> (B, T, D)."""
    if queries.device.type == "cpu" and queries.dtype == torch.bfloat16:
        # Torch's kernel for CPUs takes several times as long in bf16.
        memory = KeyValues(memory.keys.float(), memory.values.float())
        with torch.autocast("cpu", enabled=False):
            return attend(queries.float(), memory, mask, causal, dropout).bfloat16()
    heads = F.scaled_dot_product_attention(
        queries, memory.keys, memory.values, attn_mask=mask, is_causal=causal, dropout_p=dropout
    )
    return heads.transpose(1, 2).flatten(2)  # (B, T, D)


def attend_masked(queries: Tensor, memory: KeyValues, mask: Tensor | None) -> Tensor:
    """The same with a mask that is added to the scores: (B, H, W, K) -> (B, W, D)."""
    heads = F.scaled_dot_product_attention(queries, memory.keys, memory.values, attn_mask=mask)
    return heads.transpose(1, 2).flatten(2)  # (B, W, D)
