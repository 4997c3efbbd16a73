"""The model in two parts whose shapes a graph can follow: batches are padded, nothing is packed.

The parts hold the model's own layers; only the order of reshapes differs from `mt.model`.

B sentences   S source positions   T target tokens so far   D d_model   H heads   K = D / H   L decoder layers
V target vocabulary
"""

from collections.abc import Iterable
from typing import cast

import torch
from torch import Tensor, nn

from mt.extras.export.positions import position_table
from mt.model.attention import attend, attention_mask, split_heads
from mt.model.cache import KeyValues
from mt.model.layers import DecoderLayer, EncoderLayer
from mt.model.packing import PAD_ID
from mt.model.transformer import Transformer


class EncoderGraph(nn.Module):
    """Source tokens to the keys and values that every decoder layer attends to.

    Args:
        model: on the CPU, in evaluation mode.
        positions: the longest source.
    """

    positions: Tensor

    def __init__(self, model: Transformer, positions: int) -> None:
        super().__init__()
        self.embedding = model.source_embedding
        self.layers, self.norm, self.decoder = model.encoder, model.encoder_norm, model.decoder
        self.register_buffer("positions", position_table(self.embedding, positions))

    def forward(self, src_tokens: Tensor) -> Tensor:
        """Args: src_tokens (B, S), between SOS and EOS, padded with PAD. Returns (2 L, B, H, S, K)."""
        pad = src_tokens == PAD_ID
        x = self.embedding.tokens(src_tokens) * self.embedding.scale + self.positions[: src_tokens.shape[1]]
        for layer in cast(Iterable[EncoderLayer], self.layers):
            x = layer.residuals[0](x, lambda y, layer=layer: _attend_to_source(layer, y, pad))
            x = layer.residuals[1](x, layer.feed_forward)
        x = self.norm(x)
        memory = []
        for decoder_layer in cast(Iterable[DecoderLayer], self.decoder):
            attention = decoder_layer.cross_attention
            memory += [split_heads(part, attention.n_heads) for part in attention.kv_proj(x).chunk(2, dim=-1)]
        return torch.stack(memory)


class DecoderGraph(nn.Module):
    """One target token of every sentence to the logits of the next.

    Args:
        model: on the CPU, in evaluation mode.
        positions: the longest target, SOS counted.
    """

    positions: Tensor

    def __init__(self, model: Transformer, positions: int) -> None:
        super().__init__()
        self.embedding = model.target_embedding
        self.layers, self.norm, self.output = model.decoder, model.decoder_norm, model.output
        self.register_buffer("positions", position_table(self.embedding, positions))

    def forward(self, tokens: Tensor, src_tokens: Tensor, memory: Tensor, cache: Tensor) -> tuple[Tensor, Tensor]:
        """One step.

        Args:
            tokens: the newest of each sentence (B,).
            src_tokens: (B, S), as the encoder had them.
            memory: what the encoder made of them.
            cache: keys and values of the target before, (2 L, B, H, T, K); T is 0 at first.

        Returns:
            logits (B, V), and the cache with T + 1 tokens.
        """
        pad = src_tokens == PAD_ID
        place = torch.arange(cache.shape[3], cache.shape[3] + 1, device=tokens.device)
        x = self.embedding.tokens(tokens)[:, None] * self.embedding.scale + self.positions[place]
        grown: list[Tensor] = []
        for number, layer in enumerate(cast(Iterable[DecoderLayer], self.layers)):
            keys, values = cache[2 * number], cache[2 * number + 1]
            source = KeyValues(memory[2 * number], memory[2 * number + 1])
            x = layer.residuals[0](x, lambda y, layer=layer, k=keys, v=values: _attend_to_target(layer, y, k, v, grown))
            x = layer.residuals[1](x, lambda y, layer=layer, source=source: _attend_across(layer, y, source, pad))
            x = layer.residuals[2](x, layer.feed_forward)
        logits: Tensor = self.output(self.norm(x))[:, 0]
        return logits, torch.stack(grown)


def _attend_to_source(layer: EncoderLayer, x: Tensor, pad: Tensor) -> Tensor:
    attention = layer.self_attention
    queries, keys, values = (split_heads(part, attention.n_heads) for part in attention.in_proj(x).chunk(3, dim=-1))
    joined: Tensor = attention.out_proj(attend(queries, KeyValues(keys, values), attention_mask(pad), False, 0.0))
    return joined


def _attend_to_target(layer: DecoderLayer, x: Tensor, keys: Tensor, values: Tensor, grown: list[Tensor]) -> Tensor:
    """Attention to the target so far; the keys and values of all of it are added to `grown`."""
    attention = layer.self_attention
    query, key, value = (split_heads(part, attention.n_heads) for part in attention.in_proj(x).chunk(3, dim=-1))
    all_of_it = KeyValues(torch.cat([keys, key], dim=2), torch.cat([values, value], dim=2))
    grown += [all_of_it.keys, all_of_it.values]
    joined: Tensor = attention.out_proj(attend(query, all_of_it, None, False, 0.0))
    return joined


def _attend_across(layer: DecoderLayer, x: Tensor, source: KeyValues, pad: Tensor) -> Tensor:
    attention = layer.cross_attention
    queries = split_heads(attention.q_proj(x), attention.n_heads)
    joined: Tensor = attention.out_proj(attend(queries, source, attention_mask(pad), False, 0.0))
    return joined
