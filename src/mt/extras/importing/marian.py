"""Models of Marian: an `.npz` with the parameters and their configuration, SentencePiece models, and vocabularies.

Sizes are checked before an array is read, and nothing is unpickled. Matrices multiply from the right, so they are
transposed. The decoder begins with a vector of zeros. Marian's sinusoids have other frequencies than the paper's, so
they become a table of learned positions.
"""

import math
import re
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
import yaml
from torch import Tensor

from mt.data.sentencepiece_tokenizer import SentencePieceTokenizer
from mt.errors import InputError
from mt.extras.importing.arrays import SIDES, add_start, describe
from mt.extras.importing.huggingface import Description, Languages
from mt.extras.importing.safe_tensors import COPY_AGAIN, Tensors, plain_yaml, read_mapping
from mt.extras.importing.vocabularies import marian_vocabulary
from mt.extras.importing.weights import Plan, tensor2tensor_sinusoids
from mt.text.languages import base_language

_CONFIG = "special:model.yml"
_POSITIONS = 512  # as in transformers; the sinusoids themselves have no limit
_ACTIVATIONS = {"relu": 0, "swish": 2}  # by CTranslate2's numbers; Marian's gelu is an approximation that we lack
_NORMS = {"dan": False, "n da n": True}  # is it pre-norm, by transformer-preprocess, -postprocess, -postprocess-top
_ALLOWED: dict[str, tuple[Any, ...]] = {
    "type": ("transformer",),
    "right-left": (False,),
    "transformer-decoder-autoreg": ("self-attention",),
    "transformer-no-projection": (False,),
    "transformer-ffn-depth": (2,),
    "transformer-tied-layers": ([],),
    "transformer-ffn-activation": tuple(_ACTIVATIONS),
    "transformer-postprocess-emb": ("d", "", "n", "nd"),
    "transformer-disable-position-embeddings": (False,),
    "transformer-attention-mask": ("default",),
}
# Patterns of names, and transformers' names, which count layers from 0.
_NAMES = {
    r"(\w+coder)_l(\d+)_self_([Wb])([qkv])": r"model.{0}.layers.{1}.self_attn.{3}_proj.{2}",
    r"(\w+coder)_l(\d+)_self_([Wb])o": r"model.{0}.layers.{1}.self_attn.out_proj.{2}",
    r"(\w+coder)_l(\d+)_self_Wo_ln_(\w+?)(?:_pre)?": r"model.{0}.layers.{1}.self_attn_layer_norm.{2}",
    r"(decoder)_l(\d+)_context_([Wb])([qkv])": r"model.{0}.layers.{1}.encoder_attn.{3}_proj.{2}",
    r"(decoder)_l(\d+)_context_([Wb])o": r"model.{0}.layers.{1}.encoder_attn.out_proj.{2}",
    r"(decoder)_l(\d+)_context_Wo_ln_(\w+?)(?:_pre)?": r"model.{0}.layers.{1}.encoder_attn_layer_norm.{2}",
    r"(\w+coder)_l(\d+)_ffn_([Wb])([12])": r"model.{0}.layers.{1}.fc{3}.{2}",
    r"(\w+coder)_l(\d+)_ffn_ffn_ln_(\w+?)(?:_pre)?": r"model.{0}.layers.{1}.final_layer_norm.{2}",
    r"(\w+coder)_()top_ln_(\w+?)(?:_pre)?": r"model.{0}.layer_norm.{2}",
    r"(\w+coder)_()emb_ln_(\w+?)(?:_pre)?": r"model.{0}.layernorm_embedding.{2}",
    r"(\w+coder)_()Wemb": r"model.{0}.embed_tokens.weight",
    r"decoder_ff_logit_out_Wt?": "lm_head.weight",
    r"decoder_ff_logit_out_b": "final_logits_bias",
    r"Wemb": "shared",
    r"Wpos": "positions",
}
# Raised by zipfile and numpy; RuntimeError is for encrypted entries and unknown compressions
_DAMAGE = (ValueError, LookupError, AttributeError, OSError, EOFError, RuntimeError, zipfile.BadZipFile, zlib.error)
_TEXT_LOADER = getattr(yaml, "CBaseLoader", yaml.BaseLoader)  # reads every value as text, six times faster in C
_FLOATS = ("f2", "f4", "f8")  # that torch has
_KINDS = {"W": "weight", "b": "bias", "scale": "weight", "bias": "bias"}


