"""Encoder and one-step decoder as traceable modules: padded batches without packing.

They use the model's own layers; only the order of reshapes differs from `mt.model`.

B sentences   S source positions   T target tokens so far   D d_model   H heads   K = D / H   L decoder layers
V target vocabulary
"""

from collections.abc import Iterable
from typing import cast

import torch
from torch import Tensor, nn

from mt.extras.export.common import position_table, rotation_table
from mt.model.attention import attend, attention_mask, split_heads
from mt.model.decoder_state import KeyValues
from mt.model.layers import DecoderLayer, EncoderLayer
from mt.model.packing import PAD_ID
from mt.model.positions import rotated
from mt.model.transformer import Transformer


class EncoderGraph(nn.Module):
    """Encoder that returns the cross-attention keys and values of each decoder layer; at most `positions` tokens."""

    positions: Tensor
    rotation: Tensor | None

    def __init__(self, model: Transformer, positions: int) -> None:
        super().__init__()
        self.embedding = model.source_embedding
        self.layers, self.norm, self.decoder = model.encoder, model.encoder_norm, model.decoder
        self.register_buffer("positions", position_table(self.embedding, positions))
        self.register_buffer("rotation", rotation_table(model, positions))

    def forward(self, src_tokens: Tensor) -> Tensor:
        """Encode src_tokens (B, S), with SOS and EOS and padded with PAD, to memory (2 L, B, H, S, K)."""
        pad = src_tokens == PAD_ID
        rotation = None if self.rotation is None else self.rotation[: src_tokens.shape[1]]
        x = self.embedding.tokens(src_tokens) * self.embedding.scale + self.positions[: src_tokens.shape[1]]
        x = self.embedding.norm(x)
        for layer in cast(Iterable[EncoderLayer], self.layers):
            x = layer.residuals[0](x, lambda y, layer=layer: _attend_to_itself(layer, y, pad, rotation, []))
            x = layer.residuals[1](x, layer.feed_forward)
        x = self.norm(x)
        memory = []
        for decoder_layer in cast(Iterable[DecoderLayer], self.decoder):
            attention = decoder_layer.cross_attention
            memory += [split_heads(part, attention.n_heads) for part in attention.kv_proj(x).chunk(2, dim=-1)]
        return torch.stack(memory)


class DecoderGraph(nn.Module):
    """Decoder of one step, one target token per sentence to the logits of the next; at most `positions` with SOS."""

    positions: Tensor
    rotation: Tensor | None

    def __init__(self, model: Transformer, positions: int) -> None:
        super().__init__()
        self.embedding = model.target_embedding
        self.layers, self.norm, self.output = model.decoder, model.decoder_norm, model.output
        self.register_buffer("positions", position_table(self.embedding, positions))
        self.register_buffer("rotation", rotation_table(model, positions))

    def forward(self, tokens: Tensor, src_tokens: Tensor, memory: Tensor, cache: Tensor) -> tuple[Tensor, Tensor]:
        """Decode one step.

        Args:
            tokens: the last target token of each sentence (B,).
            src_tokens: the encoder's input (B, S).
            memory: the encoder's output (2 L, B, H, S, K).
            cache: keys and values of the earlier target tokens (2 L, B, H, T, K); T is 0 at first.

        Returns:
            logits (B, V), and the cache with T + 1 tokens.
        """
        pad = src_tokens == PAD_ID
        position = torch.arange(cache.shape[3], cache.shape[3] + 1, device=tokens.device)
        rotation = None if self.rotation is None else self.rotation[position]
        x = self.embedding.tokens(tokens)[:, None] * self.embedding.scale + self.positions[position]
        x = self.embedding.norm(x)
        cached: list[Tensor] = []
        for number, layer in enumerate(cast(Iterable[DecoderLayer], self.layers)):
            past, source = (KeyValues(each[2 * number], each[2 * number + 1]) for each in (cache, memory))
            x = layer.residuals[0](
                x, lambda y, layer=layer, past=past: _attend_to_itself(layer, y, None, rotation, cached, past)
            )
            x = layer.residuals[1](x, lambda y, layer=layer, source=source: _attend_across(layer, y, source, pad))
            x = layer.residuals[2](x, layer.feed_forward)
        logits: Tensor = self.output(self.norm(x))[:, 0]
        return logits, torch.stack(cached)


def _attend_to_itself(
    layer: EncoderLayer | DecoderLayer,
    x: Tensor,
    pad: Tensor | None,
    rotation: Tensor | None,
    cached: list[Tensor],
    past: KeyValues | None = None,
) -> Tensor:
    """Attend to a source, or to the target so far, and append the keys and values to `cached`."""
    attention = layer.self_attention
    projected = rotated(attention.in_proj(x), rotation, attention.n_heads)
    queries, keys, values = (split_heads(part, attention.n_heads) for part in projected.chunk(3, dim=-1))
    if past is not None:
        keys, values = torch.cat([past.keys, keys], dim=2), torch.cat([past.values, values], dim=2)
    cached += [keys, values]
    mask = None if pad is None else attention_mask(pad)
    output: Tensor = attention.out_proj(attend(queries, KeyValues(keys, values), mask, False, 0.0))
    return output


def _attend_across(layer: DecoderLayer, x: Tensor, source: KeyValues, pad: Tensor) -> Tensor:
    attention = layer.cross_attention
    queries = split_heads(attention.q_proj(x), attention.n_heads)
    output: Tensor = attention.out_proj(attend(queries, source, attention_mask(pad), False, 0.0))
    return output
