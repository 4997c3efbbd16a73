"""A trained model in CTranslate2's format, written in pure Python through its public specifications.

CTranslate2 computes what our model computes, so the conversion is a matter of names. What differs:

* its position tables have an end, so they are as long as the longest translation can be;
* it knows tokens by their strings, ours are those of the tokenizer;
* PAD, UNK and SOS are never generated: here the engine asks for that, there as here before the softmax.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from torch import Tensor, nn

from mt.config import Config
from mt.data.shortlist import Shortlist
from mt.data.tokenizer import EOS, SOS, UNK, BpeTokenizer, TokenizerPair
from mt.decoding.settings import TranslationSettings
from mt.model.attention import CrossAttention, SelfAttention
from mt.model.embedding import Embedding, LearnedPositions
from mt.model.layers import DecoderLayer, EncoderLayer, FeedForward, Sublayer
from mt.model.transformer import Transformer
from mt.storage import atomic
from mt.storage.run_dir import VOCABULARY_MAP, ModelDir

if TYPE_CHECKING:
    from ctranslate2.specs import TransformerSpec

NUMBER_FORMATS = ("float32", "int8")

Numbers = np.ndarray[Any, Any]


def convert(
    model: Transformer,
    config: Config,
    tokenizers: TokenizerPair,
    folder: ModelDir,
    shortlist: Shortlist | None = None,
) -> None:
    """Writes the CTranslate2 part of a model folder: complete models in float32 and int8, and the settings.

    Args:
        model: on any device, in float32.
        config: what it was built from.
        tokenizers: of both languages.
        folder: being written.
        shortlist: to become the library's vocabulary map.
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
    """Writes one complete CTranslate2 model.

    Args:
        model: on any device, in float32.
        config: what it was built from.
        tokenizers: of both languages.
        target: the folder to make.
        number_format: float32, float16 or int8.
        positions: the length of its position tables; None is as long as `mt` ever needs. Learned positions end with
            the model's; what is asked for beyond repeats the last.
    """
    spec = _spec(model, config, positions or TranslationSettings.of(config).max_positions)
    for register, tokenizer in (
        (spec.register_source_vocabulary, tokenizers.source),
        (spec.register_target_vocabulary, tokenizers.target),
    ):
        register(_pieces(tokenizer))
    spec.validate()
    spec.optimize(quantization=number_format)
    target.mkdir(parents=True, exist_ok=True)
    spec.save(str(target))


def _vocabulary_map(shortlist: Shortlist, tokenizers: TokenizerPair) -> str:
    """One line a source piece: itself, a tab, and its target pieces; the line without one is for all sentences."""
    source, target = (_pieces(tokenizer) for tokenizer in (tokenizers.source, tokenizers.target))
    lines = [("", shortlist.always), *((source[i], targets) for i, targets in shortlist.by_source.items())]
    return "".join(
        f"{piece}\t{' '.join(target[i] for i in ids if _can_stand(target[i]))}\n"
        for piece, ids in lines
        if _can_stand(piece)
    )


def _can_stand(piece: str) -> bool:
    """The map has no way to write a piece with white space in it, such as a tab."""
    return not any(character.isspace() for character in piece)


def _pieces(tokenizer: BpeTokenizer) -> list[str]:
    return tokenizer.tokens(range(tokenizer.vocab_size))


