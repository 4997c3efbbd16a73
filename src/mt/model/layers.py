"""What Transformer blocks are made of.

B batch   T, S positions   N, M real tokens of target and source   D d_model   F d_ff
"""

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mt.config.model import ModelConfig
from mt.model.attention import Cache, CrossAttention, KeyValues, SelfAttention
from mt.model.linear import Linear
from mt.model.packing import PAD_ID, Packing


class Dropout(nn.Module):
    """Zeroes elements with probability p and scales the others by 1 / (1 - p).

    On a CPU, torch draws one random float an element, which costs more than the layer it follows. Here one random byte
    an element decides, so p is rounded to a multiple of 1/256 (0.3 to 0.3008) and the scale is that of the rounded p.
    """

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = p

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or self.p == 0:
            return x
        if x.device.type != "cpu":
            return F.dropout(x, self.p)
        threshold = min(round(self.p * 256), 255)
        words = torch.empty((x.numel() + 7) // 8, dtype=torch.int64)
        words.random_(-(2**63), None)  # all 64 bits
        random_bytes = words.view(torch.uint8)[: x.numel()].view_as(x)
        # Into floats at once: going through booleans takes six times as long.
        kept = torch.ge(random_bytes, threshold, out=torch.empty_like(x))
        return x * kept.mul_(256 / (256 - threshold))


class FeedForward(nn.Module):
    """Two linear layers with an activation between: relu, gelu, or swiglu (Shazeer 2020, arXiv:2002.05202)."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.activation = config.activation
        inner = 2 * config.d_ff if self.activation == "swiglu" else config.d_ff
        self.up = Linear(config.d_model, inner, bias=config.bias)
        self.down = Linear(config.d_ff, config.d_model, bias=config.bias)
        self.dropout = Dropout(config.activation_dropout)

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.up(x)
        if self.activation == "swiglu":
            gate, value = hidden.chunk(2, dim=-1)
            active = F.silu(gate) * value
        else:
            # A linear layer's gradient does not need its output, so relu may overwrite it.
            active = hidden.relu_() if self.activation == "relu" else F.gelu(hidden)
        y: Tensor = self.down(self.dropout(active))
        return y


class Sublayer(nn.Module):
    """Residual connection, dropout and layer norm around a function.

    Post-norm is the paper's `norm(x + dropout(f(x)))`; pre-norm is `x + dropout(f(norm(x)))`, which trains more easily
    when deep and needs a final norm after the last layer.
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


class EncoderLayer(nn.Module):
    """Self-attention and feed-forward; with causal attention, what a decoder-only model is made of."""

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
        cache: Cache | None = None,
    ) -> Tensor:
        """Args: x (M, D), packed; the rest as in `SelfAttention.forward`."""
        x = self.residuals[0](x, lambda y: self.self_attention(y, packing, causal, mask, cache))
        x = self.residuals[1](x, self.feed_forward)
        return x

    def step(self, x: Tensor, cache: Cache, used: int, mask: Tensor | None) -> Tensor:
        """One position of W hypotheses a sentence: x (B * W, D); the rest as in `SelfAttention.step`."""
        x = self.residuals[0](x, lambda y: self.self_attention.step(y, cache, used, mask))
        x = self.residuals[1](x, self.feed_forward)
        return x


class DecoderLayer(nn.Module):
    """Masked self-attention, attention to the source, and feed-forward."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.self_attention = SelfAttention(config)
        self.cross_attention = CrossAttention(config)
        self.feed_forward = FeedForward(config)
        self.residuals = nn.ModuleList(Sublayer(config) for _ in range(3))

    def forward(self, x: Tensor, tgt: Packing, memory: Tensor, src: Packing) -> Tensor:
        """The whole target at once: x (N, D) and memory (M, D), packed."""
        projected = self.cross_attention.project(memory, src)
        x = self.residuals[0](x, lambda y: self.self_attention(y, tgt, True))
        x = self.residuals[1](x, lambda y: self.cross_attention(y, tgt, projected, src.pad))
        x = self.residuals[2](x, self.feed_forward)
        return x

    def step(
        self,
        x: Tensor,
        cache: Cache,
        used: int,
        mask: Tensor | None,
        memory: KeyValues,
        memory_mask: Tensor | None,
    ) -> Tensor:
        """One position of W hypotheses a sentence: x (B * W, D); the rest as in both kinds of attention's `step`."""
        x = self.residuals[0](x, lambda y: self.self_attention.step(y, cache, used, mask))
        x = self.residuals[1](x, lambda y: self.cross_attention.step(y, memory, memory_mask))
        x = self.residuals[2](x, self.feed_forward)
        return x


