"""Positions (section 3.5 of "Attention Is All You Need"): vectors that are added to embeddings, or rotations.

N real tokens   D d_model   H heads   K = D / H
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mt.config.model import ModelConfig


class LearnedPositions(nn.Module):
    """One trained vector per position, up to `max_length`."""

    def __init__(self, d_model: int, max_length: int) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.empty(max_length, d_model))

    def forward(self, positions: Tensor, length: int) -> Tensor:
        return F.embedding(positions, self.table)  # (N, D)


class SinusoidalPositions(nn.Module):
    """sin(p / 10000^(2i/D)) in dimension 2i and its cosine in 2i + 1, for any number of positions."""

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


def added_positions(config: ModelConfig, max_length: int) -> LearnedPositions | SinusoidalPositions | None:
    """Return the positions that are added to embeddings; None if they are rotary."""
    if config.positions == "rotary":
        return None
    return (LearnedPositions if config.positions == "learned" else SinusoidalPositions)(config.d_model, max_length)


def rotary_positions(config: ModelConfig, max_length: int) -> SinusoidalPositions | None:
    """Return the table of sines and cosines for `rotated`, K per position; None unless positions are rotary."""
    return SinusoidalPositions(config.d_model // config.n_heads, max_length) if config.positions == "rotary" else None


def rotated(projected: Tensor, rotation: Tensor | None, n_heads: int) -> Tensor:
    """Rotate queries and keys by their positions, so that their product depends only on the distance between them.

    Dimensions i and i + K/2 of a head form a pair, with the angle p / 10000^(2i/K) (Su et al. 2021, arXiv:2104.09864).

    Args:
        projected: queries, keys and values side by side (..., 3 D).
        rotation: sines and cosines, broadcastable to (..., K); None: no rotation.
        n_heads: H.
    """
    if rotation is None:
        return projected
    parts = projected.view(*projected.shape[:-1], 3, n_heads, -1)  # (..., 3, H, K)
    rotation = rotation[..., None, None, :].to(projected.dtype)
    sines, cosines = rotation[..., 0::2], rotation[..., 1::2]  # (..., 1, 1, K / 2)
    first, second = parts[..., :2, :, :].chunk(2, dim=-1)  # (..., 2, H, K / 2)
    rotated_pairs = torch.cat([first * cosines - second * sines, first * sines + second * cosines], dim=-1)
    return torch.cat([rotated_pairs, parts[..., 2:, :, :]], dim=-3).flatten(-3)
