"""Length of a training with a time limit: the number of steps, planned from the measured speed."""

import time

from mt.config import TrainingConfig
from mt.console import duration, log
from mt.storage import atomic
from mt.storage.manifest import recorded_choice
from mt.storage.run_dir import RunDir
from mt.system.distributed import Distributed

_MAX_FACTOR = 4  # of the configured steps
_FINAL_SHARE = 0.9  # of the planned steps; after it the plan does not change


class LengthPlan:
    """The number of steps that fits into `training.minutes`; each plan holds from the step at which it was made.

    All plans are recorded, so that a resume repeats them instead of measuring again.

    Args:
        run: the run whose `length.json` records the plans.
        settings: the configured length and the time limit; a change of either starts a new record, whose first plan
            uses the speed so far.
        distributed: the ranks; rank 0 decides for all.
        step: the step from which the training starts or resumes.
        elapsed: seconds that earlier sessions of the training took, validations included.
    """

    def __init__(
        self, run: RunDir, settings: TrainingConfig, distributed: Distributed, step: int, elapsed: float
    ) -> None:
        self._path, self._settings, self._distributed = run.length, settings, distributed
        self._earlier, self._started = elapsed, time.monotonic()
        self._steps = self._validations = 0  # of this session
        self._step_seconds = self._validation_seconds = 0.0
        self._limit = {"minutes": settings.minutes, "max_steps": settings.max_steps}
        self._plans: dict[int, int] = {}
        record = recorded_choice(run.length, "limit", "plans")
        if record.get("limit") == self._limit:
            self._plans = {int(at): steps for at, steps in record["plans"].items()}
        elif settings.minutes is not None:
            # Nothing is planned here before the end of the warm-up: `replan` is due by then.
            if elapsed and step >= max(1, min(settings.warmup_steps, settings.max_steps)):
                seconds_left = 60 * settings.minutes - elapsed
                self._plan(step, fitting_steps(settings, step, seconds_left, elapsed / step))
            self._write()

    @property
    def elapsed(self) -> float:
        """Seconds of training so far, over all sessions."""
        return self._earlier + time.monotonic() - self._started

    def add_step(self, seconds: float) -> None:
        """Count a step of this session; the first is slow, and its time left out."""
        self._step_seconds += seconds if self._steps else 0.0
        self._steps += 1

    def add_validation(self, seconds: float) -> None:
        """Count a validation of this session."""
        self._validations += 1
        self._validation_seconds += seconds

    def at(self, step: int) -> int:
        """Return the number of steps that holds at a step."""
        latest = max((at for at in self._plans if at <= step), default=None)
        return self._settings.max_steps if latest is None else max(self._plans[latest], _least_steps(self._settings))

    def is_due(self, step: int) -> bool:
        """Return True at the end of the warm-up and, until the first validation, at powers of two after it or from 64.

        The first of them may be far too pessimistic, since a training starts slowly; waiting for the end of a long
        warm-up might take longer than the limit.
        """
        warm_up, validation = self._settings.warmup_steps, self._settings.validate_every
        return step == warm_up or (min(warm_up + 1, 64) <= step < validation and step & (step - 1) == 0)

    def replan(self, step: int) -> int:
        """Plan the steps that fit into the rest of the time, or repeat the recorded plan; return their number."""
        before, minutes = self.at(step), self._settings.minutes
        if minutes is None or step <= max(self._plans, default=0) or step >= before * _FINAL_SHARE:
            return before
        if self._steps < 2:  # the speed of this session is not known yet
            return before
        seconds_left, per_step = self._distributed.broadcast((60 * minutes - self.elapsed, self._seconds_per_step()))
        self._plan(step, fitting_steps(self._settings, step, seconds_left, per_step))
        self._write()
        warm_up_left = per_step * (self._settings.warmup_steps - step)
        if warm_up_left > seconds_left:
            message = "training.minutes: the warm-up alone takes %s; lower training.warmup_steps"
            log.warning(message, duration(60 * minutes - seconds_left + warm_up_left))
        return self._plans[step]

    def _seconds_per_step(self) -> float:
        """Return the mean time of a step and its share of a validation."""
        per_validation = self._validation_seconds / max(1, self._validations)
        return self._step_seconds / (self._steps - 1) + per_validation / self._settings.validate_every

    def _plan(self, step: int, steps: int) -> None:
        before = self.at(step)
        self._plans[step] = steps
        if abs(steps - before) > before // 20:
            log.info("training.minutes: step %s is the last now, not %s", f"{steps:,}", f"{before:,}")

    def _write(self) -> None:
        if self._distributed.is_main:
            atomic.write_json(self._path, {"limit": self._limit, "plans": self._plans})


def fitting_steps(settings: TrainingConfig, step: int, seconds_left: float, per_step: float) -> int:
    """Return the number of steps of a training that uses up the seconds left, within the bounds of its settings.

    Args:
        settings: with max_epochs, a learning rate that falls to zero gets no more steps than configured, as the epochs
            may end before it has fallen.
        step: the step that the training has reached.
        seconds_left: the time left after that step.
        per_step: seconds of a step, with its share of a validation.
    """
    max_factor = 1 if settings.ends_at_zero and settings.max_epochs is not None else _MAX_FACTOR
    return int(min(max(step + seconds_left / per_step, step, _least_steps(settings)), max_factor * settings.max_steps))


def _least_steps(settings: TrainingConfig) -> int:
    """Return the fewest steps of a plan: a learning rate that falls to zero needs a step after the warm-up."""
    return settings.warmup_steps + 1 if settings.ends_at_zero else 1