def _spec(model: Transformer, config: Config, positions: int) -> "TransformerSpec":
    from ctranslate2.specs import Activation, TransformerSpec

    shape = config.model
    activations = {"relu": Activation.RELU, "gelu": Activation.GELU, "swiglu": Activation.SWISH}
    spec = TransformerSpec.from_config(
        (shape.encoder_layers, shape.decoder_layers),
        shape.n_heads,
        pre_norm=shape.norm == "pre",
        activation=activations[shape.activation],
        ffn_glu=shape.activation == "swiglu",
        # What the library gives as attention is then what `align_words` reads.
        alignment_layer=max(0, shape.decoder_layers - 2),
        alignment_heads=shape.n_heads,
    )
    spec.config.unk_token, spec.config.bos_token, spec.config.eos_token = UNK, SOS, EOS
    spec.config.decoder_start_token = SOS
    spec.config.add_source_bos = spec.config.add_source_eos = True
    spec.config.layer_norm_epsilon = _epsilon(model)
    _embedding(spec.encoder.embeddings[0], spec.encoder.position_encodings, model.source_embedding, positions)
    _embedding(spec.decoder.embeddings, spec.decoder.position_encodings, model.target_embedding, positions)
    for encoder_layer, ours in zip(spec.encoder.layer, cast(Iterable[EncoderLayer], model.encoder), strict=True):
        _self_attention(encoder_layer.self_attention, ours.self_attention, _around(ours, 0))
        _feed_forward(encoder_layer.ffn, ours.feed_forward, _around(ours, 1))
    for decoder_layer, layer in zip(spec.decoder.layer, cast(Iterable[DecoderLayer], model.decoder), strict=True):
        _self_attention(decoder_layer.self_attention, layer.self_attention, _around(layer, 0))
        _cross_attention(decoder_layer.attention, layer.cross_attention, _around(layer, 1))
        _feed_forward(decoder_layer.ffn, layer.feed_forward, _around(layer, 2))
    if shape.norm == "pre":
        _norm(spec.encoder.layer_norm, model.encoder_norm)
        _norm(spec.decoder.layer_norm, model.decoder_norm)
    _linear(spec.decoder.projection, model.output)
    return spec


def _around(layer: EncoderLayer | DecoderLayer, block: int) -> Sublayer:
    return cast(Sublayer, layer.residuals[block])


def _epsilon(model: Transformer) -> float:
    """That of all layer norms."""
    [epsilon] = {module.eps for module in model.modules() if isinstance(module, nn.LayerNorm)}
    return epsilon


def _embedding(tokens: Any, positions: Any, ours: Embedding, max_positions: int) -> None:
    tokens.weight = _numbers(ours.tokens.weight)
    tokens.multiply_by_sqrt_depth = True
    kind = ours.positions
    if isinstance(kind, LearnedPositions):
        table = _numbers(kind.table)
        positions.encodings = np.pad(table, ((0, max(0, max_positions - len(table))), (0, 0)), mode="edge")
    else:
        positions.encodings = _numbers(kind.sinusoids(max_positions))


def _self_attention(theirs: Any, ours: SelfAttention, around: Sublayer) -> None:
    _norm(theirs.layer_norm, around.norm)
    _linear(theirs.linear[0], ours.in_proj)
    _linear(theirs.linear[1], ours.out_proj)


def _cross_attention(theirs: Any, ours: CrossAttention, around: Sublayer) -> None:
    _norm(theirs.layer_norm, around.norm)
    _linear(theirs.linear[0], ours.q_proj)
    _linear(theirs.linear[1], ours.kv_proj)
    _linear(theirs.linear[2], ours.out_proj)


def _feed_forward(theirs: Any, ours: FeedForward, around: Sublayer) -> None:
    _norm(theirs.layer_norm, around.norm)
    _linear(theirs.linear_0, ours.up)
    if ours.activation == "swiglu":
        theirs.linear_0.weight, theirs.linear_0_noact.weight = _halves(theirs.linear_0.weight)
        if ours.up.bias is not None:
            theirs.linear_0.bias, theirs.linear_0_noact.bias = _halves(theirs.linear_0.bias)
    _linear(theirs.linear_1, ours.down)


def _norm(theirs: Any, ours: nn.Module) -> None:
    gamma = _numbers(cast(nn.LayerNorm, ours).weight)
    theirs.gamma = gamma
    theirs.beta = np.zeros_like(gamma) if ours.bias is None else _numbers(cast(Tensor, ours.bias))


def _linear(theirs: Any, ours: nn.Linear) -> None:
    theirs.weight = _numbers(ours.weight)
    if ours.bias is not None:
        theirs.bias = _numbers(ours.bias)


def _halves(joined: Numbers) -> tuple[Numbers, Numbers]:
    first, second = np.split(joined, 2)
    return first.copy(), second.copy()


def _numbers(tensor: Tensor) -> Numbers:
    """A copy: the library quantizes in place."""
    return tensor.detach().float().cpu().numpy().copy()
