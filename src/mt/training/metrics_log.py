"""Every event of a training, one JSON object a line; and the same numbers for the programs that draw curves."""

import json
import time
from typing import Any

from mt.config import Config
from mt.storage import atomic
from mt.storage.run_dir import RunDir
from mt.training.trackers import Tracker, trackers


class MetricsLog:
    """Appends events to metrics.jsonl. After a crash, events of lost steps stay, and a `resume` event follows.

    Args:
        run: whose file it is.
        config: says who is to have the numbers, too.
        silent: write nothing, as the processes beside the main one.
    """

    def __init__(self, run: RunDir, config: Config, silent: bool = False) -> None:
        self._path = run.metrics
        self._silent = silent
        self._run, self._config = run, config
        self._trackers: list[Tracker] | None = None  # begun before the first event, for there may be none

    def write(self, event: str, step: int, **values: Any) -> None:
        """Records an event; numbers among its values become curves."""
        if self._silent:
            return
        if self._trackers is None:
            self._trackers = trackers(self._run, self._config)
        record = {"event": event, "step": step, "time": round(time.time(), 3), **values}
        atomic.append_line(self._path, json.dumps(record, ensure_ascii=False))
        numbers = {name: value for name, value in values.items() if isinstance(value, int | float)}
        for tracker in self._trackers:
            tracker.write(event, step, numbers)

    def close(self) -> None:
        for tracker in self._trackers or []:
            tracker.close()
