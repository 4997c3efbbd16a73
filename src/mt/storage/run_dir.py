"""The name of every path in a run folder and in a model folder; no other module spells one."""

import os
import re
from dataclasses import dataclass
from pathlib import Path

from mt.errors import MachineError

MANIFEST = "MANIFEST.json"
COUNTS = "counts.json"  # in a folder of prepared or of encoded text: how much of it there is
VOCABULARY_MAP = "vmap.txt"  # in a converted model: from source pieces to target pieces; the name is CTranslate2's


def tokenizer_names(shared: bool) -> tuple[str, str]:
    """The files of the source and of the target language in a tokenizer folder."""
    return ("tokenizer.json", "tokenizer.json") if shared else ("source.json", "target.json")


@dataclass(frozen=True)
class ModelDir:
    """The product of a training: a folder that can be moved anywhere and is complete."""

    root: Path

    @property
    def config(self) -> Path:
        return self.root / "config.yaml"

    @property
    def weights(self) -> Path:
        return self.root / "model.safetensors"

    @property
    def tokenizer(self) -> Path:
        return self.root / "tokenizer"

    @property
    def ctranslate2(self) -> Path:
        """The same model for the fast engine."""
        return self.root / "ctranslate2"

    @property
    def settings(self) -> Path:
        """What the fast engine needs of the configuration."""
        return self.ctranslate2 / "settings.json"

    def converted(self, number_format: str) -> Path:
        """The fast engine's model with weights in float32 or int8."""
        return self.ctranslate2 / number_format

    @property
    def readme(self) -> Path:
        return self.root / "README.md"

    @property
    def manifest(self) -> Path:
        return self.root / MANIFEST


@dataclass(frozen=True)
class CheckpointDir:
    """All that a training needs to go on after a step."""

    root: Path

    @property
    def weights(self) -> Path:
        return self.root / "model.safetensors"

    @property
    def average(self) -> Path:
        """The moving average of the weights, where training keeps one."""
        return self.root / "average.safetensors"

    @property
    def best_weights(self) -> Path:
        """The weights to translate with."""
        return self.average if self.average.exists() else self.weights

    @property
    def optimizer(self) -> Path:
        return self.root / "optimizer.safetensors"

    @property
    def state(self) -> Path:
        return self.root / "state.json"

    @property
    def origin(self) -> Path:
        """Digests of the data and the tokenizer it was trained with."""
        return self.root / "origin.json"


@dataclass(frozen=True)
class RunDir:
    """One training run: `runs/<name>/`."""

    root: Path

    @property
    def config(self) -> Path:
        return self.root / "config.yaml"

    @property
    def lock(self) -> Path:
        return self.root / ".lock"

    @property
    def text(self) -> Path:
        """Cleaned training text and the untouched validation and test text, one sentence a line."""
        return self.root / "data" / "text"

    def text_file(self, split: str, side: str) -> Path:
        """`split` is train, valid or test; `side` is source or target."""
        return self.text / f"{split}.{side}"

    @property
    def prepared_counts(self) -> Path:
        """Pairs of each split, and what cleaning dropped from the training text."""
        return self.text / COUNTS

    @property
    def cleaning(self) -> Path:
        """All that was dropped from the training text, by reason."""
        return self.root / "data" / "cleaning.json"

    @property
    def inputs(self) -> Path:
        """Digests of the data sources, in runs whose checkpoints do not record them."""
        return self.root / "data" / "inputs.json"

    @property
    def tokenizer(self) -> Path:
        return self.root / "tokenizer"

    def encoded(self, split: str) -> Path:
        return self.root / "data" / "encoded" / split

    def encoded_counts(self, split: str) -> Path:
        return self.encoded(split) / COUNTS

    @property
    def checkpoints(self) -> Path:
        return self.root / "checkpoints"

    def checkpoint(self, step: int) -> Path:
        return self.checkpoints / f"step-{step:08d}"

    def checkpoint_steps(self) -> list[int]:
        """The steps there are checkpoints of, in order. Other names, such as those of copies, are not ours."""
        found = (re.fullmatch(r"step-(\d{8}|[1-9]\d{8,})", name) for name in self._checkpoint_names())
        return sorted(int(match[1]) for match in found if match)

    def _checkpoint_names(self) -> list[str]:
        """Names of the folders in `checkpoints/`.

        Raises:
            MachineError: they cannot be listed, which must not look like a run without checkpoints.
        """
        try:
            with os.scandir(self.checkpoints) as entries:
                return [entry.name for entry in entries if entry.is_dir()]
        except OSError as error:
            if isinstance(error, FileNotFoundError) and not self.checkpoints.is_symlink():
                return []
            raise MachineError(
                f"{self.checkpoints}: cannot be listed: {error.strerror or error}",
                "check its permissions and the disk, then run the same command",
            ) from None

    def set_aside(self, step: int) -> Path:
        """Where a damaged checkpoint goes, out of the way of whole ones."""
        return self.checkpoints / f"damaged-{self.checkpoint(step).name}"

    def has_damaged_checkpoints(self) -> bool:
        """True if some were set aside."""
        return any(name.startswith("damaged-step-") for name in self._checkpoint_names())

    @property
    def metrics(self) -> Path:
        return self.root / "metrics.jsonl"

    @property
    def tensorboard(self) -> Path:
        return self.root / "tensorboard"

    @property
    def wandb_id(self) -> Path:
        """The name of the run on Weights & Biases, whose package writes into the same folder."""
        return self.root / "wandb" / "mt-run-id.txt"

    @property
    def report(self) -> Path:
        """What a person looks at."""
        return self.root / "report.html"

    @property
    def scores(self) -> Path:
        """Hypotheses and score files."""
        return self.root / "eval"

    @property
    def model(self) -> ModelDir:
        return ModelDir(self.root / "model")

    @property
    def exports(self) -> Path:
        return self.root / "exports"

    def export(self, export_format: str) -> Path:
        """The model for other software."""
        return self.exports / export_format
