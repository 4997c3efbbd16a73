"""Averages of weights: a moving one along the way, and means of checkpoints at the end."""

import contextlib
from collections.abc import Collection, Iterator, Mapping

import torch
from torch import Tensor, nn

from mt.config import Config, TrainingConfig
from mt.console import log
from mt.errors import MachineError
from mt.model.transformer import set_parameters
from mt.training.checkpoint import Checkpoints, TrainState


class MovingAverage:
    """An exponential moving average of a model's weights: after step t, average <- d average + (1 - d) weights.

    d is the smaller of `decay` and (1 + t) / (10 + t), as in Marian: early on the average is short, so that it soon
    forgets the weights that training started from.
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        self._decay = decay
        self._parameters = [parameter.detach() for parameter in model.parameters()]
        self.weights = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}

    def update(self, step: int) -> None:
        """Takes in the weights after a step, counted from 1."""
        decay = min(self._decay, (1 + step) / (10 + step))
        torch._foreach_lerp_(list(self.weights.values()), self._parameters, 1 - decay)


@contextlib.contextmanager
def swapped_weights(model: nn.Module, weights: Mapping[str, Tensor]) -> Iterator[None]:
    """Gives a model other weights for a while."""
    own = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    set_parameters(model, weights)
    try:
        yield
    finally:
        set_parameters(model, own)


class FinalWeights:
    """Which weights a training would end with, now or at its end.

    Args:
        settings: say which.
        save_every: the steps between two checkpoints.
        checkpoints: where earlier weights are.
        progress: where training stands.
    """

    def __init__(self, settings: TrainingConfig, save_every: int, checkpoints: Checkpoints, progress: TrainState) -> None:
        self._kind, self._count = settings.final_weights, settings.average_checkpoints
        self._save_every, self._checkpoints, self._progress = save_every, checkpoints, progress
        self._validate_every, self._averaged = settings.validate_every, settings.ema_decay is not None

    def candidate(self, now: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """What a validation at the present step scores.

        With `average` that is the mean that training would end with here; otherwise the present weights.
        """
        steps = [s for s in self._newest() if s != self._progress.step][1 - self._count :]
        if self._kind != "average" or not steps:
            return now
        earlier, problem = {}, ""
        try:
            earlier = self._weights(steps)
        except MachineError as error:  # at the end it matters; until then training may well go on
            problem = error.message
        if self._checkpoints.distributed.any(bool(problem)):  # all processes must score the same weights
            reason = problem or "another process cannot read a checkpoint"
            log.warning("%s; this validation scores the present weights alone", reason)
            return now
        share = 1 / (len(steps) + 1)
        return {name: torch.lerp(earlier[name].to(tensor.device), tensor, share) for name, tensor in now.items()}

    def needed(self) -> set[int]:
        """The steps whose checkpoints must be kept."""
        needed = set(self._newest() if self._kind == "average" else [])
        needed |= set(self._best() if self._kind == "average_best" else [])
        return needed | ({self._progress.best_step} if self._progress.best_step is not None else set())

    def final(self) -> tuple[dict[str, Tensor], str]:
        """The weights that become the product, and which they are."""
        place = self._progress
        what = "moving average at " if self._averaged else ""
        if self._kind in ("average", "average_best"):
            steps = self._newest() if self._kind == "average" else self._best()
            made = place.step // (self._save_every if self._kind == "average" else self._validate_every)
            if len(steps) < min(self._count, made):
                log.warning("final_weights: %d checkpoints of the %d to average are there", len(steps), self._count)
            best = " (best on validation)" if self._kind == "average_best" else ""
            return self._weights(steps), f"mean of {what}steps {', '.join(map(str, steps))}{best}"
        if self._kind == "best" and place.best_step is not None:
            return self._weights([place.best_step]), f"{what}step {place.best_step} (best on validation)"
        return self._weights([place.step]), f"{what}step {place.step} (last)"

    def _newest(self) -> list[int]:
        """The newest checkpoints saved on schedule; one saved because of a signal is not among them, so that an
        interrupted run averages the same weights as one that was not. Nor is an old one that was kept for its score."""
        now = self._progress.step
        oldest = now - self._count * self._save_every
        steps = [s for s in self._checkpoints.steps() if s > oldest and (s % self._save_every == 0 or s == now)]
        return steps[-self._count :]

    def _best(self) -> list[int]:
        """The steps with the best validations, in their order.

        Where `average_best` was switched on in the middle of a run, earlier ones may be gone.
        """
        there = set(self._checkpoints.steps())
        best = [step for _, step in self._progress.best_validations if step in there]
        return sorted(best[: self._count]) or [self._progress.step]

    def _weights(self, steps: list[int]) -> dict[str, Tensor]:
        return self._checkpoints.weights(steps, self._averaged)


def measure_of(config: Config) -> str:
    """What the scores of a training's validations are of."""
    settings = config.training
    metric = settings.best_metric if settings.best_metric == "loss" else f"BLEU ({config.evaluation.bleu_tokenize})"
    mean = "a mean of checkpoints" if settings.final_weights == "average" else "one checkpoint"
    return f"{metric} of {mean}{'' if settings.ema_decay is None else ', moving averages'}"


def forget_other_scores(progress: TrainState, measure: str) -> None:
    """Begins the search for the best validation anew where earlier scores cannot be compared with those to come."""
    if progress.measure not in ("", measure) and progress.best_validations:
        log.warning("validations are scored by %s now, not %s: earlier ones no longer count", measure, progress.measure)
        progress.best_score = progress.best_step = None
        progress.best_validations, progress.bad_validations = [], 0
    progress.measure = measure


def forget_lost_best(progress: TrainState, there: Collection[int]) -> None:
    """Forgets the best validation if its checkpoint is gone, as a damaged one may leave it."""
    if progress.best_step is not None and progress.best_step not in there:
        progress.best_score = progress.best_step = None
        progress.bad_validations = 0


def remember(progress: TrainState, score: float, count: int) -> None:
    """Takes note of a validation at the present step; a later one must be better to come before an earlier one.

    Args:
        progress: where the best validations are kept.
        score: higher is better.
        count: how many to keep.
    """
    ranked = [*progress.best_validations, (score, progress.step)]
    progress.best_validations = sorted(ranked, key=lambda entry: (-entry[0], entry[1]))[:count]
