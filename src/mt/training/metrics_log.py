"""The metrics log: one JSON object per event, and the same numbers for trackers such as TensorBoard."""

import contextlib
import json
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from mt.storage import atomic
from mt.storage.run_dir import RunDir


class Tracker(Protocol):
    """A program outside of mt that shows a training's numbers."""

    def write(self, event: str, step: int, numbers: Mapping[str, float]) -> None: ...

    def close(self) -> None: ...


class MetricsLog:
    """An append-only log. After a crash, events of lost steps stay, and a `resume` event follows them.

    With `silent`, as in other ranks than 0, nothing is written.

    Attributes:
        listener: called with each event that was written.
        start_trackers: called before the first event; there may be none.
    """

    def __init__(self, run: RunDir, silent: bool = False) -> None:
        self._run, self._silent = run, silent
        self.listener: Callable[[Mapping[str, Any]], object] = lambda event: None
        self.start_trackers: Callable[[], Sequence[Tracker]] = tuple
        self._trackers: Sequence[Tracker] | None = None

    def write(self, event: str, step: int, **values: Any) -> None:
        """Append an event; trackers get the numbers among its values."""
        if self._silent:
            return
        if self._trackers is None:
            self._trackers = self.start_trackers()
        record = {"event": event, "step": step, "time": round(time.time(), 3), **values}
        line = json.dumps(record, ensure_ascii=False)
        atomic.append_line(self._run.metrics, line)
        numbers = {name: value for name, value in values.items() if isinstance(value, int | float)}
        for tracker in self._trackers:
            tracker.write(event, step, numbers)
        self.listener(json.loads(line))  # as it is read from the file

    def last_event(self) -> tuple[str, int]:
        """Return the name and the step of the last event; no name and 0 without one."""
        lines = self._run.metrics.read_bytes().splitlines() if self._run.metrics.is_file() else []
        for line in reversed(lines):
            with contextlib.suppress(ValueError, TypeError, KeyError):  # truncated
                record = json.loads(line)
                return record["event"], int(record["step"])
        return "", 0

    def close(self) -> None:
        for tracker in self._trackers or []:
            tracker.close()
