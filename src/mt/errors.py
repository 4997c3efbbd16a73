"""The errors a user can meet: one sentence, a hint, and an exit code each.

Anything that is not an `MtError` is a bug of ours and exits with 1.
"""

import errno
import re


class MtError(Exception):
    """A failure that is explained to the user instead of shown as a traceback.

    Args:
        message: one sentence: what is wrong and where (`file:line`, or the configuration key).
        hint: what to do about it, where that is not plain from the message.
    """

    exit_code = 1

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message}\n  {self.hint}" if self.hint else self.message


class InputError(MtError):
    """The user's input, configuration or data is at fault."""

    exit_code = 2


class DivergedError(MtError):
    """Training produced non-finite numbers too often to go on."""

    exit_code = 3


class MachineError(MtError):
    """The machine is at fault: disk, memory, permissions, no usable checkpoint."""

    exit_code = 4


class StoppedError(MtError):
    """A signal asked the process to stop, and it did so in good order."""

    def __init__(self, signal_number: int, message: str, hint: str = "") -> None:
        super().__init__(message, hint)
        self.exit_code = 128 + signal_number


def is_out_of_memory(error: BaseException) -> bool:
    """Whether memory ran out, the machine's or a GPU's, as Python, torch or CTranslate2 say it."""
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return True
    # RuntimeErrors of torch's allocator for the CPU, and of CTranslate2.
    return isinstance(error, RuntimeError) and bool(
        re.search("can't allocate memory|out of memory|ALLOC_FAILED", str(error))
    )


def is_disk_full(error: BaseException) -> bool:
    """Whether space on a disk ran out, or the user's share of it."""
    # `datasets` foresees it, and then gives no number.
    return isinstance(error, OSError) and (
        error.errno in (errno.ENOSPC, errno.EDQUOT) or "Not enough disk space" in str(error)
    )
