"""Weight averaging: an exponential moving average during training, and means of checkpoints at its end."""

import contextlib
from collections.abc import Iterator, Mapping

import torch
from torch import Tensor, nn

from mt.config import TrainingConfig
from mt.console import log
from mt.errors import MachineError
from mt.model.transformer import set_parameters
from mt.training.checkpoints import Checkpoints
from mt.training.train_state import TrainState


class MovingAverage:
    """An exponential moving average of a model's weights: after step t, average <- d average + (1 - d) weights.

    d is the smaller of `decay` and (1 + t) / (10 + t), as in Marian, so that the average soon forgets the initial
    weights.
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        self._decay = decay
        self._parameters = [parameter.detach() for parameter in model.parameters()]
        self.weights = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}

    def update(self, step: int) -> None:
        """Include the weights after a step, counted from 1."""
        decay = min(self._decay, (1 + step) / (10 + step))
        torch._foreach_lerp_(list(self.weights.values()), self._parameters, 1 - decay)


@contextlib.contextmanager
def swapped_weights(model: nn.Module, weights: Mapping[str, Tensor]) -> Iterator[None]:
    """Give a model other weights inside the `with` block."""
    original = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    set_parameters(model, weights)
    try:
        yield
    finally:
        set_parameters(model, original)


class FinalWeights:
    """The weights that a training ends with: the last, the best, or a mean of checkpoints, `save_every` steps apart."""

    def __init__(self, settings: TrainingConfig, save_every: int, checkpoints: Checkpoints, state: TrainState) -> None:
        self._kind, self._count = settings.final_weights, settings.average_checkpoints
        self._save_every, self._checkpoints, self._state = save_every, checkpoints, state
        self._validate_every, self._averaged = settings.validate_every, settings.ema_decay is not None

    def candidate(self, now: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """Return the weights to validate: with `average` the mean that training would end with here, else `now`."""
        if self._kind != "average":
            return now
        steps = [s for s in self._averaged_steps() if s != self._state.step][1 - self._count :]
        if not steps:
            return now
        earlier, problem = {}, ""
        try:
            earlier = self._checkpoints.weights(steps, self._averaged)
        except MachineError as error:  # fatal only at the end of the training
            problem = error.message
        if self._checkpoints.distributed.any(bool(problem)):  # all ranks must validate the same weights
            reason = problem or "another process cannot read a checkpoint"
            log.warning("%s; this validation scores the present weights alone", reason)
            return now
        share = 1 / (len(steps) + 1)
        return {name: torch.lerp(earlier[name].to(tensor.device), tensor, share) for name, tensor in now.items()}

    def needed(self) -> set[int]:
        """Return the steps whose checkpoints must be kept."""
        return {step for step in (*self._averaged_steps(), self._state.best_step) if step is not None}

    def final(self) -> tuple[dict[str, Tensor], str]:
        """Return the final weights and a description of them."""
        state = self._state
        if steps := self._averaged_steps():
            scheduled = state.step // (self._save_every if self._kind == "average" else self._validate_every)
            if len(steps) < min(self._count, scheduled):
                log.warning("final_weights: only %d of the %d checkpoints to average exist", len(steps), self._count)
            best = " (best on validation)" if self._kind == "average_best" else ""
            name = f"steps {', '.join(map(str, steps))}{best}"
        elif self._kind == "best" and state.best_step is not None:
            steps, name = [state.best_step], f"step {state.best_step} (best on validation)"
        else:
            steps, name = [state.step], f"step {state.step} (last)"
        averaged = self._averaged and self._checkpoints.have_average(steps)
        if self._averaged and not averaged:
            log.warning("training.ema_decay: %s is from before it was set, and has no moving average", name)
        kind = "mean of " * name.startswith("steps") + "moving average at " * averaged
        return self._checkpoints.weights(steps, averaged), kind + name

    def _averaged_steps(self) -> list[int]:
        """Return the steps to average: the newest checkpoints, or those of the best validations; else none.

        Newest are those saved on schedule, not because of a signal, so that an interrupted run averages the same
        weights, nor old ones that were kept for their score. The best are fewer if `average_best` was set during a run.
        """
        now, saved = self._state.step, self._checkpoints.steps()
        if self._kind == "average":
            oldest = now - self._count * self._save_every
            return [s for s in saved if s > oldest and (s % self._save_every == 0 or s == now)][-self._count :]
        if self._kind == "average_best":
            best = [step for _, step in self._state.best_validations if step in saved]
            return sorted(best[: self._count]) or [now]
        return []
