"""Processes that share the work on a text."""

import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from typing import TypeVar

from mt.errors import MachineError

Job = TypeVar("Job")
Result = TypeVar("Result")


def start_worker() -> None:
    """Ctrl-C is the main process's affair; and when that is killed, nobody else would end its workers."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    parent = multiprocessing.parent_process()
    assert parent is not None

    def watch() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


@contextmanager
def worker_pool(workers: int, purpose: str, hint: str = "") -> Iterator[ProcessPoolExecutor]:
    """Processes that end with this one; what they have not begun when the context is left is not begun.

    Args:
        workers: how many.
        purpose: what they do, in the past tense.
        hint: what to do where one of them was killed.

    Raises:
        MachineError: one was.
    """
    # Not forked: the tokenizers library has threads, which do not survive that.
    pool = ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"), initializer=start_worker)
    # All start at once, as after forking. Otherwise each starts with a job, and where one dies just then, the library
    # fails in the middle of starting the next, or has not heard of it and waits for it for ever.
    pool._safe_to_dynamically_spawn_children = False  # type: ignore[attr-defined]
    try:
        yield pool
    except BrokenProcessPool:
        for process in list(pool._processes.values()):
            process.kill()
        raise MachineError(f"a process that {purpose} was killed, perhaps for lack of memory", hint) from None
    finally:
        pool.shutdown(cancel_futures=True)


def in_order(work: Callable[[Job], Result], jobs: Iterable[Job], workers: int) -> Iterator[tuple[Job, Result]]:
    """Yields each job with what came of it, in their order.

    Args:
        work: what to do; other processes must be able to import it.
        jobs: made as they are needed, since only a few are under way at a time.
        workers: processes; 1 is this one.

    Raises:
        MachineError: a process was killed.
    """
    if workers == 1:
        for job in jobs:
            yield job, work(job)
        return
    with worker_pool(workers, "read text") as pool:
        waiting: deque[tuple[Job, Future[Result]]] = deque()
        for job in jobs:
            waiting.append((job, pool.submit(work, job)))
            if len(waiting) > 2 * workers:
                first, future = waiting.popleft()
                yield first, future.result()
        for first, future in waiting:
            yield first, future.result()
