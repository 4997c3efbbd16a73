"""Worker processes."""

import multiprocessing
import os
import signal
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from typing import Any, TypeVar

from mt.errors import MachineError

Job = TypeVar("Job")
Result = TypeVar("Result")


def start_worker() -> None:
    """Initialise a worker: leave a terminal's signals to the main process, and exit when the main process dies."""
    for name in ("SIGINT", "SIGHUP"):
        if hasattr(signal, name):  # Windows has no SIGHUP
            signal.signal(getattr(signal, name), signal.SIG_IGN)
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    parent = multiprocessing.parent_process()
    assert parent is not None

    def watch() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


@contextmanager
def worker_pool(workers: int, purpose: str, hint: str = "") -> Iterator[ProcessPoolExecutor]:
    """Start worker processes that end with this one; leaving the context cancels the jobs not yet started.

    Raises MachineError, with the hint, if one is killed; its message says their purpose, which is in the past tense.
    """
    # Spawned, not forked: the threads of the tokenizers library do not survive a fork.
    workers = min(workers, 61) if sys.platform == "win32" else workers  # Windows cannot wait for more
    pool = ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"), initializer=start_worker)
    # Start all at once, as with fork. Otherwise each starts with a job, and if one dies just then, the library fails
    # while it starts the next, or never notices and waits forever.
    pool._safe_to_dynamically_spawn_children = False  # type: ignore[attr-defined]
    try:
        with _hidden_script():
            pool.submit(int)
        yield pool
    except BrokenProcessPool:
        for process in list(pool._processes.values()):
            process.kill()
        raise MachineError(f"a process that {purpose} was killed, perhaps for lack of memory", hint) from None
    finally:
        pool.shutdown(cancel_futures=True)


@contextmanager
def _hidden_script() -> Iterator[None]:
    """Keep new processes from running the user's script, which may do its work without asking for `__main__`."""
    main = vars(sys.modules["__main__"])
    hidden: dict[str, Any] = {name: main[name] for name in ("__file__", "__spec__") if name in main}
    main.pop("__file__", None)
    main["__spec__"] = None
    try:
        yield
    finally:
        main.update(hidden)


def in_order(work: Callable[[Job], Result], jobs: Iterable[Job], workers: int) -> Iterator[tuple[Job, Result]]:
    """Yield each job with its result, in order; raise MachineError if a worker process is killed.

    Workers must be able to import `work`; jobs are consumed lazily, a few at a time. With one worker, or in a process
    of `multiprocessing.Pool`, this process does the work.
    """
    if workers == 1 or multiprocessing.current_process().daemon:  # a daemon may not have children
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
