"""Embeddings (section 3.4 of "Attention Is All You Need").

N real tokens   D d_model
"""

import math

import torch
from torch import Tensor, nn

from mt.config.model import ModelConfig
from mt.model.layers import Dropout
from mt.model.packing import PAD_ID
from mt.model.positions import added_positions


def token_embeddings(
    config: ModelConfig, source_vocab: int, target_vocab: int, shared_vocab: bool
) -> tuple[nn.Embedding, nn.Embedding]:
    """Return the source and target embedding matrices; one and the same when tied over a shared vocabulary."""
    target = nn.Embedding(target_vocab, config.d_model, padding_idx=PAD_ID)
    if config.tie_embeddings and shared_vocab:
        return target, target
    return nn.Embedding(source_vocab, config.d_model, padding_idx=PAD_ID), target


class Embedding(nn.Module):
    """Token embeddings times sqrt(d_model), plus positions, unless these are rotary; then dropout.

    Where configured, they are not scaled, or the sum is normalised.

    In training, `word_dropout` zeroes the embeddings of some tokens but not their positions (after Gal and Ghahramani
    2016, arXiv:1512.05287, who drop all occurrences of a word together and scale the others).
    """

    def __init__(self, tokens: nn.Embedding, config: ModelConfig, max_length: int) -> None:
        super().__init__()
        self.tokens = tokens
        self.scale = math.sqrt(config.d_model) if config.scale_embeddings else 1.0
        self.dropout = Dropout(config.dropout if config.embedding_dropout is None else config.embedding_dropout)
        self.word_dropout = config.word_dropout
        self.positions = added_positions(config, max_length)
        self.norm = nn.LayerNorm(config.d_model, bias=config.bias) if config.embedding_norm else nn.Identity()

    def forward(self, tokens: Tensor, positions: Tensor, length: int) -> Tensor:
        """Embed tokens (N,) at positions (N,) or (1,), all below `length`; returns (N, D)."""
        x: Tensor = self.tokens(tokens) * self.scale  # (N, D)
        if self.training and self.word_dropout > 0:
            x = x * (torch.rand(len(x), 1, device=x.device) >= self.word_dropout)
        if self.positions is not None:
            x = x + self.positions(positions, length)  # (N, D)
        x = self.dropout(self.norm(x))
        return x
