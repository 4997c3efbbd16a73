"""Every event of a training, one JSON object a line; and the same numbers for TensorBoard, when it is installed."""

import importlib.util
import json
import time
from typing import Any

from mt import storage
from mt.run_dir import RunDir


class Metrics:
    """Appends events to metrics.jsonl. After a crash, events of lost steps stay, and a `resume` event follows.

    Args:
        run: whose file it is.
        tensorboard: whether TensorBoard is to have the numbers too.
        silent: write nothing, as the processes beside the main one.
    """

    def __init__(self, run: RunDir, tensorboard: bool, silent: bool = False) -> None:
        self._path = run.metrics
        self._silent = silent
        self._board: Any = None
        if tensorboard and not silent and importlib.util.find_spec("tensorboard"):
            from torch.utils.tensorboard import SummaryWriter

            self._board = SummaryWriter(str(run.tensorboard))

    def write(self, event: str, step: int, **values: Any) -> None:
        """Records an event; numbers among its values become TensorBoard curves."""
        if self._silent:
            return
        record = {"event": event, "step": step, "time": round(time.time(), 3), **values}
        storage.append_line(self._path, json.dumps(record, ensure_ascii=False))
        if self._board is not None:
            for name, value in values.items():
                if isinstance(value, int | float):
                    self._board.add_scalar(f"{event}/{name}", value, step)

    def close(self) -> None:
        if self._board is not None:
            self._board.close()
