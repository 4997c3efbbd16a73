"""Conversion of weights to the transformers classes that implement the same architecture.

Differences:

* their sinusoids are all sines, then all cosines; ours alternate. The dimensions of d_model are permuted into their
  order, to which a Transformer is invariant outside the attention heads;
* they have biases everywhere: a model without biases gets zeros;
* they have one embedding matrix: with separate matrices, the target's rows follow the source's, target ids are shifted
  by V, and an output bias keeps source ids out of translations. Only with MarianTokenizer, which has two vocabularies,
  a Marian model has a matrix for each side.

V, U source and target vocabulary   D d_model
"""

from collections.abc import Iterable
from typing import cast

import torch
from torch import Tensor, nn

from mt.config import Config, ModelConfig
from mt.decoding.settings import TranslationSettings
from mt.extras.export.common import position_table
from mt.model.layers import DecoderLayer, EncoderLayer
from mt.model.transformer import Transformer

# Output bias of source ids; minus infinity times zero would be NaN.
_NEVER = -1e9
_MIN_POSITIONS = 1024

_CLASSES = {
    ("post", "sinusoidal"): ("marian", "MarianMTModel"),
    # Marian reads its sinusoids from the file, so it can have learned ones; the post-norm classes with learned
    # positions also normalise the embeddings.
    ("post", "learned"): ("marian", "MarianMTModel"),
    ("pre", "sinusoidal"): ("pegasus", "PegasusForConditionalGeneration"),
    ("pre", "learned"): ("blenderbot", "BlenderbotForConditionalGeneration"),
}


def class_of(shape: ModelConfig) -> tuple[str, str]:
    """Return the `model_type` and the class that implement a shape."""
    return _CLASSES[shape.norm, shape.positions]


def target_shift(model: Transformer) -> int:
    """Return the first target id: 0 with shared embeddings, else V."""
    source = model.source_embedding.tokens
    return 0 if source is model.target_embedding.tokens else source.num_embeddings


def n_positions(config: Config) -> int:
    """Return the number of positions to export; more sinusoidal ones, since transformers does not split long texts."""
    settings = TranslationSettings.of(config)
    if config.model.positions == "learned":
        return settings.max_positions
    return max(settings.max_positions, config.longest_translation + 1, _MIN_POSITIONS)


def huggingface_weights(model: Transformer, config: Config, shift: int) -> dict[str, Tensor]:
    """Return all tensors of the file by name; `shift` is the first target id."""
    dimensions = torch.arange(config.model.d_model)
    is_learned = config.model.positions == "learned"
    weights = _Weights(dimensions if is_learned else torch.cat([dimensions[::2], dimensions[1::2]]))
    _embeddings(weights, model, config.model.tie_embeddings, shift)
    for side, layers, embedding in (
        ("encoder", model.encoder, model.source_embedding),
        ("decoder", model.decoder, model.target_embedding),
    ):
        weights.embedding(f"model.{side}.embed_positions", position_table(embedding, n_positions(config)))
        for number, layer in enumerate(cast(Iterable[EncoderLayer | DecoderLayer], layers)):
            _layer(weights, f"model.{side}.layers.{number}", layer)
    if config.model.norm == "pre":
        weights.norm("model.encoder.layer_norm", model.encoder_norm)
        weights.norm("model.decoder.layer_norm", model.decoder_norm)
    return weights.tensors


class _Weights:
    """Tensors under their transformers names, with d_model in the order `order` (D,) of our dimensions."""

    def __init__(self, order: Tensor) -> None:
        self.tensors: dict[str, Tensor] = {}
        self._order = order

    def embedding(self, name: str, rows: Tensor) -> None:
        """Add a matrix with rows of d_model."""
        self.tensors[f"{name}.weight"] = rows[:, self._order]

    def linear_in(self, name: str, weight: Tensor, bias: Tensor | None) -> None:
        """Add a linear layer whose input is d_model."""
        self.tensors[f"{name}.weight"] = weight[:, self._order]
        self.tensors[f"{name}.bias"] = weight.new_zeros(len(weight)) if bias is None else bias.clone()

    def linear_out(self, name: str, layer: nn.Linear) -> None:
        """Add a linear layer whose output is d_model."""
        self.tensors[f"{name}.weight"] = layer.weight.detach().cpu()[self._order]
        self._vector(f"{name}.bias", layer.bias)

    def norm(self, name: str, layer: nn.Module) -> None:
        self._vector(f"{name}.weight", cast(nn.LayerNorm, layer).weight)
        self._vector(f"{name}.bias", cast(nn.LayerNorm, layer).bias)

    def _vector(self, name: str, ours: Tensor | None) -> None:
        zeros = torch.zeros(len(self._order))
        self.tensors[name] = zeros if ours is None else ours.detach().cpu()[self._order]


def _embeddings(weights: _Weights, model: Transformer, tied: bool, shift: int) -> None:
    layers = model.source_embedding.tokens, model.target_embedding.tokens, model.output
    source, target, output = (layer.weight.detach().cpu() for layer in layers)
    matrix = torch.cat([source, target]) if shift else target
    if layers[0] is not layers[1] and not shift:
        weights.embedding("model.encoder.embed_tokens", source)
        weights.embedding("model.decoder.embed_tokens", target)
        weights.embedding("lm_head", output)
    else:
        weights.embedding("model.shared", matrix)
    if shift and not tied:
        # With untied embeddings, transformers 5 has a matrix per side.
        weights.embedding("model.encoder.embed_tokens", matrix)
        weights.embedding("model.decoder.embed_tokens", matrix)
        weights.embedding("lm_head", torch.cat([torch.zeros_like(source), output]))
    bias = torch.zeros(1, len(matrix))
    bias[:, :shift] = _NEVER
    if model.output.bias is not None:
        bias[:, shift:] = model.output.bias.detach().cpu()
    weights.tensors["final_logits_bias"] = bias


def _layer(weights: _Weights, name: str, layer: EncoderLayer | DecoderLayer) -> None:
    norms = [cast(nn.Module, residual.norm) for residual in layer.residuals]
    _projections(weights, f"{name}.self_attn", "qkv", layer.self_attention.in_proj)
    weights.linear_out(f"{name}.self_attn.out_proj", layer.self_attention.out_proj)
    weights.norm(f"{name}.self_attn_layer_norm", norms[0])
    if isinstance(layer, DecoderLayer):
        _projections(weights, f"{name}.encoder_attn", "q", layer.cross_attention.q_proj)
        _projections(weights, f"{name}.encoder_attn", "kv", layer.cross_attention.kv_proj)
        weights.linear_out(f"{name}.encoder_attn.out_proj", layer.cross_attention.out_proj)
        weights.norm(f"{name}.encoder_attn_layer_norm", norms[1])
    up = layer.feed_forward.up
    weights.linear_in(f"{name}.fc1", up.weight.detach().cpu(), None if up.bias is None else up.bias.detach().cpu())
    weights.linear_out(f"{name}.fc2", layer.feed_forward.down)
    weights.norm(f"{name}.final_layer_norm", norms[-1])


def _projections(weights: _Weights, name: str, letters: str, joined: nn.Linear) -> None:
    """Split projections that are fused for speed."""
    parts = joined.weight.detach().cpu().chunk(len(letters))
    biases = [None] * len(letters) if joined.bias is None else joined.bias.detach().cpu().chunk(len(letters))
    for letter, weight, bias in zip(letters, parts, biases, strict=True):
        weights.linear_in(f"{name}.{letter}_proj", weight, bias)
