"""Embeddings and positions (sections 3.4 and 3.5 of "Attention Is All You Need").

N real tokens   D d_model
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mt.config.model import ModelConfig
from mt.model.dropout import Dropout
from mt.model.packing import PAD_ID


def token_embeddings(
    config: ModelConfig, source_vocab: int, target_vocab: int, shared_vocab: bool
) -> tuple[nn.Embedding, nn.Embedding]:
    """Return the source and target embedding matrices; one and the same when tied over a shared vocabulary."""
    target = nn.Embedding(target_vocab, config.d_model, padding_idx=PAD_ID)
    if config.tie_embeddings and shared_vocab:
        return target, target
    return nn.Embedding(source_vocab, config.d_model, padding_idx=PAD_ID), target


class Embedding(nn.Module):
    """Token embeddings times sqrt(d_model), plus positions, then dropout; where configured not scaled, or normalised.

    In training, `word_dropout` zeroes the embeddings of some tokens but not their positions (after Gal and Ghahramani
    2016, arXiv:1512.05287, who drop all occurrences of a word together and scale the others).
    """

    def __init__(self, tokens: nn.Embedding, config: ModelConfig, max_length: int) -> None:
        super().__init__()
        self.tokens = tokens
        self.scale = math.sqrt(config.d_model) if config.scale_embeddings else 1.0
        self.dropout = Dropout(config.dropout if config.embedding_dropout is None else config.embedding_dropout)
        self.word_dropout = config.word_dropout
        kind = LearnedPositions if config.positions == "learned" else SinusoidalPositions
        self.positions = kind(config.d_model, max_length)
        self.norm = nn.LayerNorm(config.d_model, bias=config.bias) if config.embedding_norm else nn.Identity()

    def forward(self, tokens: Tensor, positions: Tensor, length: int) -> Tensor:
        """Embed tokens (N,) at positions (N,) or (1,), all below `length`; returns (N, D)."""
        x: Tensor = self.tokens(tokens) * self.scale  # (N, D)
        if self.training and self.word_dropout > 0:
            x = x * (torch.rand(len(x), 1, device=x.device) >= self.word_dropout)
        x = x + self.positions(positions, length)  # (N, D)
        x = self.dropout(self.norm(x))
        return x


class LearnedPositions(nn.Module):
    """One trained vector per position, up to `max_length`."""

    def __init__(self, d_model: int, max_length: int) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.empty(max_length, d_model))

    def forward(self, positions: Tensor, length: int) -> Tensor:
        return F.embedding(positions, self.table)  # (N, D)


class SinusoidalPositions(nn.Module):
    """sin(p / 10000^(2i/D)) in dimension 2i and its cosine in 2i + 1 (section 3.5), for any number of positions."""

    table: Tensor

    def __init__(self, d_model: int, max_length: int) -> None:
        super().__init__()
        self.d_model = d_model
        # A model on the `meta` device has shapes but no memory, and its table must take none.
        length = 0 if torch.empty(0).device.type == "meta" else max_length
        self.register_buffer("table", self.sinusoids(length), persistent=False)

    def sinusoids(self, length: int) -> Tensor:
        """Return the table (length, D), computed in double precision."""
        positions = torch.arange(length, dtype=torch.float64, device="cpu")[:, None]
        even = torch.arange(0, self.d_model, 2, dtype=torch.float64, device="cpu")  # 2i
        angles = positions * torch.exp(even * (-math.log(10000.0) / self.d_model))  # (length, D / 2)
        return torch.stack([torch.sin(angles), torch.cos(angles)], dim=-1).flatten(1).float()

    def forward(self, positions: Tensor, length: int) -> Tensor:
        table = self.table  # several threads may extend it at once
        if length > len(table):
            table = self.table = self.sinusoids(2 * length).to(table)
        return F.embedding(positions, table)  # (N, D)
