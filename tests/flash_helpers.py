"""FlashAttention's operator for the CPU: the plain twin of `attend_packed` in its place."""

import contextlib
import math
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import Tensor

from mt.model import attention, packing


def attend_sentences(queries: Tensor, keys: Tensor, values: Tensor, tgt: Tensor, src: Tensor, causal: bool) -> Tensor:
    """Equation 1, sentence by sentence: (N, H, K) from the starts (B + 1,) of targets and sources."""
    heads = [_weights(q, k, causal) @ v for q, k, v in _sentences(queries, (keys, values), tgt, src)]
    return torch.cat(heads, dim=1).transpose(0, 1)


def _gradients(
    grad: Tensor, queries: Tensor, keys: Tensor, values: Tensor, tgt: Tensor, src: Tensor, causal: bool
) -> tuple[Tensor, ...]:
    """The derivatives of equation 1, written out: below autograd, where operators live, it records nothing."""
    parts: list[tuple[Tensor, ...]] = []
    grads = [g for g, _, _ in _sentences(grad, (keys, values), tgt, src)]
    for g, (q, k, v) in zip(grads, _sentences(queries, (keys, values), tgt, src), strict=True):
        weights, scale = _weights(q, k, causal), 1 / math.sqrt(q.shape[-1])
        change = g @ v.transpose(1, 2)
        scores = weights * (change - (weights * change).sum(dim=-1, keepdim=True)) * scale
        parts.append((scores @ k, scores.transpose(1, 2) @ q, weights.transpose(1, 2) @ g))
    return tuple(torch.cat(x, dim=1).transpose(0, 1) for x in zip(*parts, strict=True))


def _weights(queries: Tensor, keys: Tensor, causal: bool) -> Tensor:
    scores = queries @ keys.transpose(1, 2) / math.sqrt(queries.shape[-1])  # (H, T, S)
    if causal:
        scores = scores.masked_fill(torch.ones_like(scores, dtype=torch.bool).triu(1), -math.inf)
    return scores.softmax(dim=-1)


def _sentences(
    queries: Tensor, others: tuple[Tensor, Tensor], tgt: Tensor, src: Tensor
) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Queries (H, T, K) of each target, and keys and values (H, S, K) of its source."""
    for (first, end), (src_first, src_end) in zip(pairwise(tgt.tolist()), pairwise(src.tolist()), strict=True):
        keys, values = (x[src_first:src_end].transpose(0, 1) for x in others)
        yield queries[first:end].transpose(0, 1), keys, values


class FlashCalls(list[dict[str, Any]]):
    """The arguments of each call of the operator."""


@contextlib.contextmanager
def flash_attention_on_cpu() -> Iterator[FlashCalls]:
    """Give the CPU the operator, forward and backward, in every number format; its dropout drops nothing."""
    calls = FlashCalls()

    def forward(
        q: Tensor,
        k: Tensor,
        v: Tensor,
        tgt: Tensor,
        src: Tensor,
        max_q: int,
        max_k: int,
        p: float,
        causal: bool,
        *_: Any,
    ) -> tuple[Tensor, ...]:
        assert tgt.dtype == src.dtype == torch.int32
        assert (tgt.diff().max() <= max_q) & (src.diff().max() <= max_k)
        assert len(tgt) == len(src)
        assert tgt[-1] == len(q)
        assert src[-1] == len(k) == len(v)
        assert q.stride(-1) == k.stride(-1) == v.stride(-1) == 1
        calls.append({"queries": q, "keys": k, "causal": causal, "dropout": p})
        nothing = q.new_empty(0)
        # Of the log-sum-exp and the random state only the shapes matter here.
        return (
            attend_sentences(q, k, v, tgt, src, causal),
            q.new_empty(q.shape[1], len(q), dtype=torch.float32),
            torch.empty(2, dtype=torch.uint64),
            torch.empty(0, dtype=torch.uint64),
            nothing,
        )

    def backward(grad: Tensor, q: Tensor, k: Tensor, v: Tensor, *others: Any, **_: Any) -> tuple[Tensor, ...]:
        return _gradients(grad, q, k, v, others[2], others[3], causal=others[7])

    library = torch.library.Library("aten", "IMPL")
    library.impl("_flash_attention_forward", forward, "CPU")
    library.impl("_flash_attention_backward", backward, "CPU")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(packing, "has_flash_attention", lambda device: True)
        patch.setattr(attention, "has_packed_kernel", lambda packing, *_: packing.starts is not None)
        try:
            yield calls
        finally:
            library._destroy()
