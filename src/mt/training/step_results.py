"""Results of steps: read from the device without stalling it, checked, and averaged for the log."""

import math
from collections import deque
from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from mt.console import log
from mt.errors import DivergedError
from mt.training.metrics_log import MetricsLog
from mt.training.step import StepLoss
from mt.training.train_state import TrainState

MAX_SKIPPED_IN_A_ROW = 5
_LOSS_SCALE_HALVINGS = 16  # from its initial value to 1


def losses_text(means: Mapping[str, float], digits: int) -> str:
    """Format the losses of a summary."""
    guided = f", alignment {means['alignment_loss']:.{digits}f}" if "alignment_loss" in means else ""
    return f"loss {means['loss']:.{digits}f}{guided}"


def _read_later(numbers: Tensor) -> Callable[[], list[float]]:
    """Copy numbers to the CPU without stalling the device; the function returned waits for them."""
    if numbers.device.type != "cuda":
        return numbers.tolist
    copy = torch.empty_like(numbers, device="cpu", pin_memory=True).copy_(numbers, non_blocking=True)
    arrived = torch.cuda.Event()  # type: ignore[no-untyped-call]
    arrived.record()

    def wait() -> list[float]:
        arrived.synchronize()
        return list(copy.tolist())

    return wait


class StepResults:
    """Counts skipped updates, stops a diverging training, and sums losses for the log.

    Args:
        state, metrics: count and record skipped updates.
        late: read a step's results only after the next step was launched, so that the device never waits.
        scales_loss: the loss has a scale, which may need several halvings before an update is finite.
    """

    def __init__(self, state: TrainState, metrics: MetricsLog, late: bool, scales_loss: bool = False) -> None:
        self._state, self._metrics, self._late = state, metrics, late
        self._max_skipped = MAX_SKIPPED_IN_A_ROW + scales_loss * _LOSS_SCALE_HALVINGS
        self._unread: deque[tuple[int, StepLoss, Callable[[], list[float]]]] = deque()
        self._clear()

    def _clear(self) -> None:
        self._losses = [0.0, 0.0, 0.0]  # loss, negative log-likelihood, and alignment
        self._n_target = self._n_tokens = 0

    def add(self, step: int, loss: StepLoss, gradient_norm: Tensor) -> None:
        """Queue a step's results; raises as `flush` does."""
        self._unread.append((step, loss, _read_later(torch.cat([loss.sums, gradient_norm[None]]))))
        self.flush(keep=int(self._late))

    def flush(self, keep: int = 0) -> None:
        """Read all queued results but the last `keep`.

        Raises:
            DivergedError: five updates in a row were not finite; 21 with a loss scale.
        """
        while len(self._unread) > keep:
            step, loss, read = self._unread.popleft()
            *losses, norm = read()
            if math.isfinite(losses[0]) and math.isfinite(norm):
                self._state.skipped_in_a_row = 0
                self._losses = [total + new for total, new in zip(self._losses, losses, strict=True)]
                self._n_target += loss.n_target
                self._n_tokens += loss.n_tokens
            else:
                self._count_skipped(step, losses[0], norm)

    def summary(self, seconds: float) -> dict[str, float]:
        """Average over the updates since the last summary, which took `seconds`; empty if all were skipped."""
        self.flush()
        if self._n_target == 0:
            return {}
        loss, nll, alignment = (total / self._n_target for total in self._losses)
        means = {
            "loss": loss,
            "perplexity": math.exp(min(nll, 700.0)),
            **({"alignment_loss": alignment} if alignment else {}),
            "tokens_per_second": self._n_tokens / seconds,
        }
        self._clear()
        return means

    def _count_skipped(self, step: int, loss: float, norm: float) -> None:
        state = self._state
        state.skipped_updates += 1
        state.skipped_in_a_row += 1
        log.warning("step %d: loss %g, gradient norm %g: not finite, update skipped", step, loss, norm)
        self._metrics.write("skipped_update", step, loss=str(loss), gradient_norm=str(norm))
        if state.skipped_in_a_row >= self._max_skipped:
            raise DivergedError(
                f"training diverged: {state.skipped_in_a_row} updates in a row up to step {step} were not finite",
                "lower training.learning_rate or lengthen training.warmup_steps, and start under another name",
            )
