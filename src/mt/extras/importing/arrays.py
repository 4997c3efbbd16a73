"""Architecture of a model without config.json, inferred from its weights under transformers' names."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from mt.errors import InputError
from mt.extras.importing.weights import Family
from mt.model.positions import SinusoidalPositions

SIDES = ("encoder", "decoder")
_EMBEDDINGS = ("model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight", "lm_head.weight")
_POSITION_TABLES = tuple(f"model.{side}.embed_positions.weight" for side in SIDES)
_ROTARY_POSITIONS = 512  # of a model that does not say how many; it has no limit
_ACTIVATIONS = {0: "relu", 2: "silu", 3: "gelu"}  # of CTranslate2, by number


def describe(
    folder: Path, tensors: dict[str, Tensor], flags: Mapping[str, float], is_gated: bool = False
) -> tuple[dict[str, Any], Family]:
    """Return the content that transformers' config.json would have, and the architecture.

    The flags are `activation`, `num_heads`, `pre_norm`, `scale_embeddings` and `self_attention/rotary_dim` as
    CTranslate2 has them. In a gated model `fc1` joins the gate and the linear half.

    Raises:
        InputError: the activation is not one of ours, or a weight is missing.
    """
    if "final_logits_bias" in tensors:  # (1, V) in transformers
        tensors["final_logits_bias"] = tensors["final_logits_bias"][None]
    try:
        source, target, output = (tensors[name] for name in _EMBEDDINGS)
        rotary = flags.get("self_attention/rotary_dim")  # which takes the place of tables
        positions = [] if rotary else [tensors[name] for name in _POSITION_TABLES]
        inner = tensors["model.decoder.layers.0.fc1.weight"]
        activation = _ACTIVATIONS.get(int(flags["activation"]))
        heads, pre_norm, scale = int(flags["num_heads"]), bool(flags["pre_norm"]), flags["scale_embeddings"]
    except KeyError as error:
        raise InputError(f"{folder}: it has no {error}, so this is another architecture") from None
    if any(matrix.dim() != 2 or not matrix.numel() for matrix in (source, target, output, inner, *positions)):
        raise InputError(f"{folder}: one of its matrices is empty or has other than two dimensions")
    if activation is None:
        raise InputError(f"{folder}: its activation function is not one of ours ({', '.join(_ACTIVATIONS.values())})")
    d_model = source.shape[1]
    _refuse_others(folder, heads, d_model, scale, rotary)
    if rotary and any(name in tensors for name in _POSITION_TABLES):
        raise InputError(f"{folder}: one side has rotary positions and the other a table; ours are alike")
    theirs = {
        "model_type": "marian",
        "d_model": d_model,
        **{f"{side}_attention_heads": heads for side in SIDES},
        **{f"{side}_ffn_dim": len(inner) // (1 + is_gated) for side in SIDES},
        **{f"{side}_layers": _layers(tensors, side) for side in SIDES},
        "activation_function": activation,
        "scale_embedding": bool(scale),
        "tie_word_embeddings": torch.equal(target, output),
        "share_encoder_decoder_embeddings": torch.equal(source, target),
        "vocab_size": len(source),
        "decoder_vocab_size": len(target),
        "max_position_embeddings": min(map(len, positions), default=_ROTARY_POSITIONS),
        "decoder_start_token_id": 0,
    }
    kind, sines_first = _positions(positions[0], d_model) if positions else ("rotary", True)
    ours: dict[str, Any] = {
        "norm": "pre" if pre_norm else "post",
        "positions": kind,
        "source_format": "text </s>",
        "embedding_norm": "model.encoder.layernorm_embedding.weight" in tensors,
    }
    return theirs, Family(ours | ({"activation": "swiglu"} if is_gated else {}), sines_first=sines_first)


def _refuse_others(folder: Path, heads: int, d_model: int, scale: float, rotary: float | None) -> None:
    if heads < 1:
        raise InputError(f"{folder}: it has {heads} attention heads, so it is damaged")
    if scale not in (0, 1) and abs(scale - d_model**0.5) > 1e-3:
        raise InputError(f"{folder}: its embeddings are multiplied by {scale:g}, and ours by the root of d_model or 1")
    if rotary not in (None, d_model // heads):
        raise InputError(f"{folder}: {rotary:g} of the {d_model // heads} units of its heads are rotated, and ours all")


def _positions(table: Tensor, d_model: int) -> tuple[str, bool]:
    """Return the kind of positions that a table (P, D) holds, and whether all sines come first."""
    if table.shape[1] == d_model and d_model % 2 == 0:
        ours = SinusoidalPositions(d_model, 0).sinusoids(len(table))
        theirs = torch.cat([ours[:, ::2], ours[:, 1::2]], dim=1)
        for expected, sines_first in ((ours, False), (theirs, True)):
            if torch.allclose(expected, table, atol=1e-4):
                return "sinusoidal", sines_first
    return "learned", True


def add_start(tensors: dict[str, Tensor], theirs: dict[str, Any], size: int) -> None:
    """Append the row of zeros with which Marian begins translations, behind `size` target rows; it is HF's `<pad>`."""
    for name in _EMBEDDINGS:
        tensors[name] = F.pad(tensors[name], (0, 0, 0, 1))
    if "final_logits_bias" in tensors:
        tensors["final_logits_bias"] = F.pad(tensors["final_logits_bias"], (0, 1))
    theirs["vocab_size"] += 1
    theirs["decoder_vocab_size"] += 1
    theirs["decoder_start_token_id"] = size


def _layers(tensors: Mapping[str, Tensor], side: str) -> int:
    return len([name for name in tensors if name.startswith(f"model.{side}.layers.") and name.endswith(".fc1.weight")])