def find_npz(path: Path) -> Path | None:
    """Return the model file at a path, or in a folder; None if there is none.

    Raises:
        InputError: there are several.
    """
    if path.is_file():
        return path if path.suffix == ".npz" else None
    paths = _named(path, "models") or sorted(path.glob("*.npz"))
    found = [each for each in paths if not each.name.endswith(".optimizer.npz")]
    if len(found) > 1:
        raise InputError(f"{path}: it has several models of Marian", f"name one of them, as {found[0]}")
    return found[0] if found else None


def _named(folder: Path, key: str) -> list[Path]:
    """Return the files that decoder.yml lists under a key; a single one needs no list."""
    given = read_mapping(folder / "decoder.yml", {}, plain_yaml).get(key) or []
    return [folder / Path(str(each)).name for each in (given if isinstance(given, list) else [given])]


def read_marian(path: Path, name: str, languages: Languages) -> tuple[Plan, Tensors]:
    """Read a model file and the tokenizers beside it.

    Raises:
        InputError: it is damaged or of another architecture, a vocabulary is missing, or a language must be chosen.
    """
    folder, arrays = path.parent, _load(path)
    config = arrays.pop(_CONFIG, np.zeros(0, np.int8)).tobytes().rstrip(b"\0")
    flags = _settings(path, config)
    tensors = _weights(path, arrays)
    theirs, family = describe(path, tensors, flags)
    models, (source, target) = _vocabularies(folder, languages)
    add_start(tensors, theirs, len(target))
    ids = [{piece: i for i, piece in enumerate([*pieces, "<pad>"])} for pieces in (source, target)]
    vocabulary = marian_vocabulary(models, ids[0], None if source == target else ids[1])
    return Description(folder, name, theirs, {}, vocabulary, family).plan(languages), Tensors(path, tensors)


def _load(path: Path) -> dict[str, np.ndarray[Any, Any]]:
    try:
        with zipfile.ZipFile(path) as archive:
            for entry in archive.infolist():
                with archive.open(entry) as file:
                    version = np.lib.format.read_magic(file)
                    read = getattr(np.lib.format, f"read_array_header_{version[0]}_{version[1]}")
                    shape, _, dtype = read(file)
                is_sized = math.prod(shape) * dtype.itemsize <= entry.file_size <= path.stat().st_size
                is_number = dtype.kind in "iu" or dtype.newbyteorder("=") in _FLOATS
                if dtype.hasobject or not is_number or not is_sized:
                    raise ValueError(f"{entry.filename[:50]} is no array of numbers, or larger than the file")
        with np.load(path, allow_pickle=False) as content:
            return {name: _native(content[name]) for name in content.files}
    except _DAMAGE as error:
        raise InputError(f"{path}: not a model of Marian: {str(error)[:200]}", COPY_AGAIN) from None


