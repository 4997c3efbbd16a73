"""Multi-head attention (section 3.2 of "Attention Is All You Need").

B sentences   T queries   S keys   D d_model   H heads   K = D / H (the paper's d_k)   W hypotheses per sentence
M, N real tokens of source and target: `x` is packed, (N, D) instead of (B, T, D), without padding (`Packing`)
L links between target and source positions
"""

import math
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mt.config.model import ModelConfig
from mt.model.decoder_state import KeyValueCache, KeyValues
from mt.model.linear import Linear
from mt.model.packing import Packing
from mt.model.positions import rotated


class Links(NamedTuple):
    """Word alignments of a batch, which attention learns in guided alignment.

    Attributes:
        positions: (L,), the indices of aligned pairs of tokens in the flattened (B, T, S).
        weights: (L,); those of a target position sum to 1.
    """

    positions: Tensor
    weights: Tensor


def attend(queries: Tensor, key_values: KeyValues, mask: Tensor | None, causal: bool, dropout: float) -> Tensor:
    """Return softmax(Q K^T / sqrt(d_k)) V (equation 1) of all heads, concatenated.

    Args:
        queries: (B, H, T, K).
        key_values: each (B, H, S, K).
        mask: broadcastable to (B, H, T, S), True where a query may look; None: everywhere.
        causal: no query looks at a later position.
        dropout: probability of dropping an attention weight.

    Returns:
        (B, T, D).
    """
    if queries.device.type == "cpu" and queries.dtype == torch.bfloat16:
        # torch's CPU kernel takes several times as long in bf16.
        key_values = KeyValues(key_values.keys.float(), key_values.values.float())
        with torch.autocast("cpu", enabled=False):
            return attend(queries.float(), key_values, mask, causal, dropout).bfloat16()
    heads = F.scaled_dot_product_attention(
        queries, key_values.keys, key_values.values, attn_mask=mask, is_causal=causal, dropout_p=dropout
    )  # (B, H, T, K)
    return join_heads(heads)  # (B, T, D)


def attend_packed(
    queries: Tensor, keys: Tensor, values: Tensor, tgt: Packing, src: Packing, causal: bool, dropout: float
) -> Tensor:
    """Return the same as `attend` for packed sentences: the tokens of a sentence attend to those of its source.

    FlashAttention (Dao 2023, arXiv:2307.08691) reads sentences from where they start: no padding, no mask.

    Args:
        queries: (N, H, K).
        keys, values: (M, H, K).
        tgt, src: packings of queries and keys, with `starts`; one and the same in self-attention.
        causal: no query looks at a later position.
        dropout: probability of dropping an attention weight.

    Returns:
        (N, D).
    """
    # The operator itself, because torch's function around it, `varlen_attn`, has no dropout.
    heads: Tensor = torch.ops.aten._flash_attention_forward(
        queries, keys, values, tgt.starts, src.starts, tgt.shape[1], src.shape[1], dropout, causal, False
    )[0]  # (N, H, K)
    return heads.flatten(1)  # (N, D)


def has_packed_kernel(packing: Packing, dtype: torch.dtype, width: int) -> bool:
    """Return True if `attend_packed` has a kernel for heads of this number format and width K."""
    # Some cards have no gradient for wider heads.
    return packing.starts is not None and dtype in (torch.float16, torch.bfloat16) and width % 8 == 0 and width <= 192


def scaled_dot_product_weights(queries: Tensor, keys: Tensor, mask: Tensor | None) -> Tensor:
    """Return softmax(Q K^T / sqrt(d_k)), (B, H, T, S): the attention weights, which `attend` does not return."""
    scores = queries @ keys.transpose(2, 3) / math.sqrt(queries.shape[3])  # (B, H, T, S)
    if mask is not None:
        scores = scores.masked_fill(~mask, -math.inf)
    return scores.softmax(dim=-1)


