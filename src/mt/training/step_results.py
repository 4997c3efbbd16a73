"""What the latest steps gave: read from the device when that no longer holds it up, judged, and summed for the log."""

import math
from collections import deque
from dataclasses import dataclass

import torch
from torch import Tensor

from mt.console import log
from mt.errors import DivergedError
from mt.training.checkpoint import TrainState
from mt.training.gradients import StepLoss
from mt.training.metrics import Metrics

MAX_SKIPPED_IN_A_ROW = 5


class Reading:
    """Numbers on their way from the device, which goes on with its work meanwhile."""

    def __init__(self, numbers: Tensor) -> None:
        self._numbers, self._arrived = numbers, None
        if numbers.device.type == "cuda":
            self._numbers = torch.empty_like(numbers, device="cpu", pin_memory=True)
            self._numbers.copy_(numbers, non_blocking=True)
            self._arrived = torch.cuda.Event()  # type: ignore[no-untyped-call]
            self._arrived.record()

    def get(self) -> list[float]:
        """Waits until they are here."""
        if self._arrived is not None:
            self._arrived.synchronize()
        numbers: list[float] = self._numbers.tolist()
        return numbers


@dataclass(frozen=True)
class _Outcome:
    step: int
    loss: StepLoss
    reading: Reading


class StepResults:
    """Judges the steps in their order.

    Args:
        progress: where skipped updates are counted.
        metrics: where they are recorded.
        late: read a step only when the next one has been given to the device, so that it never waits.
    """

    def __init__(self, progress: TrainState, metrics: Metrics, late: bool) -> None:
        self._progress, self._metrics, self._late = progress, metrics, late
        self._unread: deque[_Outcome] = deque()
        self._clear()

    def add(self, step: int, loss: StepLoss, gradient_norm: Tensor) -> None:
        """Takes note of a step; see `settle` for what it raises."""
        self._unread.append(_Outcome(step, loss, Reading(torch.cat([loss.sums, gradient_norm[None]]))))
        self.settle(keep=int(self._late))

    def settle(self, keep: int = 0) -> None:
        """Reads all steps but the last `keep`.

        Raises:
            DivergedError: five updates in a row were not finite.
        """
        while len(self._unread) > keep:
            outcome = self._unread.popleft()
            loss, nll, norm = outcome.reading.get()
            if math.isfinite(loss) and math.isfinite(norm):
                self._progress.skipped_in_a_row = 0
                self._loss += loss
                self._nll += nll
                self._n_target += outcome.loss.n_target
                self._n_tokens += outcome.loss.n_tokens
            else:
                self._skipped(outcome.step, loss, norm)

    def summary(self, seconds: float) -> dict[str, float]:
        """Means over all updates since the last summary; nothing where all were skipped.

        Args:
            seconds: what the steps took.
        """
        self.settle()
        if self._n_target == 0:
            return {}
        means = {
            "loss": self._loss / self._n_target,
            "perplexity": math.exp(min(self._nll / self._n_target, 700.0)),
            "tokens_per_second": self._n_tokens / seconds,
        }
        self._clear()
        return means

    def _clear(self) -> None:
        self._loss = self._nll = 0.0
        self._n_target = self._n_tokens = 0

    def _skipped(self, step: int, loss: float, norm: float) -> None:
        place = self._progress
        place.skipped_updates += 1
        place.skipped_in_a_row += 1
        log.warning("step %d: loss %g, gradient norm %g: not finite, update skipped", step, loss, norm)
        self._metrics.write("skipped_update", step, loss=str(loss), gradient_norm=str(norm))
        if place.skipped_in_a_row >= MAX_SKIPPED_IN_A_ROW:
            raise DivergedError(
                f"training diverged: {place.skipped_in_a_row} updates in a row up to step {step} were not finite",
                "lower training.learning_rate or lengthen training.warmup_steps, and start under another name",
            )
