"""A job for worker processes, in a module that they can import."""

import os
import signal

from mt.system.workers import in_order


def square(number: int) -> int:
    """Square a number; a negative one kills the process."""
    if number < 0:
        os.kill(os.getpid(), signal.SIGKILL)
    return number * number


def squares(numbers: list[int]) -> list[int]:
    """Square numbers in two processes."""
    return [result for _, result in in_order(square, numbers, 2)]