def split_heads(x: Tensor, n_heads: int) -> Tensor:
    """Split vectors among the heads: (B, T, D) to (B, H, T, K)."""
    batch, length, d_model = x.shape
    return x.view(batch, length, n_heads, d_model // n_heads).transpose(1, 2)


def unpack_heads(projected: Tensor, packing: Packing, parts: int, n_heads: int) -> list[Tensor]:
    """Restore padding, and split joined projections (N, parts * D) among the heads: (B, H, L, K) each."""
    return [split_heads(part, n_heads) for part in packing.unpack(projected).chunk(parts, dim=-1)]


def join_heads(heads: Tensor) -> Tensor:
    """Concatenate the heads: (B, H, T, K) to (B, T, D)."""
    return heads.transpose(1, 2).flatten(2)


def attention_mask(pad: Tensor | None) -> Tensor | None:
    """Return the mask (B, 1, 1, S), True where every query may look, of `pad` (B, S), True at padding.

    Here and in `additive_mask`, the package's convention, True at padding, becomes torch's.
    """
    return None if pad is None else ~pad[:, None, None, :]


class SelfAttention(nn.Module):
    """Attention of every position to the positions of its own sequence.

    One matrix holds the projections of queries, keys and values.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        d_model, bias = config.d_model, _has_bias(config)
        self.n_heads = config.n_heads
        self.dropout = config.attention_dropout
        # As fairseq: Xavier's range of the joined matrix, which is 2**-0.5 of that of a separate one.
        self.in_proj = Linear(d_model, 3 * d_model, bias=bias, parts=3, gain=2**-0.5)
        self.out_proj = Linear(d_model, d_model, bias=bias)

    def forward(
        self, x: Tensor, packing: Packing, causal: bool, mask: Tensor | None = None, cache: KeyValueCache | None = None
    ) -> Tensor:
        """Attend within whole sequences (N, D).

        Args:
            x: (N, D).
            packing: of x; its shape is (B, T).
            causal: no position sees a later one, so padding at the end needs no mask.
            mask: (B, 1, T, T), True where a query may look; None: as `causal` and the padding say.
            cache: an empty cache, filled with the keys and values.
        """
        projected = self._project(x, packing.rotation)  # (N, 3 D)
        dropout = self.dropout if self.training else 0.0
        if mask is None and cache is None and has_packed_kernel(packing, projected.dtype, x.shape[1] // self.n_heads):
            queries, keys, values = projected.view(len(x), 3, self.n_heads, -1).unbind(1)  # (N, H, K) each
            heads = attend_packed(queries, keys, values, packing, packing, causal, dropout)  # (N, D)
        else:
            queries, keys, values = unpack_heads(projected, packing, 3, self.n_heads)  # (B, H, T, K) each
            key_values = KeyValues(keys, values)
            if mask is None and not causal:
                mask = attention_mask(packing.pad)  # (B, 1, 1, T)
            if cache is not None:
                cache.append(0, key_values)
            heads = packing.pack(attend(queries, key_values, mask, causal, dropout))  # (N, D)
        y: Tensor = self.out_proj(heads)  # (N, D)
        return y

    def weights(self, x: Tensor, packing: Packing, causal: bool, mask: Tensor | None = None, *_: object) -> Tensor:
        """Return the attention weights (B, H, T, T); arguments as of `forward`, with which a hook calls it."""
        queries, keys = unpack_heads(self._project(x, packing.rotation), packing, 3, self.n_heads)[:2]
        if causal:
            mask = torch.ones(queries.shape[2], queries.shape[2], dtype=torch.bool, device=x.device).tril()
        elif mask is None:
            mask = attention_mask(packing.pad)
        return scaled_dot_product_weights(queries, keys, mask)

    def step(
        self, x: Tensor, cache: KeyValueCache, used: int, mask: Tensor | None, rotation: Tensor | None = None
    ) -> Tensor:
        """Attend from the newest token of every hypothesis to the target so far.

        Args:
            x: (B * W, D), the hypotheses of a sentence side by side.
            cache: of this layer; W slots are added.
            used: slots filled so far.
            mask: (B, 1, W, used + W), added to the scores; None where every hypothesis sees all slots.
            rotation: of the tokens' positions, (1, K) or (B * W, K); None without rotary positions.
        """
        batch = len(x) if mask is None else len(mask)
        projected = self._project(x, rotation).view(batch, len(x) // batch, 3, self.n_heads, -1)
        queries, keys, values = projected.permute(2, 0, 3, 1, 4)  # (B, H, W, K) each
        return _attend_step(self.out_proj, queries, cache.append(used, KeyValues(keys, values)), mask)

    def _project(self, x: Tensor, rotation: Tensor | None) -> Tensor:
        return rotated(self.in_proj(x), rotation, self.n_heads)  # (N, 3 D)


class CrossAttention(nn.Module):
    """Attention of target positions to the encoder's output."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        d_model, bias = config.d_model, _has_bias(config)
        self.n_heads = config.n_heads
        self.dropout = config.attention_dropout
        self.q_proj = Linear(d_model, d_model, bias=bias)
        self.kv_proj = Linear(d_model, 2 * d_model, bias=bias, parts=2, gain=2**-0.5)
        self.out_proj = Linear(d_model, d_model, bias=bias)

    def forward(self, x: Tensor, tgt: Packing, memory: Tensor, src: Packing) -> Tensor:
        """Attend from the target x (N, D) to the encoder's output memory (M, D)."""
        queries, key_values = self.q_proj(x), self.kv_proj(memory)  # (N, D), (M, 2 D)
        dropout = self.dropout if self.training else 0.0
        if has_packed_kernel(src, queries.dtype, x.shape[1] // self.n_heads):
            queries = queries.view(len(x), self.n_heads, -1)  # (N, H, K)
            keys, values = key_values.view(len(memory), 2, self.n_heads, -1).unbind(1)  # (M, H, K) each
            heads = attend_packed(queries, keys, values, tgt, src, False, dropout)  # (N, D)
        else:
            queries = split_heads(tgt.unpack(queries), self.n_heads)  # (B, H, T, K)
            mask = attention_mask(src.pad)  # (B, 1, 1, S)
            source = KeyValues(*unpack_heads(key_values, src, 2, self.n_heads))  # (B, H, S, K) each
            heads = tgt.pack(attend(queries, source, mask, False, dropout))  # (N, D)
        y: Tensor = self.out_proj(heads)  # (N, D)
        return y

    def project(self, memory: Tensor, src: Packing) -> KeyValues:
        """Project the encoder's output (M, D) to keys and values (B, H, S, K), once per sentence, for `step`."""
        return KeyValues(*unpack_heads(self.kv_proj(memory), src, 2, self.n_heads))

    def weights(self, x: Tensor, tgt: Packing, memory: Tensor, src: Packing) -> Tensor:
        """Return the attention weights (B, H, T, S); arguments as of `forward`."""
        queries = split_heads(tgt.unpack(self.q_proj(x)), self.n_heads)
        return scaled_dot_product_weights(queries, self.project(memory, src).keys, attention_mask(src.pad))

    def alignment_loss(self, x: Tensor, tgt: Packing, memory: Tensor, src: Packing, links: Links) -> Tensor:
        """Sum the cross-entropy of the first head's weights against word alignments (Garg et al. 2019, equation 3).

        The weights are computed again, because the kernels of `forward` do not return them.
        """
        width = x.shape[1] // self.n_heads
        queries, keys = (
            F.linear(inputs, proj.weight[:width], None if proj.bias is None else proj.bias[:width])
            for inputs, proj in ((x, self.q_proj), (memory, self.kv_proj))
        )
        scores = tgt.unpack(queries) @ src.unpack(keys).transpose(1, 2) / math.sqrt(width)  # (B, T, S)
        scores = scores.float()
        if src.pad is not None:
            scores = scores.masked_fill(src.pad[:, None], -math.inf)
        log_weights = scores.log_softmax(dim=-1).flatten().index_select(0, links.positions)  # (L,)
        return -(log_weights * links.weights).sum()

    def step(self, x: Tensor, key_values: KeyValues, mask: Tensor | None) -> Tensor:
        """Attend from the newest token of every hypothesis (B * W, D) to the source.

        The hypotheses of a sentence are queries side by side, so the source is not copied for each. The mask
        (B, 1, 1, S) is added to the scores.
        """
        queries = split_heads(self.q_proj(x).view(len(key_values.keys), -1, x.shape[1]), self.n_heads)  # (B, H, W, K)
        return _attend_step(self.out_proj, queries, key_values, mask)


def _attend_step(out_proj: Linear, queries: Tensor, key_values: KeyValues, mask: Tensor | None) -> Tensor:
    """Attend with a mask that is added to the scores, and project: (B, H, W, K) to (B * W, D)."""
    heads = F.scaled_dot_product_attention(queries, key_values.keys, key_values.values, attn_mask=mask)
    y: Tensor = out_proj(join_heads(heads).flatten(0, 1))
    return y


def _has_bias(config: ModelConfig) -> bool:
    return config.bias if config.attention_bias is None else config.attention_bias
