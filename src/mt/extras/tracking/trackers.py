"""Trackers of a training: TensorBoard, and Weights & Biases."""

import importlib.util
import secrets
from collections.abc import Mapping
from typing import Any

from mt.config import Config
from mt.console import log
from mt.errors import InputError, MachineError, first_line
from mt.storage import atomic
from mt.storage.run_dir import RunDir


def start_trackers(config: Config, run: RunDir) -> "list[TensorBoard | WeightsAndBiases]":
    """Start the configured trackers; TensorBoard only if it is installed."""
    started: list[TensorBoard | WeightsAndBiases] = []
    if config.training.tensorboard and importlib.util.find_spec("tensorboard"):
        try:
            started.append(TensorBoard(run))
        except MachineError:
            raise
        except Exception as error:  # a folder of that name in the current directory, or a broken package
            log.warning("training.tensorboard: no curves are written, the package is not usable: %s", error)
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


class WeightsAndBiases:
    """A run on Weights & Biases; a resumed training continues the same run.

    It sends the configuration, the numbers and the package's own facts about the machine; nothing with
    WANDB_MODE=offline.

    Raises:
        InputError: it cannot be started, for example without a login.
    """

    def __init__(self, run: RunDir, config: Config) -> None:
        wandb: Any = importlib.import_module("wandb")
        if not run.wandb_id.is_file():
            atomic.write_text(run.wandb_id, secrets.token_hex(4))
        project = config.training.wandb if isinstance(config.training.wandb, str) else "mt"
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
                f"training.wandb: Weights & Biases does not start: {first_line(error)}",
                "run `wandb login`; or set WANDB_MODE=offline, and run `wandb sync` later",
            ) from None
        # After a crash, steps are repeated, which W&B's own step counter does not allow.
        self._run.define_metric("step", hidden=True)
        self._run.define_metric("*", step_metric="step")

    def write(self, event: str, step: int, numbers: Mapping[str, float]) -> None:
        self._run.log({"step": step, **{f"{event}/{name}": value for name, value in numbers.items()}})

    def close(self) -> None:
        self._run.finish()
