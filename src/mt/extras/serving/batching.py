"""Dynamic batching: sentences of concurrent requests are translated together.

A batch starts as soon as a worker is free, with whatever is waiting; a batch of many sentences takes far less time than
the same sentences one by one.
"""

import asyncio
import time
from collections import deque
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from mt.console import log
from mt.decoding.engine import SearchOptions
from mt.decoding.translator import Candidate, Translator
from mt.extras.serving.limits import RequestError
from mt.extras.serving.metrics import Metrics

# Sentences in a batch; more would add latency for little throughput, and a running batch cannot be cancelled.
_BATCH_SIZE = 128
# Concurrent batches: while one is tokenized or its responses are sent, another keeps the cores busy.
_WORKERS = 2


@dataclass(eq=False)
class _Job:
    """The sentences of one request and the translations found so far, in order."""

    translator: Translator
    options: SearchOptions
    lines: Sequence[str]
    deadline: float
    answer: "asyncio.Future[list[list[Candidate]]]"
    found: list[list[Candidate]] = field(default_factory=list)

    def left(self) -> int:
        return len(self.lines) - len(self.found)

    def fits(self, other: "_Job") -> bool:
        return (self.translator, self.options) == (other.translator, other.options)


class Batcher:
    """Queue of sentences, translated in batches per model and search options.

    Requests take turns: one with more sentences than a batch holds goes to the back of the queue with the rest.
    Cancelled and expired requests are skipped.

    Args:
        waiting: the most sentences in the queue; beyond that a request is refused.
        seconds: time limit of a request.
        metrics: counters.
    """

    def __init__(self, waiting: int, seconds: float, metrics: Metrics) -> None:
        self._most_waiting, self._seconds, self._metrics = waiting, seconds, metrics
        self._jobs: deque[_Job] = deque()
        self._waiting = 0
        self._threads = ThreadPoolExecutor(_WORKERS, "translation")
        self._workers: list[asyncio.Task[None]] = []

    def deadline(self) -> float:
        """Return the deadline of a request that arrives now, by the monotonic clock."""
        return time.monotonic() + self._seconds

    async def translate(
        self, translator: Translator, lines: Sequence[str], options: SearchOptions, deadline: float
    ) -> list[list[Candidate]]:
        """Return the n best translations of each line.

        Args:
            translator: the model.
            lines: sentences.
            options: search options.
            deadline: from `deadline()` when the request arrived.

        Raises:
            RequestError: 503, the queue is full or the deadline has passed.
        """
        if self._waiting + len(lines) > self._most_waiting and self._waiting > 0:
            raise RequestError(503, "the server is too busy; try again later", {"Retry-After": "1"})
        answer: asyncio.Future[list[list[Candidate]]] = asyncio.get_running_loop().create_future()
        self._jobs.append(_Job(translator, options, lines, deadline, answer))
        self._count(len(lines))
        self._workers = [worker for worker in self._workers if not worker.done()]
        if len(self._workers) < _WORKERS:
            self._workers.append(asyncio.create_task(self._work()))
        try:
            # Workers drop expired jobs; this timeout is for a batch that is running.
            return await asyncio.wait_for(answer, deadline - time.monotonic())
        except TimeoutError:
            raise self._late() from None

    def close(self) -> None:
        """Stop the threads after their current batches."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _count(self, change: int) -> None:
        self._waiting += change
        self._metrics.waiting.set(self._waiting)

    def _late(self) -> RequestError:
        return RequestError(503, f"no translation within {self._seconds:g} s; try again later", {"Retry-After": "1"})

    async def _work(self) -> None:
        while self._jobs:
            batch = self._next()
            if not batch:
                continue
            lines = [line for _, own in batch for line in own]
            self._metrics.batch.observe(len(lines))
            loop = asyncio.get_running_loop()
            first = batch[0][0]
            try:
                translate = first.translator.translate
                found = await loop.run_in_executor(self._threads, translate, lines, first.options, None)
            except (asyncio.CancelledError, KeyboardInterrupt, SystemExit):
                raise
            except BaseException as error:  # a Rust panic is not an Exception
                log.error("a batch of %d sentences failed: %s: %s", len(lines), type(error).__name__, error)
                for job, _ in batch:
                    self._end(job, RequestError(500, "the translation failed"))
                continue
            translations = iter(found)
            for job, own in batch:
                job.found += [next(translations) for _ in own]
                self._count(-len(own))
                if job.left():
                    self._jobs.append(job)
                elif not job.answer.done():
                    job.answer.set_result(job.found)

    def _next(self) -> list[tuple[_Job, Sequence[str]]]:
        """Take the first job and all that can share its batch, each with as many sentences as there is room for."""
        batch: list[tuple[_Job, Sequence[str]]] = []
        others: list[_Job] = []
        room = _BATCH_SIZE
        while self._jobs:
            job = self._jobs.popleft()
            if job.answer.done() or time.monotonic() > job.deadline:
                self._end(job, self._late())
            elif room == 0 or (batch and not job.fits(batch[0][0])):
                others.append(job)
            else:
                own = job.lines[len(job.found) : len(job.found) + room]
                batch.append((job, own))
                room -= len(own)
        self._jobs.extend(others)
        return batch

    def _end(self, job: _Job, error: RequestError) -> None:
        """Fail a job, unless its client has gone."""
        self._count(-job.left())
        if not job.answer.done():
            job.answer.set_exception(error)
