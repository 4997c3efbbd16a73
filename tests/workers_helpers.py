"""A job for worker processes, in a module that they can import."""

import os
import signal


def square(number: int) -> int:
    """Square a number; a negative one kills the process."""
    if number < 0:
        os.kill(os.getpid(), signal.SIGKILL)
    return number * number
