"""Weights of transformers' encoder-decoder classes under our names.

Their layers have the same names in all classes. Where positions are sinusoids, theirs are all sines, then all cosines,
so the dimensions of d_model are permuted, as `mt.extras.export.huggingface_weights` does in the other direction.

V, U their and our vocabulary   D d_model   P positions
"""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from mt.config import Config
from mt.data.tokenizer import SOS_ID
from mt.data.tokenizer_kinds import TokenizerPair
from mt.errors import InputError
from mt.extras.export.huggingface_weights import huggingface_names, permute_d_model
from mt.extras.importing.safe_tensors import Tensors
from mt.model.build import TranslationModel

_SIDES = {"source": "encoder", "target": "decoder"}
# A tied matrix has one of these names.
_SHARED = ("model.shared", "model.decoder.embed_tokens", "model.encoder.embed_tokens", "lm_head")
_TIED_TARGET = ("model.decoder.embed_tokens", "lm_head", "model.shared")  # where the source has another matrix
_UNUSED = re.compile(r"(model\.(en|de)coder\.embed_positions\.weights?|final_logits_bias)")
NEVER = -100.0  # bias of a piece that only begins a translation; a lower one would inflate a smoothed loss


@dataclass(frozen=True)
class Family:
    """An architecture: keys of our model section, and differences between their positions and ours."""

    model: Mapping[str, Any]
    offset: int = 0  # unused rows at the start of their position table
    sinusoids: Callable[[int, int], Tensor] | None = None  # makes the table (P, D), learned here but computed there
    sines_first: bool = True  # their sinusoids are all sines, then all cosines; ours alternate


@dataclass(frozen=True)
class Plan:
    """A model to be made of a folder's weights."""

    config: Config
    tokenizers: TokenizerPair
    source_rows: Tensor  # for each of our ids (U,) the row of their embeddings
    target_rows: Tensor
    vocab_sizes: tuple[int, int]  # V of their source and target embeddings
    family: Family
    tied: bool  # their output and target embeddings are one matrix
    one_matrix: bool  # if tied: their source embeddings are the same matrix, too
    exact: bool = False  # our own export: every row is a token's, and biases that we lack are zero


def tensor2tensor_sinusoids(length: int, d_model: int, first: int = 2) -> Tensor:
    """Return positions (length, D) from `first` on, by default M2M-100's: sines, then cosines."""
    half = d_model // 2
    frequencies = torch.exp(torch.arange(half).float() * -(math.log(10000) / max(half - 1, 1)))
    angles = torch.arange(first, length + first).float()[:, None] * frequencies
    table = torch.cat([angles.sin(), angles.cos()], dim=1)
    return torch.nn.functional.pad(table, (0, d_model % 2))


def read_weights(tensors: Tensors, plan: Plan, model: TranslationModel) -> dict[str, Tensor]:
    """Return all weights of a model by our names; the model itself may have no memory.

    Raises:
        InputError: a tensor is missing, has another shape, or is not one of this architecture.
    """
    shape = plan.config.model
    dimensions = torch.arange(shape.d_model)
    if shape.positions == "sinusoidal" and plan.family.sines_first:
        dimensions = torch.cat([dimensions[::2], dimensions[1::2]]).argsort()
    weights = {
        name: permute_d_model(name, _read(tensors, plan, name, parameter.shape), dimensions)
        for name, parameter in model.named_parameters()
    }
    aliases = {f"{name}.weight" for name in (_SHARED if shape.tie_embeddings else _SHARED[:1])}
    for name in sorted(tensors.by_name.keys() - tensors.names_read - aliases):
        if plan.exact and name.endswith(".bias") and tensors.by_name[name].any():
            message = f"{tensors.folder}: {name!r:.100} is not zero, but the model was trained with model.bias: false"
            raise InputError(message, "train it without biases, or export a model that has them")
        if not _UNUSED.fullmatch(name) and not (plan.exact and name.endswith(".bias")):
            raise InputError(f"{tensors.folder}: unexpected tensor {name!r:.100}, so this is another architecture")
    return weights


def _read(tensors: Tensors, plan: Plan, name: str, shape: Sequence[int]) -> Tensor:
    """Return one of our weights, with its dimensions in their order."""
    module, _, kind = name.rpartition(".")
    side, _, part = module.partition("_embedding.")
    if part == "positions":
        if plan.family.sinusoids is not None:
            return plan.family.sinusoids(*shape)
        offset = plan.family.offset
        return tensors.read(f"model.{_SIDES[side]}.embed_positions.weight", (shape[0] + offset, shape[1]))[offset:]
    if part == "norm":
        return tensors.read(f"model.{_SIDES[side]}.layernorm_embedding.{kind}", shape)
    if part == "tokens" or module == "output":
        return _rows(tensors, plan, side if part else "output", kind, shape)
    names = huggingface_names(module)
    part_shape = (shape[0] // len(names), *shape[1:])
    return torch.cat([tensors.read(f"{each}.{kind}", part_shape) for each in names])


def _rows(tensors: Tensors, plan: Plan, side: str, kind: str, shape: Sequence[int]) -> Tensor:
    """Return the rows of our ids in a matrix of their embeddings or output, or in the output's bias."""
    is_source = side == "source"
    rows, count = (plan.source_rows if is_source else plan.target_rows), plan.vocab_sizes[not is_source]
    if kind == "bias":
        has_bias = "final_logits_bias" in tensors.by_name
        bias = tensors.read("final_logits_bias", (1, count))[0][rows] if has_bias else torch.zeros(len(rows))
        if not plan.exact:
            bias[SOS_ID] = NEVER
        return bias
    first = {"source": "model.encoder.embed_tokens", "target": "model.decoder.embed_tokens", "output": "lm_head"}[side]
    others: Sequence[str] = () if side == "output" else _SHARED[:1]
    if plan.tied and (plan.one_matrix or not is_source):
        others = _SHARED if plan.one_matrix else _TIED_TARGET
    names = [f"{each}.weight" for each in (first, *others)]
    name = next((each for each in names if each in tensors.by_name), names[0])
    return tensors.read(name, (count, shape[1]))[rows]
