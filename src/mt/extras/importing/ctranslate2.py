"""Folders of CTranslate2 whose architecture is ours.

They come from `mt export ctranslate2`, or were converted from MarianMT, M2M-100, NLLB or mBART.
"""

import json
import math
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mt.bundle.converted_file import NUMBER_TYPES, Variable, read_variables, scales_of
from mt.decoding.engine import UnusableError
from mt.errors import InputError
from mt.extras.export.common import MT_FOLDER
from mt.extras.importing.arrays import SIDES, add_start, describe
from mt.extras.importing.huggingface import TAGGED, Description, Languages, plan_of_export
from mt.extras.importing.safe_tensors import COPY_AGAIN, Tensors, read_mapping
from mt.extras.importing.vocabularies import marian_vocabulary, multilingual_vocabulary
from mt.extras.importing.weights import Plan
from mt.storage.run_dir import tokenizer_names

Array = np.ndarray[Any, Any]

_EPSILON = 1e-5
# Names of a layer's modules here and in transformers; a matrix that joins several is split.
_MODULES = {
    "self_attention/linear_0": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    "self_attention/linear_1": ("self_attn.out_proj",),
    "self_attention/layer_norm": ("self_attn_layer_norm",),
    "attention/linear_0": ("encoder_attn.q_proj",),
    "attention/linear_1": ("encoder_attn.k_proj", "encoder_attn.v_proj"),
    "attention/linear_2": ("encoder_attn.out_proj",),
    "attention/layer_norm": ("encoder_attn_layer_norm",),
    "ffn/linear_0": ("fc1",),
    "ffn/linear_0_noact": ("fc1_noact",),
    "ffn/linear_1": ("fc2",),
    "ffn/layer_norm": ("final_layer_norm",),
}
_STACK_NORMS = {"layer_norm": "layer_norm", "layernorm_embedding": "layernorm_embedding"}
_KINDS = {"weight": "weight", "bias": "bias", "gamma": "weight", "beta": "bias"}
# Variables that are not weights, with the value that our architecture requires, if any
_FLAGS: dict[str, int | None] = {
    **dict.fromkeys(("alibi", "multi_query_attention", "embeddings_merge"), 0),
    **dict.fromkeys(("alibi_use_positive_positions", "alignment_heads", "alignment_layer", "scale_alibi")),
    # These two repeat scale_embeddings.
    **dict.fromkeys(("embeddings/multiply_by_sqrt_depth", "embeddings_0/multiply_by_sqrt_depth")),
    **dict.fromkeys(("activation", "num_heads", "pre_norm", "scale_embeddings", "start_from_zero_embedding")),
    "self_attention/rotary_dim": None,
    "self_attention/rotary_interleave": 0,
    "self_attention/rotary_base": 10_000,
}
_ROTARY_LAYER = re.compile(r"layer_\d+/(?=self_attention/rotary_)")


def read_ctranslate2(folder: Path, name: str, languages: Languages) -> tuple[Plan, Tensors]:
    """Read a folder of CTranslate2.

    Raises:
        InputError: it is damaged or of another architecture, its tokenizer is missing, or a language must be chosen.
    """
    try:
        variables = read_variables(folder / "model.bin")
    except UnusableError as error:
        raise InputError(str(error), "convert the model again with CTranslate2 4") from None
    flags, tensors = _flags(folder, variables), _weights(folder, variables)
    settings = read_mapping(folder / "config.json")
    if settings.get("layer_norm_epsilon") not in (None, _EPSILON):
        raise InputError(f"{folder / 'config.json'}: layer_norm_epsilon is not {_EPSILON}, as ours is")
    shared = (folder / "shared_vocabulary.json").is_file()
    sides = ("shared", "shared") if shared else ("source", "target")
    pieces = [_pieces(folder / f"{side}_vocabulary.json") for side in sides]
    is_gated = any("/linear_0_noact/" in name for name in variables)
    theirs, family = describe(folder, tensors, flags, is_gated)
    if (folder / MT_FOLDER).is_dir():
        plan = plan_of_export(folder, sines_first=False)
        if [tokenizer.pieces for tokenizer in plan.tokenizers] != pieces:
            raise InputError(f"{folder}: its vocabulary is not that of its tokenizer")
        return plan, Tensors(folder, tensors)
    if all((folder / each).is_file() for each in tokenizer_names(shared)):
        message = f"{folder}: this is an export of mt, and lacks its folder {MT_FOLDER}"
        raise InputError(message, "copy the whole folder, or export the model again")
    if [*map(len, pieces)] != [theirs["vocab_size"], theirs["decoder_vocab_size"]]:
        raise InputError(f"{folder}: its vocabularies do not have a piece for each row of its embeddings", COPY_AGAIN)
    if shared and (found := multilingual_vocabulary(folder, pieces[0])):
        vocabulary, theirs["model_type"] = found
        family = replace(family, model={**family.model, **TAGGED})
        theirs["eos_token_id"] = vocabulary.pieces[0].get("</s>")
        # The first mBART has 25 languages and begins with one. The converter may take mBART-50 for it.
        if settings.get("decoder_start_token") == "</s>" or len(vocabulary.tags) > 25:
            theirs["decoder_start_token_id"] = theirs["eos_token_id"]
    else:
        if flags.get("start_from_zero_embedding"):
            add_start(tensors, theirs, len(pieces[1]))
            pieces = [[*each, "<pad>"] for each in pieces]
        source, target = ({piece: i for i, piece in enumerate(each)} for each in pieces)
        models = folder / "source.spm", folder / "target.spm"
        vocabulary = marian_vocabulary(models, source, None if shared else target)
    plan = Description(folder, name, theirs, {}, vocabulary, family).plan(languages)
    return plan, Tensors(folder, tensors)


