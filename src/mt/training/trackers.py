"""Experiment trackers: TensorBoard and Weights & Biases, each with its optional package."""

import importlib
import importlib.util
import secrets
from collections.abc import Mapping
from typing import Any

from mt.config import Config, TrainingConfig
from mt.errors import InputError
from mt.storage import atomic
from mt.storage.run_dir import RunDir

_PROJECT = "mt"  # on Weights & Biases, unless the configuration names another


def trackers(run: RunDir, config: Config) -> "list[TensorBoard | WeightsAndBiases]":
    """Start the configured trackers; TensorBoard only if it is installed."""
    started: list[TensorBoard | WeightsAndBiases] = []
    if config.training.tensorboard and importlib.util.find_spec("tensorboard"):
        started.append(TensorBoard(run))
    if config.training.wandb:
        started.append(WeightsAndBiases(run, config))
    return started


class TensorBoard:
    """Curves in the run folder's tensorboard/."""

    def __init__(self, run: RunDir) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self._folder = run.tensorboard
        with atomic.explained(self._folder):
            self._writer: Any = SummaryWriter(str(self._folder))

    def write(self, event: str, step: int, numbers: Mapping[str, float]) -> None:
        with atomic.explained(self._folder):
            for name, value in numbers.items():
                self._writer.add_scalar(f"{event}/{name}", value, step)

    def close(self) -> None:
        with atomic.explained(self._folder):
            self._writer.close()


def refuse_missing_wandb(training: TrainingConfig) -> None:
    """Refuse a configuration that needs the package `wandb` if it cannot be imported.

    Raises:
        InputError: it cannot.
    """
    if training.wandb:
        try:
            # A folder `wandb`, as the package itself writes, can be imported, too.
            importlib.import_module("wandb").init  # noqa: B018
        except (ImportError, AttributeError) as error:
            raise InputError(
                f"training.wandb: the package wandb cannot be imported ({error})",
                "pip install 'mt-train[wandb]', or set it to false",
            ) from None


class WeightsAndBiases:
    """A run on Weights & Biases; a resumed training continues the same run.

    It sends the configuration, the numbers and the package's own facts about the machine; nothing with
    WANDB_MODE=offline.

    Raises:
        InputError: it cannot be started, without a login, say.
    """

    def __init__(self, run: RunDir, config: Config) -> None:
        wandb: Any = importlib.import_module("wandb")
        if not run.wandb_id.is_file():
            atomic.write_text(run.wandb_id, secrets.token_hex(4))
        project = config.training.wandb if isinstance(config.training.wandb, str) else _PROJECT
        try:
            self._run = wandb.init(
                project=project,
                name=config.name,
                id=run.wandb_id.read_text(encoding="utf-8").strip(),
                resume="allow",
                dir=str(run.root),
                config=config.model_dump(),
                settings=wandb.Settings(console="off", disable_git=True, save_code=False),
            )
        except wandb.errors.Error as error:
            raise InputError(
                f"training.wandb: Weights & Biases does not start: {str(error).splitlines()[0]}",
                "run `wandb login`; or set WANDB_MODE=offline, and run `wandb sync` later",
            ) from None
        # After a crash, steps are repeated, which W&B's own step counter does not allow.
        self._run.define_metric("step", hidden=True)
        self._run.define_metric("*", step_metric="step")

    def write(self, event: str, step: int, numbers: Mapping[str, float]) -> None:
        self._run.log({"step": step, **{f"{event}/{name}": value for name, value in numbers.items()}})

    def close(self) -> None:
        self._run.finish()
