"""The number of steps of a training with a time limit, replanned from the speed of its own steps."""

import json
import time

from mt.config import TrainingConfig
from mt.console import log
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
        settings: the configured length and the limit; another limit or length starts a new record.
        distributed: rank 0 decides for all.
        elapsed: seconds that earlier sessions of the training took, validations included.
    """

    def __init__(self, run: RunDir, settings: TrainingConfig, distributed: Distributed, elapsed: float) -> None:
        self._path, self._settings, self._distributed = run.length, settings, distributed
        self._earlier, self._started = elapsed, time.monotonic()
        self._step_seconds: list[float] = []
        self._validation_seconds: list[float] = []
        self._limit = {"minutes": settings.minutes, "max_steps": settings.max_steps}
        record = json.loads(run.length.read_bytes()) if run.length.exists() else {}
        plans = record["plans"] if record.get("limit") == self._limit else {}
        self._plans: dict[int, int] = {int(step): steps for step, steps in plans.items()}

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

    def replan(self, step: int) -> int:
        """Plan the steps that fit into the rest of the time, or repeat the recorded plan; return their number."""
        before = self.at(step)
        if self._settings.minutes is None or step in self._plans or step >= before * _SETTLED:
            return before
        if not self._step_seconds:  # only validated, after a resume
            return before
        steps = self._distributed.broadcast(self._fitting(step, 60 * self._settings.minutes - self.elapsed))
        self._plans[step] = steps
        if self._distributed.is_main:
            atomic.write_json(self._path, {"limit": self._limit, "plans": self._plans})
        if abs(steps - before) > before // 20:
            log.info("training.minutes: %s steps fit, not %s", f"{steps:,}", f"{before:,}")
        return steps

    def _fitting(self, step: int, seconds_left: float) -> int:
        validations = self._validation_seconds or [0.0]
        per_step, per_validation = (sum(each) / len(each) for each in (self._step_seconds, validations))
        return fitting_steps(self._settings, step, seconds_left, per_step, per_validation)


def fitting_steps(
    settings: TrainingConfig, step: int, seconds_left: float, per_step: float, per_validation: float
) -> int:
    """Return the step at which a training ends if it uses the seconds that are left after this one."""
    seconds = per_step + per_validation / settings.validate_every
    least = max(step, settings.warmup_steps) + 1
    return int(min(max(step + seconds_left / seconds, least), _MOST * settings.max_steps))
