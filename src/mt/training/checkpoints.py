"""Checkpoints: whole or absent, verified before use, enough of them kept."""

import json
from collections.abc import Mapping
from dataclasses import asdict
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
from mt.training.sharding import distribute_like, full_tensor, is_sharded
from mt.training.train_state import TrainState


class Checkpoints:
    """The checkpoints of one run.

    Args:
        run: where they are.
        distributed: the processes that train together; one of them writes, for any number of them to go on with.
        origin: digests of the data and the tokenizer, which each checkpoint records.
    """

    def __init__(
        self, run: RunDir, distributed: Distributed = SINGLE_PROCESS, origin: Mapping[str, Any] | None = None
    ) -> None:
        self._run = run
        self.distributed = distributed
        self._origin = origin

    def steps(self) -> list[int]:
        """The steps there are checkpoints of, oldest first, not verified."""
        return self._run.checkpoint_steps()

    def save(
        self,
        state: TrainState,
        model: nn.Module,
        optimizer: torch.optim.Optimizer | CombinedOptimizer,
        average: Mapping[str, Tensor] | None = None,
    ) -> None:
        """Writes the checkpoint of the current step.

        Args:
            state: where training stands.
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
            self._write(state, weights, moments, average)
        self.distributed.barrier()

    def _collected(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Tensors made whole, where they are shards, in the memory of the process that writes them."""
        if not any(map(is_sharded, tensors.values())):
            return dict(tensors)
        collected = {}
        for name, tensor in tensors.items():
            one = full_tensor(tensor)
            if self.distributed.is_main:
                collected[name] = one.cpu()
        return collected

    def _write(
        self,
        state: TrainState,
        weights: dict[str, Tensor],
        moments: dict[str, Tensor],
        average: dict[str, Tensor] | None,
    ) -> None:
        with atomic.new_folder(self._run.checkpoint(state.step), step=state.step) as folder:
            checkpoint = CheckpointDir(folder)
            atomic.write_tensors(checkpoint.weights, weights)
            atomic.write_tensors(checkpoint.optimizer, moments)
            if average is not None:
                atomic.write_tensors(checkpoint.average, average)
            atomic.write_json(checkpoint.state, asdict(state))
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
                self._move_damaged(each)
            return step
        if damaged or self._run.has_damaged_checkpoints():
            raise MachineError(
                f"{self._run.checkpoints}: no usable checkpoint",
                "restore one from a copy, or delete this folder to train from the start",
            )
        return None

    def _move_damaged(self, step: int) -> None:
        folder, aside = self._run.checkpoint(step), self._run.damaged_checkpoint(step)
        atomic.remove_if_exists(aside)
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
        state = TrainState(**json.loads(checkpoint.state.read_bytes()))
        state.best_validations = [(score, step) for score, step in state.best_validations]  # JSON has lists only
        return state

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
                self._move_damaged(step)
