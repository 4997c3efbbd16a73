"""Multi-head attention on torch's scaled dot-product kernel, and the caches of step-by-step decoding.

B batch   T queries   S keys   N, M real tokens of both sides   D d_model   H heads   K = D / H
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mt.model.linear import Linear
from mt.model.packing import Packing


def visible(pad: Tensor | None) -> Tensor | None:
    """Turns padding marks into the mask that `scaled_dot_product_attention` wants.

    This is the only place where the two conventions meet: ours is True at padding, torch's is True where a query may
    look.

    Args:
        pad: (B, S), True at padding; None where nothing is padding.

    Returns:
        (B, 1, 1, S), True where every query and head may look, or None.
    """
    return None if pad is None else ~pad[:, None, None, :]


@dataclass(frozen=True)
class KeyValues:
    """Projected keys and values, each (B, H, S, K)."""

    keys: Tensor
    values: Tensor

    def select(self, rows: Tensor) -> "KeyValues":
        """Takes rows of the batch (any number, any order)."""
        return KeyValues(self.keys.index_select(0, rows), self.values.index_select(0, rows))


class Cache:
    """The keys and values of a layer's target positions so far, one more with every decoding step."""

    def __init__(self) -> None:
        self._past: KeyValues | None = None

    def extend(self, new: KeyValues) -> KeyValues:
        """Appends the newest position's (B, H, 1, K) and returns those of all positions (B, H, T, K)."""
        if self._past is not None:
            keys = torch.cat([self._past.keys, new.keys], dim=2)
            new = KeyValues(keys, torch.cat([self._past.values, new.values], dim=2))
        self._past = new
        return new

    def select(self, rows: Tensor) -> None:
        """Keeps rows of the batch (any number, any order)."""
        if self._past is not None:
            self._past = self._past.select(rows)


class SelfAttention(nn.Module):
    """Every position attends to the positions of its own sequence ("Attention Is All You Need", section 3.2).

    One matrix projects queries, keys and values at once.
    """

    def __init__(self, d_model: int, n_heads: int, dropout: float, bias: bool) -> None:
        super().__init__()
        self.n_heads = n_heads
        self.dropout = dropout
        self.in_proj = Linear(d_model, 3 * d_model, bias=bias)
        self.out_proj = Linear(d_model, d_model, bias=bias)

    def forward(self, x: Tensor, packing: Packing, causal: bool) -> Tensor:
        """Args: x (N, D), packed sentences (B, T); causal: no position sees a later one, so padding at the end needs
        no mask."""
        projected = packing.unpack(self.in_proj(x)).chunk(3, dim=-1)
        queries, keys, values = (split_heads(part, self.n_heads) for part in projected)
        pad = None if causal else packing.pad
        heads = attend(queries, KeyValues(keys, values), pad, causal, self.dropout * self.training)
        joined: Tensor = self.out_proj(packing.pack(heads))
        return joined

    def step(self, x: Tensor, cache: Cache) -> Tensor:
        """One decoding step: x (R, D), the newest position of R hypotheses, attends to itself and to all earlier."""
        projected = self.in_proj(x)[:, None].chunk(3, dim=-1)
        queries, keys, values = (split_heads(part, self.n_heads) for part in projected)
        joined: Tensor = self.out_proj(attend(queries, cache.extend(KeyValues(keys, values)), None, False, 0.0)[:, 0])
        return joined


class CrossAttention(nn.Module):
    """Target positions attend to the encoder's output."""

    def __init__(self, d_model: int, n_heads: int, dropout: float, bias: bool) -> None:
        super().__init__()
        self.n_heads = n_heads
        self.dropout = dropout
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
        heads = attend(queries, memory, memory_pad, False, self.dropout * self.training)
        joined: Tensor = self.out_proj(tgt.pack(heads))
        return joined


def split_heads(x: Tensor, n_heads: int) -> Tensor:
    batch, length, d_model = x.shape
    return x.view(batch, length, n_heads, d_model // n_heads).transpose(1, 2)  # (B, H, T, K)


def attend(queries: Tensor, memory: KeyValues, pad: Tensor | None, causal: bool, dropout: float) -> Tensor:
    """softmax(q k' / sqrt(K)) v over all heads, heads joined again: (B, H, T, K) -> (B, T, D)."""
    heads = F.scaled_dot_product_attention(
        queries, memory.keys, memory.values, attn_mask=visible(pad), is_causal=causal, dropout_p=dropout
    )
    return heads.transpose(1, 2).flatten(2)  # (B, T, D)
