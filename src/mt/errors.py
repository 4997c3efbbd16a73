"""Errors for the user: one sentence, a hint, and an exit code each. Any other exception is a bug and exits with 1."""

import contextlib
import errno
import re
from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any


class MtError(Exception):
    """A failure reported to the user without a traceback.

    Args:
        message: one sentence: what is wrong and where (`file:line`, or the configuration key).
        hint: what to do, unless the message implies it.
    """

    exit_code = 1

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    @property
    def location(self) -> str | None:
        """The file, `file:line` or key that the message begins with; None if it names none there."""
        match = re.match(r"((?:[A-Za-z]:[\\/])?(?:[^\s:]+|[^:\n]+(?=:\d))(?::\d+)?): ", self.message)
        return match[1] if match else None

    def __str__(self) -> str:
        return f"{self.message}\n  {self.hint}" if self.hint else self.message

    def __reduce__(self) -> tuple[Any, ...]:  # a process of a pool hangs if its error cannot be unpickled
        return type(self).__new__, (type(self), self.message), vars(self)


class InputError(MtError):
    """An error in the user's input, configuration or data."""

    exit_code = 2


class DivergedError(MtError):
    """A training whose loss or gradient was not finite too often."""

    exit_code = 3


class MachineError(MtError):
    """A problem of the machine: disk, memory, permissions, no usable checkpoint."""

    exit_code = 4


class StoppedError(MtError):
    """A clean stop after a signal."""

    def __init__(self, signal_number: int, message: str, hint: str = "") -> None:
        super().__init__(message, hint)
        self.exit_code = 128 + signal_number


def contradict(both: bool, one: str, other: str) -> None:
    """Refuse two options if both are used."""
    if both:
        raise InputError(f"{one} and {other} contradict each other", "give one of them")


def require_package(package: str, user: str, hint: str = "pip install 'mt-train[data]'") -> None:
    """Raise InputError if a package, named as in an import, is not installed; `user` is what needs it."""
    if find_spec(package) is None:
        raise InputError(f"{user} needs a package that is not installed ({package.replace('_', '-')})", hint)


def first_line(error: BaseException, limit: int = 300) -> str:
    """Return the first line of an error's message, or its type if the message is empty."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:limit]


def is_out_of_memory(error: BaseException) -> bool:
    """Return True if the machine or a GPU ran out of memory, as Python, torch or CTranslate2 report it."""
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return True
    # RuntimeErrors of torch's CPU allocator and of CTranslate2.
    return isinstance(error, RuntimeError) and bool(
        re.search("can't allocate memory|out of memory|ALLOC_FAILED", str(error))
    )


@contextlib.contextmanager
def memory_explained(hint: str) -> Iterator[None]:
    """Turn the errors of `is_out_of_memory` into a `MachineError`."""
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        raise MachineError("out of memory", hint) from None


def is_disk_full(error: BaseException) -> bool:
    """Return True if a disk or the user's quota is full."""
    # `datasets` checks the space in advance, and its error has no errno.
    return isinstance(error, OSError) and (
        error.errno in (errno.ENOSPC, errno.EDQUOT) or "Not enough disk space" in str(error)
    )
