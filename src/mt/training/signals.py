"""Stopping in good order: the first signal asks, the second insists."""

import os
import signal
import time
from types import FrameType, TracebackType
from typing import Any, Self

# torchrun hands on the signal that a terminal or a job's end sends to all processes, so it comes twice.
_SAME_REQUEST = 2.0  # seconds


class StopRequest:
    """While active, SIGINT and SIGTERM are only noted; the training loop looks after each step.

    One that comes after some seconds more finds the default handler in place again and ends the process at once. That
    loses nothing but the steps since the last checkpoint, since every file is written aside and renamed.

    Args:
        silent: say nothing, as the processes beside the main one.

    Attributes:
        signal: the number of the signal received, or None.
    """

    def __init__(self, silent: bool = False) -> None:
        self.signal: int | None = None
        self._asked_at = 0.0
        self._silent = silent
        self._previous: dict[int, Any] = {}

    def __enter__(self) -> Self:
        for number in (signal.SIGINT, signal.SIGTERM):
            self._previous[number] = signal.signal(number, self._note)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.signal is not None:
            if time.monotonic() - self._asked_at > _SAME_REQUEST:
                signal.signal(number, signal.SIG_DFL)
                os.kill(os.getpid(), number)
            return
        self.signal, self._asked_at = number, time.monotonic()
        if self._silent:
            return
        # Not through the log: the signal may have come in the middle of a write to the same buffered stream.
        name = signal.Signals(number).name
        os.write(2, f"{name}: saving a checkpoint and stopping (once more to stop at once)\n".encode())
