"""Checkpoints: written atomically, verified before use, pruned."""

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from safetensors.torch import load_file
from torch import Tensor, nn

from mt.console import log
from mt.errors import MachineError
from mt.storage import atomic
from mt.storage.manifest import DamagedError, verify
from mt.storage.run_dir import CheckpointDir, RunDir
from mt.system.distributed import SINGLE_PROCESS, Distributed
from mt.training.muon import AnyOptimizer
from mt.training.sharding import distribute_like, full_tensor, is_sharded
from mt.training.train_state import TrainState


class Checkpoints:
    """The checkpoints of one run, which rank 0 writes, and from which any number of ranks can resume.

    Each records the `origin`: the configuration, and digests of the data and the tokenizer.
    """

    def __init__(
        self, run: RunDir, distributed: Distributed = SINGLE_PROCESS, origin: Mapping[str, Any] | None = None
    ) -> None:
        self._run = run
        self.distributed = distributed
        self._origin = origin
        self._verified = set[int]()  # steps, by `prune`

    def steps(self) -> list[int]:
        """Return the steps with a checkpoint, oldest first, without verifying them."""
        return self._run.checkpoint_steps()

    def save(
        self, state: TrainState, model: nn.Module, optimizer: AnyOptimizer, average: Mapping[str, Tensor] | None = None
    ) -> None:
        """Write a checkpoint of the state's step, with the moving average of the weights if there is one."""
        weights = self._gathered({name: parameter.detach() for name, parameter in model.named_parameters()})
        moments = {
            f"{name}.{key}": value
            for name, parameter in model.named_parameters()
            for key, value in optimizer.state.get(parameter, {}).items()  # none for frozen parameters
        }
        moments = self._gathered(moments)
        average = None if average is None else self._gathered(average)
        self._verified.discard(state.step)
        if self.distributed.is_main:
            with atomic.new_folder(self._run.checkpoint(state.step), step=state.step) as folder:
                checkpoint = CheckpointDir(folder)
                atomic.write_tensors(checkpoint.weights, weights)
                atomic.write_tensors(checkpoint.optimizer, moments)
                if average is not None:
                    atomic.write_tensors(checkpoint.average, average)
                atomic.write_json(checkpoint.state, asdict(state))
                if self._origin is not None:
                    atomic.write_json(checkpoint.origin, self._origin)
        self.distributed.barrier()

    def _gathered(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Gather sharded tensors into the CPU memory of rank 0; return others as they are."""
        if not any(map(is_sharded, tensors.values())):
            return dict(tensors)
        gathered = {}
        for name, tensor in tensors.items():
            full = full_tensor(tensor)
            if self.distributed.is_main:
                gathered[name] = full.cpu()
        return gathered

    def newest(self) -> int | None:
        """Return the step of the newest undamaged checkpoint, after moving damaged newer ones out of the way.

        It is the same in all ranks; None if there never was a checkpoint.

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
            for damaged_step in damaged:
                self._move_damaged(damaged_step)
            return step
        if damaged or self._run.has_damaged_checkpoints():
            raise MachineError(
                f"{self._run.checkpoints}: no usable checkpoint",
                "restore one from a copy, or delete this folder to train from the start",
            )
        return None

    def _move_damaged(self, step: int) -> None:
        folder, target = self._run.checkpoint(step), self._run.damaged_checkpoint(step)
        atomic.remove(target)
        folder.rename(target)
        log.warning("%s: set aside as %s", folder, target.name)

    def load(
        self, step: int, model: nn.Module, optimizer: AnyOptimizer, average: Mapping[str, Tensor] | None = None
    ) -> TrainState:
        """Load a checkpoint into a model, its optimiser, and the moving average of its weights.

        The average starts from the weights if the checkpoint has none.
        """
        checkpoint = CheckpointDir(self._run.checkpoint(step))
        weights, moments = load_file(checkpoint.weights), load_file(checkpoint.optimizer)
        for name, parameter in model.named_parameters():
            parameter.detach().copy_(distribute_like(weights[name], parameter))
            keys = [key for key in moments if key.rpartition(".")[0] == name]
            if not keys:  # frozen
                continue
            # On the parameter's device, where the fused kernel also wants Adam's step counter. Cloned, because a loaded
            # tensor maps the file and would keep it on disk after its checkpoint is removed.
            optimizer.state[parameter] = {
                key.rpartition(".")[2]: distribute_like(moments[key], parameter).clone() for key in keys
            }
        if average is not None:
            stored = load_file(checkpoint.best_weights)
            for name, tensor in average.items():
                tensor.copy_(distribute_like(stored[name], tensor))
        state = TrainState(**json.loads(checkpoint.state.read_bytes()))
        state.best_validations = [(score, step) for score, step in state.best_validations]  # JSON has no tuples
        return state

    def weights(self, steps: list[int], averaged: bool = False) -> dict[str, Tensor]:
        """Average the weights of the checkpoints of some steps, or their moving averages.

        Raises:
            MachineError: one of them is damaged or cannot be read.
        """
        total: dict[str, Tensor] = {}
        for step in steps:
            folder = self._run.checkpoint(step)
            checkpoint = CheckpointDir(folder)
            path = checkpoint.best_weights if averaged else checkpoint.weights
            try:
                verify(folder, path)
            except DamagedError as error:
                raise MachineError(
                    f"{folder}: its weights are needed for the final model, but it is damaged: {error}",
                    "restore it from a copy, or set training.final_weights to last",
                ) from None
            for name, tensor in load_file(path).items():
                total[name] = total[name] + tensor if name in total else tensor
        return {name: tensor / len(steps) for name, tensor in total.items()}

    def have_average(self, steps: list[int]) -> bool:
        """Return True if the checkpoints of all these steps have a moving average."""
        return all(CheckpointDir(self._run.checkpoint(step)).average.exists() for step in steps)

    def prune(self, keep: int, also: set[int]) -> None:
        """Remove all but the newest `keep` checkpoints and those of the steps in `also`.

        Checkpoints are verified first, each once: damaged or unreadable ones do not count.
        """
        n_valid = 0
        for step in reversed(self.steps()) if self.distributed.is_main else ():
            if n_valid >= keep:
                if step not in also:
                    atomic.remove(self._run.checkpoint(step))
                continue
            try:
                if step not in self._verified:
                    verify(self._run.checkpoint(step))
                    self._verified.add(step)
                n_valid += 1
            except MachineError as error:
                log.warning("%s", error.message)
            except DamagedError as error:
                log.warning("%s: damaged: %s", self._run.checkpoint(step), error)
                self._move_damaged(step)
        self.distributed.barrier()
