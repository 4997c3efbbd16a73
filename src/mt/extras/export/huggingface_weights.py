"""A model's weights as those of a model class of transformers.

Three classes compute what our shapes compute. What differs, and how it is met:

* their sinusoids have all sines before all cosines, ours have them in turn: our width is put in their order, which a
  Transformer does not notice, since nothing but attention heads groups its width;
* they have a bias everywhere: a model without gets zeros;
* they have one matrix for all ids: where source and target have matrices of their own, the target's rows follow the
  source's, target ids begin behind them, and a bias keeps the source's out of translations.

V, U source and target vocabulary   D d_model
"""

from collections.abc import Iterable
from typing import cast

import torch
from torch import Tensor, nn

from mt.config import Config, ModelConfig
from mt.decoding.settings import TranslationSettings
from mt.extras.export.positions import position_table
from mt.model.attention import CrossAttention, SelfAttention
from mt.model.layers import DecoderLayer, EncoderLayer, FeedForward
from mt.model.transformer import Transformer

# Of rows that are never to be chosen; minus infinity would become NaN where something is multiplied by zero.
_NEVER = -1e9
_USUAL_POSITIONS = 1024

_CLASSES = {
    ("post", "sinusoidal"): ("marian", "MarianMTModel"),
    # Its positions are meant to be sinusoids, but are read from the file; no post-norm class learns them without
    # a norm of the embeddings, which we do not have.
    ("post", "learned"): ("marian", "MarianMTModel"),
    ("pre", "sinusoidal"): ("pegasus", "PegasusForConditionalGeneration"),
    ("pre", "learned"): ("blenderbot", "BlenderbotForConditionalGeneration"),
}


def class_of(shape: ModelConfig) -> tuple[str, str]:
    """The model type and the class that compute a shape."""
    return _CLASSES[shape.norm, shape.positions]


def target_shift(model: Transformer) -> int:
    """Where target ids begin: 0 with one matrix for all, else V."""
    source = model.source_embedding.tokens
    return 0 if source is model.target_embedding.tokens else source.num_embeddings


def positions_of(config: Config) -> int:
    """How many positions the exported model has; sinusoidal ones go on, since nobody there parts a long text."""
    settings = TranslationSettings.of(config)
    if config.model.positions == "learned":
        return settings.max_positions
    return max(settings.max_positions, config.longest_translation + 1, _USUAL_POSITIONS)


def huggingface_weights(model: Transformer, config: Config) -> dict[str, Tensor]:
    """All tensors of the file, by name."""
    weights = _Weights(_order(config.model))
    _embeddings(weights, model, config.model.tie_embeddings)
    for side, layers, embedding in (
        ("encoder", model.encoder, model.source_embedding),
        ("decoder", model.decoder, model.target_embedding),
    ):
        weights.table(f"model.{side}.embed_positions", position_table(embedding, positions_of(config)))
        for number, layer in enumerate(cast(Iterable[EncoderLayer | DecoderLayer], layers)):
            _layer(weights, f"model.{side}.layers.{number}", layer)
    if config.model.norm == "pre":
        weights.norm("model.encoder.layer_norm", model.encoder_norm)
        weights.norm("model.decoder.layer_norm", model.decoder_norm)
    return weights.tensors


class _Weights:
    """Tensors by their names there, the model's width in the order of their sinusoids.

    Args:
        order: (D,), which of our dimensions each of theirs is.
    """

    def __init__(self, order: Tensor) -> None:
        self.tensors: dict[str, Tensor] = {}
        self._order = order

    def table(self, name: str, rows: Tensor) -> None:
        """Rows of the model's width."""
        self.tensors[f"{name}.weight"] = rows[:, self._order]

    def reads(self, name: str, weight: Tensor, bias: Tensor | None) -> None:
        """A linear layer that reads the model's width."""
        self.tensors[f"{name}.weight"] = weight[:, self._order]
        self.tensors[f"{name}.bias"] = weight.new_zeros(len(weight)) if bias is None else bias.clone()

    def writes(self, name: str, layer: nn.Linear) -> None:
        """A linear layer that writes the model's width."""
        self.tensors[f"{name}.weight"] = layer.weight.detach().cpu()[self._order]
        self._vector(f"{name}.bias", layer.bias)

    def norm(self, name: str, layer: nn.Module) -> None:
        self._vector(f"{name}.weight", cast(nn.LayerNorm, layer).weight)
        self._vector(f"{name}.bias", cast(nn.LayerNorm, layer).bias)

    def _vector(self, name: str, ours: Tensor | None) -> None:
        zeros = torch.zeros(len(self._order))
        self.tensors[name] = zeros if ours is None else ours.detach().cpu()[self._order]


def _order(shape: ModelConfig) -> Tensor:
    width = torch.arange(shape.d_model)
    return width if shape.positions == "learned" else torch.cat([width[::2], width[1::2]])


def _embeddings(weights: _Weights, model: Transformer, tied: bool) -> None:
    source, target, output = (
        layer.weight.detach().cpu()
        for layer in (model.source_embedding.tokens, model.target_embedding.tokens, model.output)
    )
    shift = target_shift(model)
    matrix = torch.cat([source, target]) if shift else source
    weights.table("model.shared", matrix)
    if not tied:
        # Since version 5 transformers has a matrix for each side where the output has its own.
        weights.table("model.encoder.embed_tokens", matrix)
        weights.table("model.decoder.embed_tokens", matrix)
        weights.table("lm_head", torch.cat([torch.zeros_like(source), output]))
    bias = torch.zeros(1, len(matrix))
    bias[:, :shift] = _NEVER
    weights.tensors["final_logits_bias"] = bias


def _layer(weights: _Weights, name: str, layer: EncoderLayer | DecoderLayer) -> None:
    residuals = list(layer.residuals)
    _self_attention(weights, f"{name}.self_attn", layer.self_attention)
    weights.norm(f"{name}.self_attn_layer_norm", cast(nn.Module, residuals[0].norm))
    if isinstance(layer, DecoderLayer):
        _cross_attention(weights, f"{name}.encoder_attn", layer.cross_attention)
        weights.norm(f"{name}.encoder_attn_layer_norm", cast(nn.Module, residuals[1].norm))
    _feed_forward(weights, name, layer.feed_forward)
    weights.norm(f"{name}.final_layer_norm", cast(nn.Module, residuals[-1].norm))


def _self_attention(weights: _Weights, name: str, ours: SelfAttention) -> None:
    _projections(weights, name, "qkv", ours.in_proj)
    weights.writes(f"{name}.out_proj", ours.out_proj)


def _cross_attention(weights: _Weights, name: str, ours: CrossAttention) -> None:
    _projections(weights, name, "q", ours.q_proj)
    _projections(weights, name, "kv", ours.kv_proj)
    weights.writes(f"{name}.out_proj", ours.out_proj)


def _projections(weights: _Weights, name: str, letters: str, joined: nn.Linear) -> None:
    """Parts what is joined for speed."""
    parts = joined.weight.detach().cpu().chunk(len(letters))
    biases = [None] * len(letters) if joined.bias is None else joined.bias.detach().cpu().chunk(len(letters))
    for letter, weight, bias in zip(letters, parts, biases, strict=True):
        weights.reads(f"{name}.{letter}_proj", weight, bias)


def _feed_forward(weights: _Weights, name: str, ours: FeedForward) -> None:
    up = ours.up
    weights.reads(f"{name}.fc1", up.weight.detach().cpu(), None if up.bias is None else up.bias.detach().cpu())
    weights.writes(f"{name}.fc2", ours.down)
