"""Checkpoints: whole or absent, verified before use, enough of them kept."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from mt.console import log
from mt.errors import MachineError
from mt.storage import atomic
from mt.storage.manifest import DamagedError, verify
from mt.storage.run_dir import CheckpointDir, RunDir
from mt.system.distributed import SINGLE_PROCESS, Distributed
from mt.training.muon import CombinedOptimizer
from mt.training.sharding import is_sharded, distribute_like, whole


@dataclass
class TrainState:
    """Where training stands: with the weights and the optimiser's moments, all that a resume needs.

    Attributes:
        step: updates done.
        epoch, window, cursor: the batch order's epoch, its window of the corpus, and how many of the window's batches
            are consumed.
        tokens: source and target tokens trained on, padding not counted.
        seconds: time spent in training, all sessions together.
        validated_step: the step last validated.
        best_score, best_step: the best validation so far (higher is better) and where it was.
        best_validations: the best ones, (score, step) each, best first.
        bad_validations: validations since the best.
        measure: what the scores of validations are of; scores of different ones cannot be compared.
        skipped_updates, skipped_in_a_row: updates left out because loss or gradient was not finite.
        out_of_memory: steps that had to be split.
    """

    step: int = 0
    epoch: int = 0
    window: int = 0
    cursor: int = 0
    tokens: int = 0
    seconds: float = 0.0
    validated_step: int = 0
    best_score: float | None = None
    best_step: int | None = None
    best_validations: list[tuple[float, int]] = field(default_factory=list)
    bad_validations: int = 0
    measure: str = ""
    skipped_updates: int = 0
    skipped_in_a_row: int = 0
    out_of_memory: int = 0


class Checkpoints:
    """The checkpoints of one run.

    Args:
        run: where they are.
        distributed: the processes that train together; one of them writes, for any number of them to go on with.
        origin: digests of the data and the tokenizer, which each checkpoint records.
    """

    def __init__(self, run: RunDir, distributed: Distributed = SINGLE_PROCESS, origin: Mapping[str, Any] | None = None) -> None:
        self._run = run
        self.distributed = distributed
        self._origin = origin

    def steps(self) -> list[int]:
        """The steps there are checkpoints of, oldest first, not verified."""
        return self._run.checkpoint_steps()

    def save(
        self,
        progress: TrainState,
        model: nn.Module,
        optimizer: torch.optim.Optimizer | CombinedOptimizer,
        average: Mapping[str, Tensor] | None = None,
    ) -> None:
        """Writes the checkpoint of the current step.

        Args:
            progress: where training stands.
            model, optimizer: their weights and moments.
            average: the moving average of the weights, if there is one.
        """
        parameters = dict(model.named_parameters())
        weights = self._collected({name: parameter.detach() for name, parameter in parameters.items()})
        moments = self._collected(
            {
                f"{name}.{key}": value
                for name, parameter in parameters.items()
                for key, value in optimizer.state[parameter].items()
            }
        )
        average = None if average is None else self._collected(average)
        if self.distributed.is_main:
            self._write(progress, weights, moments, average)
        self.distributed.barrier()

    def _collected(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Tensors made whole, where they are shards, in the memory of the process that writes them."""
        if not any(map(is_sharded, tensors.values())):
            return dict(tensors)
        collected = {}
        for name, tensor in tensors.items():
            one = whole(tensor)
            if self.distributed.is_main:
                collected[name] = one.cpu()
        return collected

    def _write(
        self,
        progress: TrainState,
        weights: dict[str, Tensor],
        moments: dict[str, Tensor],
        average: dict[str, Tensor] | None,
    ) -> None:
        with atomic.new_folder(self._run.checkpoint(progress.step), step=progress.step) as folder:
            checkpoint = CheckpointDir(folder)
            atomic.write_tensors(checkpoint.weights, weights)
            atomic.write_tensors(checkpoint.optimizer, moments)
            if average is not None:
                atomic.write_tensors(checkpoint.average, average)
            atomic.write_json(checkpoint.state, asdict(progress))
            if self._origin is not None:
                atomic.write_json(checkpoint.origin, self._origin)

    def newest(self) -> int | None:
        """The newest checkpoint that is whole; damaged newer ones are set aside.

        Returns:
            its step, or None where there never was a checkpoint; the same in all processes.

        Raises:
            MachineError: there are checkpoints, but none is usable, or one cannot be read.
        """
        return self.distributed.broadcast(self._newest() if self.distributed.is_main else None)

    def _newest(self) -> int | None:
        damaged = []
        for step in reversed(self.steps()):
            try:
                verify(self._run.checkpoint(step))
            except DamagedError as error:
                log.warning("%s: damaged: %s", self._run.checkpoint(step), error)
                damaged.append(step)
                continue
            for each in damaged:
                self._set_aside(each)
            return step
        if damaged or self._run.has_damaged_checkpoints():
            raise MachineError(
                f"{self._run.checkpoints}: no usable checkpoint",
                "restore one from a copy, or delete this folder to train from the start",
            )
        return None

    def _set_aside(self, step: int) -> None:
        folder, aside = self._run.checkpoint(step), self._run.set_aside(step)
        atomic.remove_if_there(aside)
        folder.rename(aside)
        log.warning("%s: set aside as %s", folder, aside.name)

    def load(
        self,
        step: int,
        model: nn.Module,
        optimizer: torch.optim.Optimizer | CombinedOptimizer,
        average: Mapping[str, Tensor] | None = None,
    ) -> TrainState:
        """Puts a checkpoint into a model, its optimiser, and the average of its weights.

        A checkpoint without an average is one of a training that had none yet: it then starts from the weights.
        """
        checkpoint = CheckpointDir(self._run.checkpoint(step))
        weights, moments = load_file(checkpoint.weights), load_file(checkpoint.optimizer)
        for name, parameter in model.named_parameters():
            parameter.detach().copy_(distribute_like(weights[name], parameter))
            keys = [key for key in moments if key.rpartition(".")[0] == name]
            # Adam's step counter stays where the fused kernel wants it: with the parameter.
            # Copies: what was loaded is a map of the file, which would stay on disk when its checkpoint is removed.
            optimizer.state[parameter] = {
                key.rpartition(".")[2]: distribute_like(moments[key], parameter).clone() for key in keys
            }
        if average is not None:
            stored = load_file(checkpoint.best_weights)
            for name, tensor in average.items():
                tensor.copy_(distribute_like(stored[name], tensor))
        progress = TrainState(**json.loads(checkpoint.state.read_bytes()))
        progress.best_validations = [(score, step) for score, step in progress.best_validations]  # JSON has lists only
        return progress

    def weights(self, steps: list[int], averaged: bool = False) -> dict[str, Tensor]:
        """The mean of the weights of some checkpoints (of one: its weights).

        Args:
            steps: which.
            averaged: take the moving average that each has, not the weights themselves.

        Raises:
            MachineError: one of them is damaged or cannot be read.
        """
        total: dict[str, Tensor] = {}
        for step in steps:
            folder = self._run.checkpoint(step)
            try:
                verify(folder)
            except DamagedError as error:
                raise MachineError(
                    f"{folder}: its weights are wanted for the final model, but it is damaged: {error}",
                    "restore it from a copy, or set training.final_weights to last",
                ) from None
            checkpoint = CheckpointDir(folder)
            for name, tensor in load_file(checkpoint.best_weights if averaged else checkpoint.weights).items():
                total[name] = total[name] + tensor if name in total else tensor
        return {name: tensor / len(steps) for name, tensor in total.items()}

    def prune(self, keep: int, also: set[int]) -> None:
        """Removes all but the newest `keep` whole checkpoints and those of the steps in `also`.

        The whole ones are counted after verifying them: a damaged or unreadable one does not count.
        """
        if self.distributed.is_main:
            self._prune(keep, also)
        self.distributed.barrier()

    def _prune(self, keep: int, also: set[int]) -> None:
        n_whole = 0
        for step in reversed(self.steps()):
            if n_whole >= keep:
                if step not in also:
                    atomic.remove(self._run.checkpoint(step))
                continue
            try:
                verify(self._run.checkpoint(step))
                n_whole += 1
            except MachineError as error:
                log.warning("%s", error.message)
            except DamagedError as error:
                log.warning("%s: damaged: %s", self._run.checkpoint(step), error)
                self._set_aside(step)