def token_embeddings(
    config: ModelConfig, source_vocab: int, target_vocab: int, shared_vocab: bool
) -> tuple[nn.Embedding, nn.Embedding]:
    """The matrices of source and target tokens; one and the same where they are tied."""
    target = nn.Embedding(target_vocab, config.d_model, padding_idx=PAD_ID)
    if config.tie_embeddings and shared_vocab:
        return target, target
    return nn.Embedding(source_vocab, config.d_model, padding_idx=PAD_ID), target


def final_norm(config: ModelConfig) -> nn.Module:
    """What follows a stack: pre-norm layers leave their sum as it is."""
    return nn.LayerNorm(config.d_model, bias=config.bias) if config.norm == "pre" else nn.Identity()


class Embedding(nn.Module):
    """Token embeddings times sqrt(d_model), plus positions, plus dropout (section 3.4 and 3.5 of the paper).

    In training `word_dropout` takes some tokens away and leaves their positions (after Gal and Ghahramani 2016,
    arXiv:1512.05287, who take all occurrences of a word together, and scale the others).
    """

    def __init__(self, tokens: nn.Embedding, config: ModelConfig, max_length: int) -> None:
        super().__init__()
        self.tokens = tokens
        self.scale = math.sqrt(config.d_model)
        self.dropout = Dropout(config.dropout if config.embedding_dropout is None else config.embedding_dropout)
        self.word_dropout = config.word_dropout
        kind = LearnedPositions if config.positions == "learned" else SinusoidalPositions
        self.positions = kind(config.d_model, max_length)

    def forward(self, tokens: Tensor, positions: Tensor, length: int) -> Tensor:
        """Args: tokens (N,) and their positions (N,) or (1,), all below `length`. Returns (N, D)."""
        x: Tensor = self.tokens(tokens) * self.scale
        if self.training and self.word_dropout > 0:
            x = x * (torch.rand(len(x), 1, device=x.device) >= self.word_dropout)
        x = x + self.positions(positions, length)
        x = self.dropout(x)
        return x

    def step(self, tokens: Tensor, position: int) -> Tensor:
        """Tokens (N,), all at one position, to (N, D)."""
        x: Tensor = self.tokens(tokens) * self.scale + self.positions.row(position)
        return x


class LearnedPositions(nn.Module):
    """One trained vector a position; there are none beyond `max_length`."""

    def __init__(self, d_model: int, max_length: int) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.empty(max_length, d_model))

    def forward(self, positions: Tensor, length: int) -> Tensor:
        return F.embedding(positions, self.table)  # (N, D)

    def row(self, position: int) -> Tensor:
        return self.table[position]


class SinusoidalPositions(nn.Module):
    """sin(p / 10000^(2i/D)) in dimension 2i and cos of the same in 2i + 1 (section 3.5); any number of positions."""

    table: Tensor

    def __init__(self, d_model: int, max_length: int) -> None:
        super().__init__()
        self.d_model = d_model
        # A model on the `meta` device has shapes but no memory; its table must take none either.
        length = 0 if torch.empty(0).device.type == "meta" else max_length
        self.register_buffer("table", self.sinusoids(length), persistent=False)

    def sinusoids(self, length: int) -> Tensor:
        """The table (length, D), computed in double precision."""
        positions = torch.arange(length, dtype=torch.float64, device="cpu")[:, None]
        even = torch.arange(0, self.d_model, 2, dtype=torch.float64, device="cpu")
        angles = positions * torch.exp(even * (-math.log(10000.0) / self.d_model))
        return torch.stack([torch.sin(angles), torch.cos(angles)], dim=-1).flatten(1).float()

    def forward(self, positions: Tensor, length: int) -> Tensor:
        return F.embedding(positions, self._reaching(length))  # (N, D)

    def row(self, position: int) -> Tensor:
        return self._reaching(position + 1)[position]

    def _reaching(self, length: int) -> Tensor:
        """The table, made longer where it is too short; several threads may do so at once."""
        table = self.table
        if length > len(table):
            table = self.table = self.sinusoids(2 * length).to(table)
        return table
