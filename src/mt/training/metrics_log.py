"""The metrics log: one JSON object per event, and the same numbers for experiment trackers."""

import json
import time
from collections.abc import Callable, Mapping
from typing import Any

from mt.config import Config
from mt.storage import atomic
from mt.storage.run_dir import RunDir
from mt.training.trackers import TensorBoard, WeightsAndBiases, trackers


class MetricsLog:
    """An append-only log. After a crash, events of lost steps stay, and a `resume` event follows them.

    Args:
        run: the run.
        config: names the trackers.
        silent: write nothing, as in other ranks than 0.
        listener: called with each event that was written.
    """

    def __init__(
        self,
        run: RunDir,
        config: Config,
        silent: bool = False,
        listener: Callable[[Mapping[str, Any]], None] = lambda event: None,
    ) -> None:
        self._path = run.metrics
        self._silent = silent
        self._listener = listener
        self._run, self._config = run, config
        # Started with the first event; there may be none.
        self._trackers: list[TensorBoard | WeightsAndBiases] | None = None

    def write(self, event: str, step: int, **values: Any) -> None:
        """Write an event; trackers plot the numbers among its values."""
        if self._silent:
            return
        if self._trackers is None:
            self._trackers = trackers(self._run, self._config)
        record = {"event": event, "step": step, "time": round(time.time(), 3), **values}
        line = json.dumps(record, ensure_ascii=False)
        atomic.append_line(self._path, line)
        numbers = {name: value for name, value in values.items() if isinstance(value, int | float)}
        for tracker in self._trackers:
            tracker.write(event, step, numbers)
        self._listener(json.loads(line))  # as it is read from the file

    def close(self) -> None:
        for tracker in self._trackers or []:
            tracker.close()
