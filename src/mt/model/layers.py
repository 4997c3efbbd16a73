"""Encoder and decoder layers (figure 1 of "Attention Is All You Need").

D d_model   F d_ff   M, N real tokens of source and target: `x` is packed, (N, D) instead of (B, T, D) (`Packing`)
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mt.config.model import ModelConfig
from mt.model.attention import CrossAttention, Links, SelfAttention
from mt.model.decoder_state import KeyValueCache, KeyValues
from mt.model.linear import Linear
from mt.model.packing import Packing


class Dropout(nn.Module):
    """Zeroes elements with probability p and scales the others by 1 / (1 - p); on a CPU, by `byte_dropout`.

    Compiled layers use torch's own, which the compiler fuses with its neighbours.
    """

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = p

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or self.p == 0:
            return x
        if x.device.type == "cpu" and not torch.compiler.is_compiling():
            return byte_dropout(x, self.p)
        return F.dropout(x, self.p)


def byte_dropout(x: Tensor, p: float) -> Tensor:
    """Apply dropout with p rounded to a multiple of 1/256 (0.3 to 0.3008), and the scale of the rounded p.

    torch's own dropout draws a random float per element, which on a CPU costs more than the layer before it.
    """
    threshold = min(round(p * 256), 255)
    words = torch.empty((x.numel() + 7) // 8, dtype=torch.int64)
    words.random_(-(2**63), None)  # all 64 bits
    random_bytes = words.view(torch.uint8)[: x.numel()].view_as(x)
    # The comparison writes floats; with booleans in between it takes six times as long.
    keep = torch.ge(random_bytes, threshold, out=torch.empty_like(x))
    return x * keep.mul_(256 / (256 - threshold))


class FeedForward(nn.Module):
    """Two linear layers with an activation between: relu, gelu, silu, or swiglu (Shazeer 2020, arXiv:2002.05202)."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.activation = config.activation
        parts = 2 if self.activation == "swiglu" else 1
        self.up = Linear(config.d_model, parts * config.d_ff, bias=config.bias, parts=parts)
        self.down = Linear(config.d_ff, config.d_model, bias=config.bias)
        self.dropout = Dropout(config.activation_dropout)

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.up(x)  # (N, F), or (N, 2 F) for swiglu
        if self.activation == "swiglu":
            gate, value = hidden.chunk(2, dim=-1)  # (N, F) each
            active = F.silu(gate) * value
        elif self.activation == "silu":
            active = F.silu(hidden)
        else:
            # A linear layer's gradient does not need its output, so relu may overwrite it.
            active = hidden.relu_() if self.activation == "relu" else F.gelu(hidden)
        y: Tensor = self.down(self.dropout(active))  # (N, D)
        return y


class Sublayer(nn.Module):
    """Residual connection, dropout and layer norm around a function ("Add & Norm" in figure 1).

    Post-norm is the paper's `norm(x + dropout(f(x)))`. Pre-norm is `x + dropout(f(norm(x)))`, which is easier to train
    in deep models and needs a final norm after the last layer.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.pre_norm = config.norm == "pre"
        self.norm = nn.LayerNorm(config.d_model, bias=config.bias)
        self.dropout = Dropout(config.dropout)

    def forward(self, x: Tensor, function: Callable[[Tensor], Tensor]) -> Tensor:
        y: Tensor = function(self.norm(x)) if self.pre_norm else function(x)
        y = x + self.dropout(y)
        return y if self.pre_norm else self.norm(y)


def final_norm(config: ModelConfig) -> nn.Module:
    """Return the norm after a stack: only pre-norm layers leave their sum unnormalised."""
    return nn.LayerNorm(config.d_model, bias=config.bias) if config.norm == "pre" else nn.Identity()


class EncoderLayer(nn.Module):
    """Self-attention and feed-forward; with causal attention, the layer of a decoder-only model."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.self_attention = SelfAttention(config)
        self.feed_forward = FeedForward(config)
        self.residuals = nn.ModuleList(Sublayer(config) for _ in range(2))

    def forward(
        self,
        x: Tensor,
        packing: Packing,
        causal: bool = False,
        mask: Tensor | None = None,
        cache: KeyValueCache | None = None,
    ) -> Tensor:
        """Transform x (N, D); the other arguments are those of `SelfAttention.forward`."""
        x = self.residuals[0](x, lambda y: self.self_attention(y, packing, causal, mask, cache))
        x = self.residuals[1](x, self.feed_forward)
        return x

    def step(
        self, x: Tensor, cache: KeyValueCache, used: int, mask: Tensor | None, rotation: Tensor | None = None
    ) -> Tensor:
        """Transform one position of W hypotheses per sentence (B * W, D); see `SelfAttention.step`."""
        x = self.residuals[0](x, lambda y: self.self_attention.step(y, cache, used, mask, rotation))
        x = self.residuals[1](x, self.feed_forward)
        return x


class DecoderLayer(nn.Module):
    """Masked self-attention, attention to the encoder's output, and feed-forward."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.self_attention = SelfAttention(config)
        self.cross_attention = CrossAttention(config)
        self.feed_forward = FeedForward(config)
        self.residuals = nn.ModuleList(Sublayer(config) for _ in range(3))

    def forward(
        self, x: Tensor, tgt: Packing, memory: Tensor, src: Packing, links: Links | None = None
    ) -> Tensor | tuple[Tensor, Tensor]:
        """Transform all target positions x (N, D), given the encoder's output memory (M, D).

        With word alignments also return the loss of the attention to the source against them.
        """
        if links is not None:
            return self._guided(x, tgt, memory, src, links)
        x = self.residuals[0](x, lambda y: self.self_attention(y, tgt, causal=True))  # (N, D)
        x = self.residuals[1](x, lambda y: self.cross_attention(y, tgt, memory, src))  # (N, D)
        x = self.residuals[2](x, self.feed_forward)  # (N, D)
        return x

    def _guided(self, x: Tensor, tgt: Packing, memory: Tensor, src: Packing, links: Links) -> tuple[Tensor, Tensor]:
        losses: list[Tensor] = []

        def attend_to_source(y: Tensor) -> Tensor:
            losses.append(self.cross_attention.alignment_loss(y, tgt, memory, src, links))
            attended: Tensor = self.cross_attention(y, tgt, memory, src)
            return attended

        x = self.residuals[0](x, lambda y: self.self_attention(y, tgt, causal=True))
        x = self.residuals[1](x, attend_to_source)
        x = self.residuals[2](x, self.feed_forward)
        return x, losses[0]

    def step(
        self,
        x: Tensor,
        cache: KeyValueCache,
        used: int,
        mask: Tensor | None,
        source: KeyValues,
        src_mask: Tensor | None,
        rotation: Tensor | None = None,
    ) -> Tensor:
        """Transform one position of W hypotheses per sentence (B * W, D); see `step` of both attentions."""
        x = self.residuals[0](x, lambda y: self.self_attention.step(y, cache, used, mask, rotation))
        x = self.residuals[1](x, lambda y: self.cross_attention.step(y, source, src_mask))
        x = self.residuals[2](x, self.feed_forward)
        return x
