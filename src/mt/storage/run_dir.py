"""Paths in a run folder, a checkpoint and a model folder; no other module spells their names."""

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mt.errors import MachineError

MANIFEST = "MANIFEST.json"
COUNTS = "counts.json"  # numbers of pairs, in a folder of prepared or encoded text
VOCABULARY_MAP = "vmap.txt"  # CTranslate2's name for a shortlist: source pieces to target pieces


def tokenizer_names(shared: bool) -> tuple[str, str]:
    """Return the names of the source and the target tokenizer's files."""
    return ("tokenizer.json", "tokenizer.json") if shared else ("source.json", "target.json")


class _Path:
    """A path below the folder `root`, as an attribute."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, folder: Any, _: type) -> Path:
        return Path(folder.root, self._name)


@dataclass(frozen=True)
class ModelDir:
    """A model folder: complete and movable."""

    root: Path

    manifest = _Path(MANIFEST)
    config = _Path("config.yaml")
    weights = _Path("model.safetensors")
    tokenizer = _Path("tokenizer")
    casing = _Path("casing.txt")  # usual case of the source language's words
    spelling = _Path("spelling.txt")  # words of the source language, for the correction of typing errors
    readme = _Path("README.md")
    ctranslate2 = _Path("ctranslate2")
    settings = _Path("ctranslate2/settings.json")  # the part of the configuration that translation needs

    def converted(self, number_format: str) -> Path:
        """Return the folder of the CTranslate2 model with float32 or int8 weights."""
        return self.ctranslate2 / number_format


@dataclass(frozen=True)
class CheckpointDir:
    """A checkpoint: everything that a resume needs."""

    root: Path

    weights = _Path("model.safetensors")
    average = _Path("average.safetensors")  # the moving average of the weights, if training keeps one
    optimizer = _Path("optimizer.safetensors")
    state = _Path("state.json")
    origin = _Path("origin.json")  # configuration, and digests of data and tokenizer, that it was trained with

    @property
    def best_weights(self) -> Path:
        """The weights to translate with."""
        return self.average if self.average.exists() else self.weights


@dataclass(frozen=True)
class RunDir:
    """A run folder, `runs/<name>/`."""

    root: Path

    config = _Path("config.yaml")
    lock = _Path(".lock")
    pipeline = _Path(".pipeline")  # records of steps, in the folder of a pipeline instead of a run
    text = _Path("data/text")  # cleaned training text, untouched validation and test text
    prepared_counts = _Path(f"data/text/{COUNTS}")  # pairs of each split, and pairs dropped by cleaning
    cleaning = _Path("data/cleaning.json")  # all dropped training pairs by reason
    encoded_counts = _Path(f"data/encoded/train/{COUNTS}")  # training pairs kept, and those dropped as too long
    alignments = _Path("data/alignments")  # of the words of the encoded training text
    tokenizer = _Path("tokenizer")
    precision = _Path("precision.json")  # the number format that `training.precision: auto` chose
    length = _Path("length.json")  # the numbers of steps that `training.minutes` allowed
    checkpoints = _Path("checkpoints")
    metrics = _Path("metrics.jsonl")
    log = _Path("train.log")  # everything that was logged, of all sessions
    tensorboard = _Path("tensorboard")
    wandb_id = _Path("wandb/mt-run-id.txt")
    report = _Path("report.html")
    scores = _Path("eval")  # hypotheses and score files
    exports = _Path("exports")

    @property
    def model(self) -> ModelDir:
        return ModelDir(self.root / "model")

    def text_file(self, split: str, side: str) -> Path:
        """Return the text of a split (train, valid, test) and a side (source, target)."""
        return self.text / f"{split}.{side}"

    def encoded(self, split: str) -> Path:
        return self.root / "data" / "encoded" / split

    def export(self, export_format: str) -> Path:
        return self.exports / export_format

    def checkpoint(self, step: int) -> Path:
        return self.checkpoints / f"step-{step:08d}"

    def damaged_checkpoint(self, step: int) -> Path:
        return self.checkpoints / f"damaged-{self.checkpoint(step).name}"

    def checkpoint_steps(self) -> list[int]:
        """Return the steps with a checkpoint, in order; folders with other names, such as copies, are ignored."""
        steps = (re.fullmatch(r"step-(\d{8}|[1-9]\d{8,})", name) for name in self._checkpoint_names())
        return sorted(int(match[1]) for match in steps if match)

    def has_damaged_checkpoints(self) -> bool:
        return any(name.startswith("damaged-step-") for name in self._checkpoint_names())

    def _checkpoint_names(self) -> list[str]:
        """List the folders in `checkpoints/`; a failure to do so must not look like a run without checkpoints."""
        try:
            with os.scandir(self.checkpoints) as entries:
                return [entry.name for entry in entries if entry.is_dir()]
        except OSError as error:
            if isinstance(error, FileNotFoundError) and not self.checkpoints.is_symlink():
                return []
            hint = "check its permissions and the disk, then run the same command"
            raise MachineError(f"{self.checkpoints}: cannot be listed: {error.strerror or error}", hint) from None
