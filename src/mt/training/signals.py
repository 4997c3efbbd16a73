"""Signal handling: the first signal requests a clean stop, the second stops at once."""

import contextlib
import os
import signal
import threading
import time
from types import FrameType
from typing import Any, Self

# A signal often arrives twice: torchrun forwards one that the terminal or the job scheduler has sent to all processes,
# and when a terminal is closed, both the kernel and the shell send SIGHUP.
_DUPLICATE_SECONDS = 2.0


class StopRequest:
    """A context in which SIGINT, SIGTERM and SIGHUP are recorded; the training loop checks after each step.

    A second signal, some seconds later, ends the process at once. Only the steps since the last checkpoint are lost,
    since every write is atomic. Where SIGHUP is ignored, as under nohup, it stays ignored. Nothing is recorded
    outside of the main thread, nor are signals for which a program around Python has its own handler.

    Args:
        silent: print nothing, as in other ranks than 0.
        interrupts: the second signal raises `KeyboardInterrupt` if the replaced handler did so, as in a notebook, whose
            process must not end.

    Attributes:
        signal: the number of the signal received, or None.
    """

    def __init__(self, silent: bool = False, interrupts: bool = False) -> None:
        self.signal: int | None = None
        self._received_at = 0.0
        self._silent, self._interrupts = silent, interrupts
        self._previous: dict[int, Any] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is not threading.main_thread():
            return self  # only the main thread may set handlers
        numbers = [signal.SIGINT, signal.SIGTERM]
        if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # not on Windows
            numbers.append(signal.SIGHUP)
        for number in numbers:
            if signal.getsignal(number) is not None:  # a handler set from C could not be restored
                self._previous[number] = signal.signal(number, self._record)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def _record(self, number: int, frame: FrameType | None) -> None:
        if self.signal is not None:
            if time.monotonic() - self._received_at > _DUPLICATE_SECONDS:
                if self._interrupts and self._previous[number] is signal.default_int_handler:
                    raise KeyboardInterrupt
                signal.signal(number, signal.SIG_DFL)
                os.kill(os.getpid(), number)
            return
        self.signal, self._received_at = number, time.monotonic()
        if self._silent:
            return
        # Not through the log: the signal may interrupt a write to the same buffered stream.
        name = signal.Signals(number).name
        with contextlib.suppress(OSError):  # a closed terminal
            os.write(2, f"{name}: saving a checkpoint and stopping (repeat the signal to stop at once)\n".encode())
