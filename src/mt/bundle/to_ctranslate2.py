"""Conversion to CTranslate2's model format, in pure Python through the library's public specifications.

CTranslate2 implements the same architecture, so the conversion maps names. Differences:

* its position tables are finite, so they are as long as the longest possible translation;
* it identifies tokens by their strings, `mt` by the tokenizer's ids;
* PAD, UNK and SOS are never generated: the engine suppresses them before the softmax, as `mt.decoding` does.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from torch import Tensor, nn

from mt.config import Config
from mt.data.shortlist import Shortlist
from mt.data.tokenizer import EOS, SOS, UNK
from mt.data.tokenizer_kinds import TokenizerPair
from mt.decoding.settings import TranslationSettings
from mt.model.embedding import Embedding
from mt.model.layers import DecoderLayer, EncoderLayer, FeedForward, Sublayer
from mt.model.positions import LearnedPositions
from mt.model.transformer import Transformer, alignment_layer
from mt.storage import atomic
from mt.storage.run_dir import VOCABULARY_MAP, ModelDir

if TYPE_CHECKING:
    from ctranslate2.specs import TransformerSpec

NUMBER_FORMATS = ("float32", "int8")


def convert(
    model: Transformer, config: Config, tokenizers: TokenizerPair, folder: ModelDir, shortlist: Shortlist | None = None
) -> None:
    """Write the CTranslate2 part of a model folder: models in float32 and int8, and the translation settings.

    The model is in float32, on any device. A shortlist becomes CTranslate2's vocabulary map.
    """
    for number_format in NUMBER_FORMATS:
        target = folder.converted(number_format)
        write_converted(model, config, tokenizers, target, number_format)
        if shortlist is not None:
            atomic.write_text(target / VOCABULARY_MAP, _vocabulary_map(shortlist, tokenizers))
    atomic.write_json(folder.settings, TranslationSettings.of(config).as_dict())


def write_converted(
    model: Transformer,
    config: Config,
    tokenizers: TokenizerPair,
    target: Path,
    number_format: str,
    positions: int | None = None,
) -> None:
    """Write one CTranslate2 model in float32, float16 or int8, complete with its vocabularies, into a folder.

    The model is in float32, on any device. `positions` is the length of the position tables, by default the longest
    that `mt` needs; a table of learned positions is extended by repeating its last row.
    """
    spec = _spec(model, config, positions or TranslationSettings.of(config).max_positions)
    spec.register_source_vocabulary(tokenizers.source.pieces)
    spec.register_target_vocabulary(tokenizers.target.pieces)
    spec.validate()
    spec.optimize(quantization=number_format)
    target.mkdir(parents=True, exist_ok=True)
    spec.save(str(target))


def _vocabulary_map(shortlist: Shortlist, tokenizers: TokenizerPair) -> str:
    """Return one line per source piece: piece, tab, its target pieces; those of an empty one are for every sentence.

    The format cannot represent a piece that contains white space, such as a tab.
    """
    source, target = tokenizers.source.pieces, tokenizers.target.pieces
    lines = [("", shortlist.always), *((source[i], targets) for i, targets in shortlist.by_source.items())]
    spaced = {piece for piece in (*source, *target) if any(map(str.isspace, piece))}
    return "".join(
        f"{piece}\t{' '.join(target[i] for i in ids if target[i] not in spaced)}\n"
        for piece, ids in lines
        if piece not in spaced
    )


def _empty_spec(config: Config) -> "TransformerSpec":
    from ctranslate2.specs import Activation, TransformerDecoderSpec, TransformerSpec
    from ctranslate2.specs.transformer_spec import TransformerEncoderSpec

    shape = config.model
    activations = {"relu": Activation.RELU, "gelu": Activation.GELU}  # others are, or are gated by, swish
    common: dict[str, Any] = {
        "pre_norm": shape.norm == "pre",
        "activation": activations.get(shape.activation, Activation.SWISH),
        "ffn_glu": shape.activation == "swiglu",
        "layernorm_embedding": shape.embedding_norm,
    }
    if shape.positions == "rotary":
        common |= {"rotary_dim": shape.d_model // shape.n_heads, "rotary_interleave": False}
    # The attention that the library returns is then the one `align_words` expects.
    aligning = {
        "alignment_layer": alignment_layer(shape.decoder_layers),
        "alignment_heads": 1 if config.is_guided else shape.n_heads,
    }
    return TransformerSpec(
        TransformerEncoderSpec(shape.encoder_layers, shape.n_heads, **common),
        TransformerDecoderSpec(shape.decoder_layers, shape.n_heads, **common, **aligning),
    )


def _spec(model: Transformer, config: Config, positions: int) -> "TransformerSpec":
    shape, spec = config.model, _empty_spec(config)
    spec.config.unk_token, spec.config.bos_token, spec.config.eos_token = UNK, SOS, EOS
    spec.config.decoder_start_token = SOS
    spec.encoder.scale_embeddings = spec.decoder.scale_embeddings = shape.scale_embeddings
    spec.config.add_source_bos = shape.source_format.startswith("<s>")
    spec.config.add_source_eos = not shape.source_format.endswith("lang")
    [spec.config.layer_norm_epsilon] = {module.eps for module in model.modules() if isinstance(module, nn.LayerNorm)}
    _embedding(spec.encoder, spec.encoder.embeddings[0], model.source_embedding, positions)
    _embedding(spec.decoder, spec.decoder.embeddings, model.target_embedding, positions)
    for theirs, encoder_layer in zip(spec.encoder.layer, cast(Iterable[EncoderLayer], model.encoder), strict=True):
        _self_attention(theirs.self_attention, encoder_layer)
        _feed_forward(theirs.ffn, encoder_layer.residuals[1], encoder_layer.feed_forward)
    for theirs, layer in zip(spec.decoder.layer, cast(Iterable[DecoderLayer], model.decoder), strict=True):
        _self_attention(theirs.self_attention, layer)
        cross = layer.cross_attention
        _attention(theirs.attention, layer.residuals[1], cross.q_proj, cross.kv_proj, cross.out_proj)
        _feed_forward(theirs.ffn, layer.residuals[2], layer.feed_forward)
    if shape.norm == "pre":
        _norm(spec.encoder.layer_norm, model.encoder_norm)
        _norm(spec.decoder.layer_norm, model.decoder_norm)
    if shape.embedding_norm:
        _norm(spec.encoder.layernorm_embedding, model.source_embedding.norm)
        _norm(spec.decoder.layernorm_embedding, model.target_embedding.norm)
    _linear(spec.decoder.projection, model.output)
    return spec


def _embedding(stack: Any, tokens: Any, ours: Embedding, max_positions: int) -> None:
    tokens.weight = _array(ours.tokens.weight)
    tokens.multiply_by_sqrt_depth = True
    if ours.positions is None:
        if hasattr(stack, "position_encodings"):  # an encoder's specification has them with rotary positions, too
            del stack.position_encodings
    elif isinstance(ours.positions, LearnedPositions):
        table = _array(ours.positions.table)
        padding = ((0, max(0, max_positions - len(table))), (0, 0))
        stack.position_encodings.encodings = np.pad(table, padding, mode="edge")
    else:
        stack.position_encodings.encodings = _array(ours.positions.sinusoids(max_positions))


def _self_attention(theirs: Any, ours: EncoderLayer | DecoderLayer) -> None:
    _attention(theirs, ours.residuals[0], ours.self_attention.in_proj, ours.self_attention.out_proj)


def _attention(theirs: Any, sublayer: nn.Module, *projections: nn.Linear) -> None:
    _norm(theirs.layer_norm, cast(Sublayer, sublayer).norm)
    for target, projection in zip(theirs.linear, projections, strict=True):
        _linear(target, projection)


def _feed_forward(theirs: Any, sublayer: nn.Module, ours: FeedForward) -> None:
    _norm(theirs.layer_norm, cast(Sublayer, sublayer).norm)
    _linear(theirs.linear_0, ours.up)
    if ours.activation == "swiglu":
        gate, linear = theirs.linear_0, theirs.linear_0_noact
        gate.weight, linear.weight = (half.copy() for half in np.split(gate.weight, 2))
        if ours.up.bias is not None:
            gate.bias, linear.bias = (half.copy() for half in np.split(gate.bias, 2))
    _linear(theirs.linear_1, ours.down)


def _norm(theirs: Any, ours: nn.Module) -> None:
    theirs.gamma = _array(cast(nn.LayerNorm, ours).weight)
    theirs.beta = np.zeros_like(theirs.gamma) if ours.bias is None else _array(cast(Tensor, ours.bias))


def _linear(theirs: Any, ours: nn.Linear) -> None:
    theirs.weight = _array(ours.weight)
    if ours.bias is not None:
        theirs.bias = _array(ours.bias)


def _array(tensor: Tensor) -> np.ndarray[Any, Any]:
    """Copy a tensor, since the library quantizes in place."""
    return tensor.detach().float().cpu().numpy().copy()
