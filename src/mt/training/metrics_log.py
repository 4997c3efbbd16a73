"""The metrics log: one JSON object per event, and the same numbers for TensorBoard and Weights & Biases."""

import contextlib
import importlib.util
import json
import secrets
import time
from collections.abc import Callable, Mapping
from typing import Any

from mt.config import Config, TrainingConfig
from mt.console import log
from mt.errors import InputError, MachineError, first_line
from mt.storage import atomic
from mt.storage.run_dir import RunDir


class MetricsLog:
    """An append-only log. After a crash, events of lost steps stay, and a `resume` event follows them.

    With `silent`, as in other ranks than 0, nothing is written.

    Attributes:
        listener: called with each event that was written.
    """

    def __init__(self, run: RunDir, config: Config, silent: bool = False) -> None:
        self._run, self._config, self._silent = run, config, silent
        self.listener: Callable[[Mapping[str, Any]], object] = lambda event: None
        # Started with the first event; there may be none.
        self._trackers: list[TensorBoard | WeightsAndBiases] | None = None

    def write(self, event: str, step: int, **values: Any) -> None:
        """Append an event; trackers get the numbers among its values."""
        if self._silent:
            return
        if self._trackers is None:
            self._trackers = trackers(self._run, self._config)
        record = {"event": event, "step": step, "time": round(time.time(), 3), **values}
        line = json.dumps(record, ensure_ascii=False)
        atomic.append_line(self._run.metrics, line)
        numbers = {name: value for name, value in values.items() if isinstance(value, int | float)}
        for tracker in self._trackers:
            tracker.write(event, step, numbers)
        self.listener(json.loads(line))  # as it is read from the file

    def last_event(self) -> tuple[str, int]:
        """Return the name and the step of the last event; no name and 0 without one."""
        lines = self._run.metrics.read_bytes().splitlines() if self._run.metrics.is_file() else []
        for line in reversed(lines):
            with contextlib.suppress(ValueError, TypeError, KeyError):  # truncated
                record = json.loads(line)
                return record["event"], int(record["step"])
        return "", 0

    def close(self) -> None:
        for tracker in self._trackers or []:
            tracker.close()


def trackers(run: RunDir, config: Config) -> "list[TensorBoard | WeightsAndBiases]":
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


def refuse_missing_wandb(training: TrainingConfig) -> None:
    """Raise an `InputError` if a configuration needs the package `wandb` and it cannot be imported."""
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
