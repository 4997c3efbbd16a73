"""Pretrained models that training starts from or distils from: tokenizers, weights and teachers, resolved once."""

import hashlib
import json
from collections.abc import Container, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from mt.bundle.checks import verify_files
from mt.bundle.model_folder import LoadedModel, load_model
from mt.config import Config, InitLayers
from mt.console import log
from mt.data.sentence_format import SentenceFormat
from mt.data.subword_sampling import make_segmenter
from mt.data.token_store import SIDES
from mt.data.tokenizer_kinds import TextTokenizer, TokenizerPair
from mt.errors import InputError
from mt.model.build import TranslationModel
from mt.storage.find_model import find_model
from mt.storage.manifest import learned_files
from mt.storage.run_dir import ModelDir
from mt.text.languages import TERM_TAGS

INIT_FROM = "training.init_from"
DISTILL_FROM = "training.distill_from"
# These may differ between the two models, since they have no weights.
_WEIGHTLESS = {"dropout", "attention_dropout", "activation_dropout", "embedding_dropout", "word_dropout", "init"}


@dataclass(frozen=True)
class PretrainedModel:
    """A trained model that the configuration names by a path, with a digest of its weights and tokenizers.

    The folder is None if it is gone; a training that has started may not need it any more.
    """

    path: str
    folder: ModelDir | None
    identity: str


@dataclass(frozen=True)
class Pretrained:
    """The models that a configuration names: one whose weights training starts from, and teachers to distil from."""

    config: Config
    start: PretrainedModel | None = None
    teachers: tuple[PretrainedModel, ...] = ()

    @classmethod
    def find(cls, config: Config, runs: Path, recorded: Mapping[str, Any]) -> "Pretrained":
        """Find the models of `training.init_from` and `training.distill_from`.

        `recorded` are their identities by key when this training began; empty if it has not.

        Raises:
            InputError: one is missing, and training has not started.
        """
        init_from, distill_from = config.training.init_from, config.training.distill_from
        start = None if init_from is None else _find(init_from, runs, recorded.get(INIT_FROM), INIT_FROM)
        known = [*recorded.get(DISTILL_FROM, ()), *[None] * len(distill_from)]
        teachers = zip(distill_from, known, strict=False)
        return cls(config, start, tuple(_find(path, runs, identity, DISTILL_FROM) for path, identity in teachers))

    def identities(self) -> dict[str, Any]:
        """Return the models' identities by key."""
        identities: dict[str, Any] = {} if self.start is None else {INIT_FROM: self.start.identity}
        if self.teachers:
            identities[DISTILL_FROM] = [teacher.identity for teacher in self.teachers]
        return identities

    @property
    def tokenizer_owner(self) -> PretrainedModel | None:
        """The model whose tokenizers are used; student and teachers share theirs."""
        start = self.start if self.config.training.init_tokenizer else None
        return start or next(iter(self.teachers), None)

    def tokenizers(self) -> TokenizerPair | None:
        """Load the tokenizers to use, a model's or given files; None where they are to be trained.

        Raises:
            InputError: they are gone or damaged, do not fit, lack a language tag, or have one that cannot be used.
        """
        owner, settings = self.tokenizer_owner, self.config.tokenizer
        if owner is None:
            tokenizers = TokenizerPair.given(settings, self.config.tags)
            message, remedy = "tokenizer.file: it", "give a SentencePiece model"
        else:
            loaded = self.load_start() if owner is self.start else self._load_teacher(owner)
            assert loaded is not None
            tokenizers = loaded.tokenizers
            message, remedy = f"training.init_tokenizer: the tokenizer of {owner.path}", "set it to false"
        if tokenizers is None:
            return None
        if fault := tag_fault(self.config, tokenizers.source.tags):
            raise InputError(f"{message} {fault[0]}", f"{remedy}, or {fault[1]}")
        for tokenizer in tokenizers if settings.is_sampled else ():
            make_segmenter(tokenizer, settings)  # refuses another kind of tokenizer
        return tokenizers

    def load_start(self) -> LoadedModel | None:
        """Load the model to start from, if there is one.

        Raises:
            InputError: it is gone or damaged, or its weights do not fit the configuration.
        """
        if self.start is None:
            return None
        if self.start.folder is None:
            raise InputError(f"{INIT_FROM}: there is no model at {self.start.path}")
        loaded = load_model(self.start.folder, torch.device("cpu"))
        different = start_differences(loaded.config, self.config)
        if different:
            message = f"{self.start.folder.root} differs from this configuration in {', '.join(different)}"
            hint = "copy these values from its config.yaml, or start from another model"
            raise InputError(f"{INIT_FROM}: {message}", hint)
        return loaded

    def check(self) -> None:
        """Load every model once, so that one that does not fit is refused before any data is prepared."""
        self.load_start()
        tokenizers = self.tokenizers()
        if tokenizers is not None:
            self.load_teachers(tokenizers, torch.device("cpu"))

    def initialize(self, model: TranslationModel, tokenizers: TokenizerPair) -> None:
        """Copy the start weights, if there are any, into a freshly initialised model."""
        start = self.load_start()
        if start is not None:
            copy_weights(model, tokenizers, start, self.config.training.init_layers)

    def load_teachers(self, tokenizers: TokenizerPair, device: torch.device) -> tuple[TranslationModel, ...]:
        """Load the teachers, in evaluation mode and without gradients.

        Raises:
            InputError: one is gone or damaged, or does not fit.
        """
        models = []
        for teacher in self.teachers:
            loaded = self._load_teacher(teacher)
            if loaded.tokenizers.files() != tokenizers.files():
                hint = "train all teachers with one tokenizer (init_from keeps it), and the student with it, too"
                message = f"{DISTILL_FROM}: the vocabulary of {teacher.path} is not that of the student"
                raise InputError(message, hint)
            models.append(loaded.model.to(device).eval().requires_grad_(False))
        return tuple(models)

    def _load_teacher(self, teacher: PretrainedModel) -> LoadedModel:
        name = f"{DISTILL_FROM}: {teacher.path}"
        if teacher.folder is None:
            raise InputError(f"{name} is gone, and training needs it until its end", "restore it")
        loaded = load_model(teacher.folder, torch.device("cpu"))
        if fault := teacher_fault(loaded.config, self.config):
            raise InputError(f"{name} {fault[0]}", fault[1])
        return loaded


