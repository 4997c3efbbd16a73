"""The model folder: everything needed to translate, in files that cannot run code.

Reading it trusts nothing: the manifest's sizes and checksums, the names, shapes and types of the tensors are checked
against what the configuration calls for before memory is taken for them.
"""

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from mt.bundle.checks import load_tokenizers, read_text, require, verified
from mt.bundle.model_card import model_card
from mt.bundle.to_ctranslate2 import convert
from mt.config import Config, dump_config, parse_config
from mt.console import log
from mt.data.shortlist import Shortlist
from mt.data.tokenizer import TokenizerPair
from mt.errors import InputError
from mt.model.build import TranslationModel, build
from mt.model.initialization import SkipInit
from mt.model.transformer import Transformer, set_parameters
from mt.storage import atomic
from mt.storage.find_model import run_of_checkpoint
from mt.storage.run_dir import CheckpointDir, ModelDir, RunDir


@dataclass(frozen=True)
class LoadedModel:
    """A model folder in memory."""

    config: Config
    model: TranslationModel
    tokenizers: TokenizerPair


def build_model(config: Config, tokenizers: TokenizerPair) -> TranslationModel:
    """An initialised model that fits a configuration and its vocabularies."""
    return build(
        config.model,
        tokenizers.source.vocab_size,
        tokenizers.target.vocab_size,
        config.data.max_length,
        tokenizers.shared,
    )


@contextlib.contextmanager
def new_model(
    folder: ModelDir,
    config: Config,
    tokenizers: TokenizerPair,
    weights: Mapping[str, Tensor],
    facts: dict[str, Any],
    shortlist: Shortlist | None = None,
) -> Iterator[ModelDir]:
    """Writes a model folder, whole or not at all; the engines' forms of the weights included.

    Yields:
        the folder, complete but for its README and manifest, to be tried out; `facts` may grow until it is sealed.
    """
    with atomic.new_folder(folder.root, facts) as partial:
        aside = ModelDir(partial)
        atomic.write_text(aside.config, dump_config(config))
        for name, content in tokenizers.files().items():
            atomic.write_text(aside.tokenizer / name, content)
        atomic.write_tensors(aside.weights, {name: tensor.contiguous() for name, tensor in weights.items()})
        with SkipInit():
            model = build_model(config, tokenizers)
        set_parameters(model, weights)
        try:
            if isinstance(model, Transformer):
                convert(model, config, tokenizers, aside, shortlist)
        except ImportError as error:  # there are machines that the library is not built for
            log.warning("CTranslate2 cannot be imported (%s): the model folder will work with torch only", error)
        yield aside
        atomic.write_text(aside.readme, model_card(config, facts, aside.ctranslate2.is_dir()))


def load_model(folder: ModelDir, device: torch.device) -> LoadedModel:
    """Reads and checks a model folder, or a checkpoint together with its run.

    Raises:
        InputError: a part is missing, altered, or does not fit the others.
    """
    run = run_of_checkpoint(folder)
    if run is not None:
        return _load_checkpoint(folder, run, device)
    # What is read, and no more: a README may be edited, and forms for the fast engine removed.
    listed = verified(folder, folder.config, folder.weights, folder.tokenizer)
    require(folder, listed, folder.config, folder.weights)
    config = parse_config(read_text(folder.config), str(folder.config))
    tokenizers = load_tokenizers(folder, listed, config.tokenizer.shared)
    return LoadedModel(config, _model_with(folder.weights, config, tokenizers, device), tokenizers)


def _load_checkpoint(folder: ModelDir, run: RunDir, device: torch.device) -> LoadedModel:
    checkpoint = CheckpointDir(folder.root)
    require(folder, verified(folder), checkpoint.best_weights)
    config = parse_config(read_text(run.config), str(run.config))
    tokenizers = TokenizerPair.load(run.tokenizer, config.tokenizer.shared)
    return LoadedModel(config, _model_with(checkpoint.best_weights, config, tokenizers, device), tokenizers)


def _model_with(weights: Path, config: Config, tokenizers: TokenizerPair, device: torch.device) -> TranslationModel:
    """A model with the weights of a file, which may hold anything."""
    with SkipInit():
        with torch.device("meta"):  # shapes without memory
            _check_tensors(weights, build_model(config, tokenizers))
        model = build_model(config, tokenizers).to(device).eval()
    with safe_open(weights, framework="pt") as file:
        set_parameters(model, {name: file.get_tensor(name) for name in file.keys()})  # noqa: SIM118
    return model


def _check_tensors(path: Path, model: TranslationModel) -> None:
    """Compares the file's header with the parameters the configuration calls for."""
    expected = {name: tuple(parameter.shape) for name, parameter in model.named_parameters()}
    try:
        with safe_open(path, framework="pt") as file:
            found = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118
            shapes = {name: tuple(part.get_shape()) for name, part in found.items()}
            dtypes = {name: part.get_dtype() for name, part in found.items()}
    except (SafetensorError, OSError) as error:
        raise InputError(f"{path}: not a safetensors file: {error}") from None
    for name in sorted(expected.keys() | shapes.keys()):
        if name not in shapes:
            raise InputError(f"{path}: the tensor '{name}' that the configuration calls for is missing")
        if name not in expected:
            raise InputError(f"{path}: the tensor {name!r:.100} has no place in this configuration's model")
        if shapes[name] != expected[name]:
            raise InputError(f"{path}: '{name}' has shape {list(shapes[name])}, but {list(expected[name])} is expected")
        if dtypes[name] != "F32":
            raise InputError(f"{path}: '{name}' has type {dtypes[name]}, but F32 is expected")