def _flags(folder: Path, variables: Mapping[str, Variable]) -> dict[str, float]:
    """Return the settings of the encoder and the decoder, which must agree where both have one."""
    flags: dict[str, float] = {}
    for name, variable in variables.items():
        side, _, flag = _ROTARY_LAYER.sub("", name).partition("/")
        if side in SIDES and flag in _FLAGS and not variable.shape:
            required, number = _FLAGS[flag], variable.value
            if flag == "scale_embeddings" and NUMBER_TYPES[variable.number_type] == "f" and number == 1:
                number = 0.0  # a factor, not a switch
            agrees = math.isfinite(number) and flags.setdefault(flag, number) == number
            if not agrees or (required is not None and number != required):
                raise InputError(f"{folder / 'model.bin'}: {name} is {number:g}, so this is another architecture")
    return flags


def _weights(folder: Path, variables: Mapping[str, Variable]) -> dict[str, Tensor]:
    """Return the weights by transformers' names, in float32."""
    names = {
        "encoder/embeddings_0/weight": "model.encoder.embed_tokens.weight",
        "decoder/embeddings/weight": "model.decoder.embed_tokens.weight",
        "decoder/projection/weight": "lm_head.weight",
        "decoder/projection/bias": "final_logits_bias",
        **{f"{side}/position_encodings/encodings": f"model.{side}.embed_positions.weight" for side in SIDES},
    }
    content = np.memmap(folder / "model.bin", dtype=np.uint8, mode="r")
    scales = scales_of(variables)
    tensors: dict[str, Tensor] = {}
    for name, variable in variables.items():
        side, _, rest = _ROTARY_LAYER.sub("", name).partition("/")
        if (side in SIDES and rest in _FLAGS) or name.endswith("_scale"):
            continue
        module, _, kind = rest.rpartition("/")
        scale = scales.get(variable)
        if scale is not None and math.prod(scale.shape) not in (1, *variable.shape[:1]):
            raise InputError(f"{folder / 'model.bin'}: {name!r:.100} does not have one scale for each row")
        weight = _read(content, variable, scale)
        if match := re.fullmatch(r"layer_(\d+)/(.+)", module):
            their_modules = [f"model.{side}.layers.{match[1]}.{each}" for each in _MODULES.get(match[2], ())]
        else:
            their_modules = [f"model.{side}.{_STACK_NORMS[module]}"] if module in _STACK_NORMS else []
        if name in names:
            tensors[names[name]] = weight
        elif their_modules and kind in _KINDS and variable.shape and len(weight) % len(their_modules) == 0:
            parts = weight.chunk(len(their_modules))
            tensors |= {f"{each}.{_KINDS[kind]}": part for each, part in zip(their_modules, parts, strict=True)}
        else:
            message = f"unexpected variable {name!r:.100}, so this is another architecture"
            raise InputError(f"{folder / 'model.bin'}: {message}")
    for name in [name for name in tensors if ".fc1_noact." in name]:  # the linear half of a gated layer
        gate = name.replace("fc1_noact", "fc1")
        if gate in tensors and tensors[gate].shape == tensors[name].shape:  # else `read_weights` refuses the model
            tensors[gate] = torch.cat([tensors[gate], tensors.pop(name)])
    return tensors


def _read(content: Array, variable: Variable, scale: Variable | None) -> Tensor:
    """Return a tensor in float32; int8 was multiplied by a scale for each row, int16 by a single one."""
    dtype = np.dtype(NUMBER_TYPES[variable.number_type])
    size = math.prod(variable.shape) * dtype.itemsize
    array = content[variable.offset : variable.offset + size].view(dtype).reshape(variable.shape)
    weight = torch.from_numpy(array.astype(np.float32))
    if NUMBER_TYPES[variable.number_type] == "H":  # bfloat16: the upper halves of float32
        weight = torch.from_numpy((array.astype(np.uint32) << 16).view(np.float32))
    return weight if scale is None else weight / _read(content, scale, None).reshape(-1, *[1] * (weight.dim() - 1))


def _pieces(path: Path) -> list[str]:
    try:
        pieces = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"{path}: cannot be read: {str(error)[:200]}", "name a folder of CTranslate2 4") from None
    if not isinstance(pieces, list) or not all(isinstance(piece, str) for piece in pieces):
        raise InputError(f"{path}: not a list of pieces")
    return pieces
