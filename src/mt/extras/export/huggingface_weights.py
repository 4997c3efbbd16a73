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

import re

import torch
from torch import Tensor

from mt.config import Config, ModelConfig
from mt.decoding.settings import TranslationSettings
from mt.extras.export.common import position_table
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

# Our name, theirs, and the letters that * stands for: ours joins the matrices of all of them.
_NAMES = (
    (r"(encoder|decoder)\.(\d+)\.self_attention\.in_proj", r"model.\1.layers.\2.self_attn.*_proj", "qkv"),
    (r"(encoder|decoder)\.(\d+)\.self_attention\.out_proj", r"model.\1.layers.\2.self_attn.out_proj", ""),
    (r"decoder\.(\d+)\.cross_attention\.q_proj", r"model.decoder.layers.\1.encoder_attn.q_proj", ""),
    (r"decoder\.(\d+)\.cross_attention\.kv_proj", r"model.decoder.layers.\1.encoder_attn.*_proj", "kv"),
    (r"decoder\.(\d+)\.cross_attention\.out_proj", r"model.decoder.layers.\1.encoder_attn.out_proj", ""),
    (r"(encoder|decoder)\.(\d+)\.feed_forward\.up", r"model.\1.layers.\2.fc1", ""),
    (r"(encoder|decoder)\.(\d+)\.feed_forward\.down", r"model.\1.layers.\2.fc2", ""),
    (r"(encoder|decoder)\.(\d+)\.residuals\.0\.norm", r"model.\1.layers.\2.self_attn_layer_norm", ""),
    (r"decoder\.(\d+)\.residuals\.1\.norm", r"model.decoder.layers.\1.encoder_attn_layer_norm", ""),
    (r"(encoder|decoder)\.(\d+)\.residuals\.\d\.norm", r"model.\1.layers.\2.final_layer_norm", ""),
    (r"(encoder|decoder)_norm", r"model.\1.layer_norm", ""),
)


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
    order = torch.arange(config.model.d_model)
    if config.model.positions != "learned":
        order = torch.cat([order[::2], order[1::2]])
    matrices = _embeddings(model, config.model.tie_embeddings, shift)
    for side, embedding in (("encoder", model.source_embedding), ("decoder", model.target_embedding)):
        matrices[f"model.{side}.embed_positions"] = position_table(embedding, n_positions(config))
    tensors = {f"{name}.weight": rows[:, order] for name, rows in matrices.items()}
    tensors["final_logits_bias"] = _output_bias(model, shift)
    for name, parameter in model.named_parameters():
        module, _, kind = name.rpartition(".")
        if module.startswith(("encoder", "decoder")):
            theirs = huggingface_names(module)
            weight = permute_d_model(name, parameter.detach().cpu(), order)
            for their, part in zip(theirs, weight.chunk(len(theirs)), strict=True):
                tensors[f"{their}.{kind}"] = part.clone()
                tensors.setdefault(f"{their}.bias", torch.zeros(len(part)))  # replaced by ours, which follows
    return tensors


def huggingface_names(module: str) -> list[str]:
    """Return the names in transformers of one of our layers: several where ours joins their matrices."""
    for pattern, template, letters in _NAMES:
        if match := re.fullmatch(pattern, module):
            their = match.expand(template)
            return [their.replace("*", letter) for letter in letters] or [their]
    raise AssertionError(f"no name for {module}")


def permute_d_model(name: str, weight: Tensor, order: Tensor) -> Tensor:
    """Return one of our weights with the dimensions of d_model in the order `order` (D,)."""
    if re.search(r"(out_proj|down|norm)\.\w+$", name):
        return weight.index_select(0, order)
    # Other biases are of heads, d_ff or the vocabulary.
    return weight if name.endswith("bias") else weight.index_select(1, order)


def _embeddings(model: Transformer, tied: bool, shift: int) -> dict[str, Tensor]:
    """Return the matrices of both sides and of the output, in our order of d_model."""
    layers = model.source_embedding.tokens, model.target_embedding.tokens, model.output
    source, target, output = (layer.weight.detach().cpu() for layer in layers)
    if layers[0] is not layers[1] and not shift:
        return {"model.encoder.embed_tokens": source, "model.decoder.embed_tokens": target, "lm_head": output}
    matrix = torch.cat([source, target]) if shift else target
    if tied or not shift:
        return {"model.shared": matrix}
    # With untied embeddings, transformers 5 has a matrix per side.
    sides = {f"model.{name}": matrix for name in ("shared", "encoder.embed_tokens", "decoder.embed_tokens")}
    return {**sides, "lm_head": torch.cat([torch.zeros_like(source), output])}


def _output_bias(model: Transformer, shift: int) -> Tensor:
    bias = torch.zeros(1, shift + model.output.out_features)
    bias[:, :shift] = _NEVER
    if model.output.bias is not None:
        bias[:, shift:] = model.output.bias.detach().cpu()
    return bias
