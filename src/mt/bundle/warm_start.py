"""Weights to start from: those of a model that was trained before."""

import torch
from torch import Tensor

from mt.bundle.model_dir import LoadedModel, load_model
from mt.config import Config
from mt.console import log
from mt.data.tokenizer import BpeTokenizer, TokenizerPair
from mt.errors import InputError
from mt.model.transformer import Transformer
from mt.run_dir import ModelDir

# What may differ between the two models: it has no weights of its own.
_FREE = {"dropout", "attention_dropout", "activation_dropout", "embedding_dropout", "word_dropout", "init"}


def load_start(folder: ModelDir, config: Config) -> LoadedModel:
    """Reads the model to start from.

    Raises:
        InputError: it is not whole, or its weights do not fit the configuration.
    """
    start = load_model(folder, torch.device("cpu"))
    theirs, ours = start.config.model.model_dump(), config.model.model_dump()
    different = [f"model.{key}" for key in ours if key not in _FREE and theirs[key] != ours[key]]
    if theirs["positions"] == "learned" and start.config.data.max_length != config.data.max_length:
        different.append("data.max_length")
    if start.config.tokenizer.shared != config.tokenizer.shared:
        different.append("tokenizer.shared")
    if different:
        raise InputError(
            f"training.init_from: {folder.root} differs from this configuration in {', '.join(different)}",
            "set what it has (see its config.yaml), or start from another model",
        )
    return start


def start_from(model: Transformer, tokenizers: TokenizerPair, start: LoadedModel) -> None:
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
