"""The model folder: a complete, movable model without executable code.

Loading trusts nothing: sizes and checksums of the files, and names, shapes and types of the tensors, are checked before
memory is allocated for them.
"""

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file
from torch import Tensor

from mt.bundle.checks import load_tokenizers, verify_files
from mt.bundle.model_card import model_card
from mt.bundle.to_ctranslate2 import convert
from mt.config import Config, dump_config, load_config
from mt.console import log
from mt.data.shortlist import Shortlist
from mt.data.tokenizer_kinds import TokenizerPair
from mt.decoding.settings import TranslationSettings
from mt.errors import InputError
from mt.model.build import TranslationModel, build
from mt.model.initialization import SkipInit
from mt.model.transformer import Transformer, alignment_layer, set_parameters
from mt.storage import atomic
from mt.storage.find_model import run_of_checkpoint
from mt.storage.run_dir import CheckpointDir, ModelDir
from mt.text.preprocessing import NO_PREPROCESSING, Preprocessing


@dataclass(frozen=True)
class LoadedModel:
    """A loaded model with its configuration and tokenizers."""

    config: Config
    model: TranslationModel
    tokenizers: TokenizerPair


def build_model(config: Config, tokenizers: TokenizerPair) -> TranslationModel:
    """Build and initialise the model of a configuration for its vocabularies."""
    sizes = tokenizers.source.vocab_size, tokenizers.target.vocab_size
    model = build(config.model, *sizes, config.data.max_length, tokenizers.shared)
    model.is_guided = config.is_guided
    return model


@contextlib.contextmanager
def new_model(
    folder: ModelDir,
    config: Config,
    tokenizers: TokenizerPair,
    weights: Mapping[str, Tensor],
    facts: dict[str, Any],
    shortlist: Shortlist | None = None,
    preprocessing: Preprocessing = NO_PREPROCESSING,
    check: Callable[[], None] = lambda: None,
) -> Iterator[ModelDir]:
    """Write a model folder atomically, the converted CTranslate2 models included; `check` as in `atomic.new_folder`.

    Yields:
        the folder without its README and manifest, for measurements; they may be added to `facts`, which the manifest
        records.
    """
    with atomic.new_folder(folder.root, facts, check) as root:
        partial = ModelDir(root)
        write_text_files(partial, config, tokenizers, preprocessing)
        atomic.write_tensors(partial.weights, {name: tensor.contiguous() for name, tensor in weights.items()})
        with SkipInit():
            model = build_model(config, tokenizers)
        set_parameters(model, weights)
        try:
            if isinstance(model, Transformer):
                heads = 1 if config.is_guided else config.model.n_heads
                facts["alignment"] = {"layer": alignment_layer(len(model.decoder)), "heads": heads}
                convert(model, config, tokenizers, partial, shortlist)
        except ImportError as error:  # the library is not built for every machine
            log.warning("CTranslate2 cannot be imported (%s): the model folder will work with torch only", error)
        yield partial
        atomic.write_text(partial.readme, model_card(config, facts, partial.ctranslate2.is_dir()))


def write_text_files(folder: ModelDir, config: Config, tokenizers: TokenizerPair, preprocessing: Preprocessing) -> None:
    """Write the configuration, the tokenizers and the preprocessing of a model folder."""
    atomic.write_text(folder.config, dump_config(config))
    tokenizers.write(folder.tokenizer)
    for path, step in ((folder.casing, preprocessing.casing), (folder.spelling, preprocessing.spelling)):
        if step is not None:
            atomic.write_text(path, step.text())


def change_search(folder: ModelDir, config: Config) -> None:
    """Replace the configuration of a folder that `new_model` has yielded by one that differs only in `decoding`."""
    atomic.write_text(folder.config, dump_config(config))
    if folder.settings.exists():
        atomic.write_json(folder.settings, TranslationSettings.of(config).as_dict())


def load_model(folder: ModelDir, device: torch.device) -> LoadedModel:
    """Load a model folder, or a checkpoint with the configuration and tokenizers of its run; verify what is read.

    Raises:
        InputError: a file is missing or altered, or does not fit the others.
    """
    run = run_of_checkpoint(folder)
    if run is None:
        # Not the whole folder: its README may be edited and its CTranslate2 models deleted.
        verify_files(folder, folder.config, folder.weights)
        config, weights = load_config(folder.config), folder.weights
        tokenizers = load_tokenizers(folder, config.tokenizer.shared)
    else:
        weights = CheckpointDir(folder.root).best_weights
        verify_files(folder, weights, part=folder.root)
        config = load_config(run.config)
        tokenizers = TokenizerPair.load(run.tokenizer, config.tokenizer.shared)
    with SkipInit():
        with torch.device("meta"):  # shapes without memory
            _check_tensors(weights, build_model(config, tokenizers))
        model = build_model(config, tokenizers).to(device).eval()
    set_parameters(model, load_file(weights))
    return LoadedModel(config, model, tokenizers)


def _check_tensors(path: Path, model: TranslationModel) -> None:
    """Compare the names, shapes and types in the file's header with the model's parameters."""
    expected = {name: list(parameter.shape) for name, parameter in model.named_parameters()}
    try:
        with safe_open(path, framework="pt") as file:
            slices = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118
            shapes = {name: list(part.get_shape()) for name, part in slices.items()}
            dtypes = {name: part.get_dtype() for name, part in slices.items()}
    except (SafetensorError, OSError) as error:
        raise InputError(f"{path}: not a safetensors file: {error}") from None
    for name in sorted(expected.keys() | shapes.keys()):
        if name not in shapes:
            raise InputError(f"{path}: the tensor '{name}' is missing")
        if name not in expected:
            raise InputError(f"{path}: unexpected tensor {name!r:.100}")
        if shapes[name] != expected[name]:
            raise InputError(f"{path}: '{name}' has shape {shapes[name]}, but {expected[name]} is expected")
        if dtypes[name] != "F32":
            raise InputError(f"{path}: '{name}' has type {dtypes[name]}, but F32 is expected")