def _find(path: str, runs: Path, recorded: str | None, key: str) -> PretrainedModel:
    """Find a model; a missing one is an error only before training has started, when no identity is recorded."""
    try:
        folder = find_model(Path(path), runs)
        learned = json.dumps(learned_files(verify_files(folder, part=folder.manifest)), sort_keys=True)
    except InputError as error:
        if recorded is None:
            raise InputError(f"{key}: {error.message}", error.hint) from None
        needed = "at the beginning" if key == INIT_FROM else "until training ends"
        log.warning("%s: %s is gone; it is needed only %s", key, path, needed)
        return PretrainedModel(path, None, recorded)
    return PretrainedModel(path, folder, hashlib.sha256(learned.encode()).hexdigest())


def tag_fault(config: Config, tags: Container[str]) -> tuple[str, str] | None:
    """Return why a training cannot use a tokenizer with these tags, and a remedy; None if it can."""
    for language in config.tags:
        if language not in tags:
            unwanted = "augmentation.terms" if language in TERM_TAGS else "that language from data"
            return f"has no tag for {language}", f"remove {unwanted}"
    target, is_reversed = config.data.target_lang[0], config.training.bidirectional_epochs > 0
    if is_reversed and config.model.target_tag == "source" and target in tags:
        reason = f"has a tag for {target}, which reversed pairs would teach as text"
        return reason, "set training.bidirectional_epochs: 0"
    return None


def teacher_fault(teacher: Config, config: Config) -> tuple[str, str] | None:
    """Return why a model cannot teach one of this configuration, and a remedy; None if it can."""
    theirs, ours = teacher.data, config.data
    if not set(ours.pairs) <= set(theirs.pairs):
        needed, known = (
            f"from {', '.join(data.source_lang)} into {', '.join(data.target_lang)}" for data in (ours, theirs)
        )
        return f"translates {known}", f"choose a teacher {needed}"
    if teacher.tokenizer.shared != config.tokenizer.shared:
        return f"has tokenizer.shared: {teacher.tokenizer.shared}", ""
    if SentenceFormat.of(teacher)[:2] != SentenceFormat.of(config)[:2]:
        return "has another model.source_format or model.target_tag", "copy them from the teacher"
    if teacher.model.positions == "learned" and theirs.max_length < ours.max_length:
        reason = f"has {theirs.max_length} positions, fewer than data.max_length"
        return reason, f"set data.max_length: {theirs.max_length}"
    return None


