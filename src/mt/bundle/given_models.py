"""Trained models that a training takes something from: its first weights, its tokenizer, or what it is to learn."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from mt.bundle.model_folder import LoadedModel, load_model
from mt.bundle.warm_start import INIT_FROM, Start, find_start, load_start
from mt.config import Config
from mt.data.tokenizer import TokenizerPair
from mt.errors import InputError
from mt.model.build import TranslationModel

DISTILL_FROM = "training.distill_from"


@dataclass(frozen=True)
class GivenModels:
    """The models that a configuration names.

    Attributes:
        start: the one whose weights training starts from.
        teachers: those whose word probabilities it learns from.
    """

    start: Start | None = None
    teachers: tuple[Start, ...] = ()

    @classmethod
    def find(cls, config: Config, runs: Path, recorded: Mapping[str, Any]) -> "GivenModels":
        """Looks for them.

        Args:
            config: names them.
            runs: the folder that holds the run folders.
            recorded: their identities when this training began; without them where it has not.

        Raises:
            InputError: one is missing, and training has not begun.
        """
        settings = config.training
        start = None
        if settings.init_from is not None:
            start = find_start(settings.init_from, runs, recorded.get(INIT_FROM), INIT_FROM)
        known = recorded.get(DISTILL_FROM, [None] * len(settings.distill_from))
        teachers = zip(settings.distill_from, known, strict=False)  # of another number, which a resume refuses
        return cls(start, tuple(find_start(path, runs, identity, DISTILL_FROM) for path, identity in teachers))

    def identities(self) -> dict[str, Any]:
        """What tells them from all others, by the key that names them."""
        found: dict[str, Any] = {} if self.start is None else {INIT_FROM: self.start.identity}
        return found | ({DISTILL_FROM: [teacher.identity for teacher in self.teachers]} if self.teachers else {})

    def tokenizer_owner(self, config: Config) -> Start | None:
        """Whose tokenizer the training takes over; student and teachers must have the same."""
        kept = self.start if config.training.init_tokenizer else None
        return kept or next(iter(self.teachers), None)

    def tokenizers(self, config: Config) -> TokenizerPair:
        """The tokenizers that are taken over."""
        owner = self.tokenizer_owner(config)
        assert owner is not None
        return (load_start if owner is self.start else load_teacher)(owner, config).tokenizers

    def load_teachers(
        self, config: Config, tokenizers: TokenizerPair, device: torch.device
    ) -> tuple[TranslationModel, ...]:
        """Reads the teachers, which learn nothing themselves.

        Raises:
            InputError: one is gone or not whole, or does not fit.
        """
        found = []
        for teacher in self.teachers:
            loaded = load_teacher(teacher, config)
            if loaded.tokenizers.files() != tokenizers.files():
                raise InputError(
                    f"{DISTILL_FROM}: the vocabulary of {teacher.path} is not that of the student",
                    "train teachers with one tokenizer (init_from keeps it), and let the student have it, too",
                )
            found.append(loaded.model.to(device).eval().requires_grad_(False))
        return tuple(found)


def load_teacher(teacher: Start, config: Config) -> LoadedModel:
    """Reads a model to learn from.

    Raises:
        InputError: it is gone or not whole, or translates something else.
    """
    if teacher.folder is None:
        raise InputError(f"{DISTILL_FROM}: {teacher.path} is gone, and training still learns from it", "bring it back")
    loaded = load_model(teacher.folder, torch.device("cpu"))
    theirs, ours = loaded.config.data, config.data
    if theirs.source_lang != ours.source_lang or not set(ours.target_lang) <= set(theirs.target_lang):
        raise InputError(
            f"{DISTILL_FROM}: {teacher.path} translates from {theirs.source_lang} into {', '.join(theirs.target_lang)}",
            f"take a teacher from {ours.source_lang} into {', '.join(ours.target_lang)}",
        )
    if loaded.config.tokenizer.shared != config.tokenizer.shared:
        raise InputError(f"{DISTILL_FROM}: {teacher.path} has tokenizer.shared: {not config.tokenizer.shared}")
    if loaded.config.model.positions == "learned" and theirs.max_length < ours.max_length:
        raise InputError(
            f"{DISTILL_FROM}: {teacher.path} knows {theirs.max_length} positions, fewer than data.max_length",
            f"set data.max_length: {theirs.max_length}",
        )
    return loaded
