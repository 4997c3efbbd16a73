"""The number of steps of a training with a time limit, replanned from the speed of its own steps."""

import json
import time

from mt.config import TrainingConfig
from mt.console import duration, log
from mt.storage import atomic
from mt.storage.run_dir import RunDir
from mt.system.distributed import Distributed

_MOST = 4  # times the configured steps
_SETTLED = 0.9  # share of the steps after which the end stays


class LengthPlan:
    """The value of `training.max_steps` that fits into `training.minutes`, by the step from which it holds.

    All plans are recorded, so that a resume repeats them instead of measuring again.

    Args:
        run: records the plans.
        settings: the configured length and the limit; another limit or length starts a new record, whose first plan is
            made of the speed so far.
        distributed: rank 0 decides for all.
        step: the step from which the training starts or resumes.
        elapsed: seconds that earlier sessions of the training took, validations included.
    """

    def __init__(
        self, run: RunDir, settings: TrainingConfig, distributed: Distributed, step: int, elapsed: float
    ) -> None:
        self._path, self._settings, self._distributed = run.length, settings, distributed
        self._earlier, self._started = elapsed, time.monotonic()
        self._step_seconds: list[float] = []
        self._validation_seconds: list[float] = []
        self._limit = {"minutes": settings.minutes, "max_steps": settings.max_steps}
        self._plans: dict[int, int] = {}
        record = json.loads(run.length.read_bytes()) if run.length.exists() else {}
        if record.get("limit") == self._limit:
            self._plans = {int(at): steps for at, steps in record["plans"].items()}
        elif settings.minutes is not None:
            # Earlier, the end of the warm-up will tell the speed.
            if elapsed and step >= max(1, min(settings.warmup_steps, settings.max_steps)):
                seconds_left = 60 * settings.minutes - elapsed
                self._plan(step, fitting_steps(settings, step, seconds_left, elapsed / step))
            self._write()

    @property
    def elapsed(self) -> float:
        """Seconds of training so far, over all sessions."""
        return self._earlier + time.monotonic() - self._started

    def add_step(self, seconds: float) -> None:
        """Count a step of this session."""
        self._step_seconds.append(seconds)

    def add_validation(self, seconds: float) -> None:
        """Count a validation of this session."""
        self._validation_seconds.append(seconds)

    def at(self, step: int) -> int:
        """Return the number of steps that holds at a step."""
        latest = max((at for at in self._plans if at <= step), default=None)
        return self._settings.max_steps if latest is None else self._plans[latest]

    def is_due(self, step: int) -> bool:
        """Return True at the end of the warm-up and, until the first validation, at powers of two after it or from 64.

        A training's first steps may be far slower than the others, and a long warm-up may take longer than the limit.
        """
        warm_up, validation = self._settings.warmup_steps, self._settings.validate_every
        return step == warm_up or (min(warm_up + 1, 64) <= step < validation and step & (step - 1) == 0)

    def replan(self, step: int) -> int:
        """Plan the steps that fit into the rest of the time, or repeat the recorded plan; return their number."""
        before, minutes = self.at(step), self._settings.minutes
        if minutes is None or step <= max(self._plans, default=0) or step >= before * _SETTLED:
            return before
        if len(self._step_seconds) < 2:  # nothing is known of this session's speed
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
        """Return the mean time of a step, without the session's first, which is slow, and its share of a validation."""
        steps, validations = self._step_seconds[1:], self._validation_seconds or [0.0]
        per_step, per_validation = (sum(each) / len(each) for each in (steps, validations))
        return per_step + per_validation / self._settings.validate_every

    def _plan(self, step: int, steps: int) -> None:
        before = self.at(step)
        self._plans[step] = steps
        if abs(steps - before) > before // 20:
            log.info("training.minutes: step %s is the last now, not %s", f"{steps:,}", f"{before:,}")

    def _write(self) -> None:
        if self._distributed.is_main:
            atomic.write_json(self._path, {"limit": self._limit, "plans": self._plans})


def fitting_steps(settings: TrainingConfig, step: int, seconds_left: float, per_step: float) -> int:
    """Return the step at which a training ends if it uses the seconds that are left after this one.

    Args:
        settings: bounds it; a learning rate that falls to zero needs a step after the warm-up, and with max_epochs no
            more steps than configured, as the epochs may end before it has fallen.
        step: the step that the training has reached.
        seconds_left: after that step.
        per_step: seconds of a step, with its share of a validation.
    """
    least = settings.warmup_steps + 1 if settings.ends_at_zero else 1
    most = 1 if settings.ends_at_zero and settings.max_epochs is not None else _MOST
    return int(min(max(step + seconds_left / per_step, step, least), most * settings.max_steps))
