"""Weights to start from: those of a model that was trained before."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from mt.bundle.model_folder import LoadedModel, load_model
from mt.config import Config
from mt.console import log
from mt.data.tokenizer import BpeTokenizer, TokenizerPair
from mt.errors import InputError
from mt.model.build import TranslationModel
from mt.storage.manifest import DamagedError, read_manifest
from mt.storage.run_dir import ModelDir, find_model

INIT_FROM = "training.init_from"
# What may differ between the two models: it has no weights of its own.
_FREE = {"dropout", "attention_dropout", "activation_dropout", "embedding_dropout", "word_dropout", "init"}


@dataclass(frozen=True)
class Start:
    """A model that `training.init_from` or another key names.

    Attributes:
        path: as it is named.
        folder: where it is; None where it is gone, which a training that has begun may survive.
        identity: tells its content from any other.
    """

    path: str
    folder: ModelDir | None
    identity: str


def find_start(path: str, runs: Path, recorded: str | None, key: str) -> Start:
    """Looks for a model to start from, or to learn from.

    Args:
        path: as the configuration names it.
        runs: the folder that holds the run folders.
        recorded: the identity it had when this training began; None before.
        key: of the configuration.

    Raises:
        InputError: there is none, and training has not begun.
    """
    try:
        folder = find_model(Path(path), runs)
        files = read_manifest(folder.root)["files"]
        of_before = _digest(files)  # runs of before recorded all files, the measured figures of README.md among them
        return Start(path, folder, of_before if recorded == of_before else _digest(learned(files)))
    except InputError as error:
        if recorded is None:
            raise InputError(f"{key}: {error.message}", error.hint) from None
    except DamagedError as error:
        if recorded is None:
            raise InputError(f"{key}: {path} is not a whole model folder: {error}") from None
    needed = "at the beginning" if key == INIT_FROM else "until training ends"
    log.warning("%s: %s is gone; it is needed %s only", key, path, needed)
    return Start(path, None, recorded)


def learned(files: Mapping[str, Any]) -> dict[str, Any]:
    """Of a manifest's files those that decide what a model knows: its weights and tokenizers.

    The others change where the folder is made anew, with the speeds measured then or other defaults of the search.
    """
    return {name: f for name, f in files.items() if name.endswith(".safetensors") or name.startswith("tokenizer/")}


def _digest(files: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(files, sort_keys=True).encode()).hexdigest()


def load_start(start: Start, config: Config) -> LoadedModel:
    """Reads the model to start from.

    Raises:
        InputError: it is not whole, or its weights do not fit the configuration.
    """
    if start.folder is None:
        raise InputError(f"training.init_from: there is no model at {config.training.init_from}")
    folder = start.folder
    loaded = load_model(folder, torch.device("cpu"))
    theirs, ours = loaded.config.model.model_dump(), config.model.model_dump()
    different = [f"model.{key}" for key in ours if key not in _FREE and theirs[key] != ours[key]]
    if theirs["positions"] == "learned" and loaded.config.data.max_length != config.data.max_length:
        different.append("data.max_length")
    if loaded.config.tokenizer.shared != config.tokenizer.shared:
        different.append("tokenizer.shared")
    if different:
        raise InputError(
            f"training.init_from: {folder.root} differs from this configuration in {', '.join(different)}",
            "set what it has (see its config.yaml), or start from another model",
        )
    return loaded


def refuse_missing_tags(config: Config, tokenizers: TokenizerPair) -> None:
    """A tokenizer that is taken over must know the languages that source sentences ask for."""
    for language in config.data.tagged:
        if language not in tokenizers.source.tags:
            raise InputError(
                f"training.init_tokenizer: the tokenizer of {config.training.init_from} has no tag for {language}",
                "set it to false, or leave that language out of data.target_lang",
            )


def start_from(model: TranslationModel, tokenizers: TokenizerPair, start: LoadedModel) -> None:
    """Copies the weights; of the vocabulary's matrices the rows of pieces that both models have.

    Other rows keep what they were initialised with.
    """
    by_name = dict(start.model.named_parameters())
    sides = {
        "source_embedding.tokens.weight": (tokenizers.source, start.tokenizers.source),
        "target_embedding.tokens.weight": (tokenizers.target, start.tokenizers.target),
        "output.weight": (tokenizers.target, start.tokenizers.target),
    }
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name in sides:
                _copy_rows(parameter, by_name[name], *sides[name])
            else:
                parameter.copy_(by_name[name])
    shared = len(_pieces(tokenizers.target).keys() & _pieces(start.tokenizers.target).keys())
    log.info("starting from given weights; %d of %d target pieces were known", shared, tokenizers.target.vocab_size)


def _copy_rows(into: Tensor, from_: Tensor, ours: BpeTokenizer, theirs: BpeTokenizer) -> None:
    known = _pieces(theirs)
    pairs = [(row, known[piece]) for piece, row in _pieces(ours).items() if piece in known]
    rows, origins = (torch.tensor(column) for column in zip(*pairs, strict=True))
    into[rows.to(into.device)] = from_[origins].to(into.device)


def _pieces(tokenizer: BpeTokenizer) -> dict[str, int]:
    return {piece: i for i, piece in enumerate(tokenizer.tokens(range(tokenizer.vocab_size)))}