def start_differences(start: Config, config: Config) -> list[str]:
    """Return the keys in which a model to start from differs from a configuration, but must not.

    Raises:
        InputError: training.init_layers does not fit.
    """
    theirs, ours = start.model.model_dump(), config.model.model_dump()
    layers = config.training.init_layers or InitLayers()
    for key, chosen in (("encoder_layers", layers.encoder), ("decoder_layers", layers.decoder)):
        if chosen is None:
            continue
        name = f"training.init_layers: {key.removesuffix('_layers')}"
        if len(chosen) != ours[key]:
            message = f"{name} names {len(chosen)} layers, model.{key} is {ours[key]}"
            raise InputError(message, "name as many as there are")
        if max(chosen) >= theirs[key]:
            message = f"{name}: {max(chosen)}, but {INIT_FROM} has layers 0 to {theirs[key] - 1}"
            raise InputError(message, "count from 0")
        theirs[key] = ours[key]
    different = [f"model.{key}" for key in ours if key not in _WEIGHTLESS and theirs[key] != ours[key]]
    if theirs["positions"] == "learned" and start.data.max_length != config.data.max_length:
        different.append("data.max_length")
    if start.tokenizer.shared != config.tokenizer.shared:
        different.append("tokenizer.shared")
    return different


def copy_weights(
    model: TranslationModel, tokenizers: TokenizerPair, start: LoadedModel, layers: InitLayers | None = None
) -> None:
    """Copy all weights of `start`, or of some of its layers, into a model with these tokenizers.

    In embeddings and output layer, rows of pieces that both vocabularies have are copied. The row of a new piece
    becomes the mean of those into which the other tokenizer splits it (Hewitt 2021).
    """
    by_name = dict(start.model.named_parameters())
    # A decoder-only model has its decoder layers in `layers`.
    stacks = {} if layers is None else {"encoder": layers.encoder, "decoder": layers.decoder, "layers": layers.decoder}
    sides = {
        "source_embedding.tokens.weight": "source",
        "target_embedding.tokens.weight": "target",
        "output.weight": "target",
        "output.bias": "target",
    }
    origins = {side: _origins(getattr(tokenizers, side), getattr(start.tokenizers, side)) for side in SIDES}
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name in sides:
                old, (known, new) = by_name[name], origins[sides[name]]
                parameter[list(known)] = old[list(known.values())].to(parameter.device)
                for row, parts in new.items():
                    parameter[row] = old[parts].mean(dim=0).to(parameter.device)
            else:
                parameter.copy_(by_name[_origin_of_layer(name, stacks)])
    n_known, size = len(origins["target"][0]), tokenizers.target.vocab_size
    log.info("starting from pretrained weights; %d of %d target pieces are known", n_known, size)


def _origin_of_layer(name: str, layers: Mapping[str, tuple[int, ...] | None]) -> str:
    """Return the name, in the other model, of a parameter that may belong to a layer."""
    stack, *rest = name.split(".")
    if (numbers := layers.get(stack)) is not None:
        rest[0] = str(numbers[int(rest[0])])
    return ".".join([stack, *rest])


def _origins(ours: TextTokenizer, theirs: TextTokenizer) -> tuple[dict[int, int], dict[int, list[int]]]:
    """Return, by our row, their row of each piece that both have, and their rows of the parts of each new piece."""
    rows = {piece: i for i, piece in enumerate(theirs.pieces)}
    known, new = dict[int, int](), dict[int, list[int]]()
    for row, piece in enumerate(ours.pieces):
        if piece in rows:
            known[row] = rows[piece]
            continue
        text = ours.decode([row])
        # There is no text to split in part of a character, nor in a language tag.
        if "\ufffd" not in text and (parts := theirs.encode(text)):
            new[row] = parts
    return known, new