def _native(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return floats in float32, and integers in this machine's byte order."""
    return array.astype("f4" if array.dtype.kind == "f" else array.dtype.newbyteorder("="), copy=False)


def _settings(path: Path, content: bytes) -> dict[str, float]:
    """Return the flags that `describe` needs."""
    try:
        config = dict(plain_yaml(content))
        heads, activation = int(config["transformer-heads"]), str(config["transformer-ffn-activation"])
    except (yaml.YAMLError, LookupError, TypeError, ValueError, OverflowError, RecursionError):
        raise InputError(f"{path}: it has no configuration ({_CONFIG})", "take the file that Marian wrote") from None
    steps = (config.get(f"transformer-{key}", "") for key in ("preprocess", "postprocess", "postprocess-top"))
    norms = " ".join(map(str, filter(None, steps)))
    for key, allowed in (*_ALLOWED.items(), ("norms", tuple(_NORMS))):
        given = norms if key == "norms" else config.get(key, allowed[0])
        if given not in allowed:
            raise InputError(f"{path}: {key}: {given!r:.50} is not one of our architectures")
    pre_norm = _NORMS[norms]
    return {"activation": _ACTIVATIONS[activation], "num_heads": heads, "pre_norm": pre_norm, "scale_embeddings": 1}


def _weights(path: Path, arrays: Mapping[str, np.ndarray[Any, Any]]) -> dict[str, Tensor]:
    """Return the weights by transformers' names, all embeddings and positions included."""
    tensors: dict[str, Tensor] = {}
    for name, array in arrays.items():
        their = _name(name)
        if their is None:
            raise InputError(f"{path}: unexpected parameter {name!r:.100}, so this is another architecture")
        tensor = torch.from_numpy(array)
        is_vector = their.endswith("bias") or "norm" in their
        if not is_vector and tensor.dim() != 2:
            raise InputError(f"{path}: parameter {name!r:.100} has {tensor.dim()} dimensions, but a matrix is expected")
        keeps = name.endswith(("Wemb", "Wpos", "_Wt"))
        tensors[their] = tensor.flatten() if is_vector else tensor if keeps else tensor.t()
    if (shared := tensors.pop("shared", None)) is not None:
        for side in SIDES:
            tensors.setdefault(f"model.{side}.embed_tokens.weight", shared)
    target = tensors.get("model.decoder.embed_tokens.weight")
    if target is None or "model.encoder.embed_tokens.weight" not in tensors:
        raise InputError(f"{path}: it has no embeddings")
    tensors.setdefault("lm_head.weight", target)
    positions = tensors.pop("positions", None)
    if positions is None:
        positions = tensor2tensor_sinusoids(_POSITIONS, target.shape[1], first=0)
    return tensors | {f"model.{side}.embed_positions.weight": positions for side in SIDES}


def _name(name: str) -> str | None:
    """Return transformers' name of a parameter; None if it belongs to another architecture."""
    for pattern, template in _NAMES.items():
        if match := re.fullmatch(pattern, name):
            side, number, kind, part = (*match.groups(), *[""] * 4)[:4]
            return template.format(side, int(number or 1) - 1, _KINDS.get(kind), part)
    return None


def _vocabularies(folder: Path, languages: Languages) -> tuple[tuple[Path, Path], tuple[list[str], list[str]]]:
    """Return the SentencePiece models of source and target, and the pieces of their vocabularies by id."""
    named = _named(folder, "vocabs")
    vocabs = named or list(folder.glob("*vocab*.yml")) or list(folder.glob("*.spm"))
    models = [folder / "source.spm", folder / "target.spm"]
    if not all(path.is_file() for path in models):
        models = [path for path in vocabs if path.suffix == ".spm"] or list(folder.glob("*.spm"))
    for kind, paths in (("vocabulary (*vocab*.yml, *.spm)", vocabs), ("SentencePiece model (*.spm)", models)):
        if not 1 <= len(paths) <= 2:
            raise InputError(f"{folder}: {len(paths)} files are a {kind}, but one is needed, or one for each language")
    sides = [(*languages[0], "source", "src"), (*languages[1], "target", "trg", "tgt")]
    vocabs, models = (paths if set(paths) <= set(named) else _in_order(paths, *sides) for paths in (vocabs, models))
    source, target = (_pieces(path) for path in (vocabs[0], vocabs[-1]))
    return (models[0], models[-1]), (source, target)


def _in_order(paths: Sequence[Path], source: Sequence[str], target: Sequence[str]) -> list[Path]:
    """Return the file of the source before that of the target, by the words in their names."""

    def side(path: Path) -> int:
        words = set(map(base_language, re.split("[^a-z]+", path.name.lower())))
        return len(words.intersection(map(base_language, target))) - len(words.intersection(map(base_language, source)))

    ordered = sorted(paths, key=side)
    if len(ordered) == 2 and side(ordered[0]) == side(ordered[1]):
        message = f"{' and '.join(sorted(path.name for path in paths))} do not say which language they are for"
        hint = "list them in decoder.yml, as vocabs: [SOURCE, TARGET], or name the languages: --from LANG --to LANG"
        raise InputError(f"{paths[0].parent}: {message}", hint)
    return ordered


def _pieces(path: Path) -> list[str]:
    if path.suffix == ".spm":
        SentencePieceTokenizer.from_files(path)  # refuses another kind of file
        from sentencepiece import SentencePieceProcessor

        processor = SentencePieceProcessor(model_file=str(path))
        return [processor.id_to_piece(i) for i in range(processor.get_piece_size())]
    content = read_mapping(path, parse=partial(yaml.load, Loader=_TEXT_LOADER))
    try:
        ids = {str(piece): int(i) for piece, i in content.items()}
    except (TypeError, ValueError):
        ids = {}
    if sorted(ids.values()) != list(range(len(ids))) or not ids:
        raise InputError(f"{path}: its values are not the numbers of all pieces, from 0, each once")
    return sorted(ids, key=ids.__getitem__)
