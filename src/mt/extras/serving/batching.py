"""Dynamic batching: sentences of concurrent requests are translated together.

A batch starts as soon as a worker is free, with whatever is waiting; a batch of many sentences takes far less time than
the same sentences one by one.
"""

import asyncio
from collections import deque
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import accumulate

from mt.console import log
from mt.decoding.candidates import Candidate
from mt.decoding.engine import SearchOptions
from mt.decoding.translator import Translator
from mt.extras.serving.limits import Metrics, RequestError

# Sentences in a batch, and characters before its last sentence; more would add latency for little throughput, and a
# running batch cannot be cancelled.
_BATCH_SIZE, _BATCH_CHARACTERS = 128, 8000
# Concurrent batches: while one is tokenized or its responses are sent, another keeps the cores busy.
_WORKERS = 2


@dataclass(eq=False)
class _Job:
    """The sentences of one request and the translations so far, in order."""

    translator: Translator
    options: SearchOptions
    lines: Sequence[str]
    result: "asyncio.Future[list[list[Candidate]]]"
    translations: list[list[Candidate]] = field(default_factory=list)

    def remaining(self) -> Sequence[str]:
        return self.lines[len(self.translations) :]

    def matches(self, other: "_Job") -> bool:
        return (self.translator, self.options) == (other.translator, other.options)


class Batcher:
    """Queue of at most `capacity` sentences, translated in batches per model and search options.

    Requests take turns: one with more sentences than a batch holds goes to the back of the queue with the rest.
    Cancelled requests are skipped.
    """

    def __init__(self, capacity: int, metrics: Metrics) -> None:
        self._capacity, self._metrics = capacity, metrics
        self._jobs: deque[_Job] = deque()
        self._waiting = 0
        self._threads = ThreadPoolExecutor(_WORKERS, "translation")
        self._workers: list[asyncio.Task[None]] = []

    async def translate(
        self, translator: Translator, lines: Sequence[str], options: SearchOptions, even_if_full: bool = False
    ) -> list[list[Candidate]]:
        """Return the n best translations of each line.

        `even_if_full` is for lines of a document, which has already waited for its turn, and of a half-done request.

        Raises:
            RequestError: 503, the queue is full; 500, the translation failed.
        """
        if self._waiting + len(lines) > self._capacity and self._waiting > 0 and not even_if_full:
            raise RequestError(503, "the server is too busy; try again later", {"Retry-After": "1"})
        result: asyncio.Future[list[list[Candidate]]] = asyncio.get_running_loop().create_future()
        self._jobs.append(_Job(translator, options, lines, result))
        self._count(len(lines))
        self._workers = [worker for worker in self._workers if not worker.done()]
        if len(self._workers) < _WORKERS:
            self._workers.append(asyncio.create_task(self._work()))
        return await result

    def close(self) -> None:
        """Stop the threads after their current batches."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _count(self, change: int) -> None:
        self._waiting += change
        self._metrics.waiting.set(self._waiting)

    async def _work(self) -> None:
        loop = asyncio.get_running_loop()
        while self._jobs:
            batch = self._next_batch()
            if not batch:
                continue
            lines = [line for _, share in batch for line in share]
            self._metrics.batch.observe(len(lines))
            first = batch[0][0]
            try:
                translate = first.translator.translate
                translations = iter(await loop.run_in_executor(self._threads, translate, lines, first.options, None))
            except (asyncio.CancelledError, KeyboardInterrupt, SystemExit):
                raise
            except BaseException as error:  # a Rust panic is not an Exception
                log.error("a batch of %d sentences failed: %s: %s", len(lines), type(error).__name__, error)
                for job, _ in batch:
                    self._count(-len(job.remaining()))
                    if not job.result.done():  # the client is still connected
                        job.result.set_exception(RequestError(500, "the translation failed"))
                continue
            for job, share in batch:
                job.translations += [next(translations) for _ in share]
                self._count(-len(share))
                if job.remaining():
                    self._jobs.append(job)
                elif not job.result.done():
                    job.result.set_result(job.translations)

    def _next_batch(self) -> list[tuple[_Job, Sequence[str]]]:
        """Take the first job and all that can share its batch, each with as many sentences as there is room for."""
        batch: list[tuple[_Job, Sequence[str]]] = []
        others: list[_Job] = []
        sentences, characters = _BATCH_SIZE, _BATCH_CHARACTERS
        while self._jobs:
            job = self._jobs.popleft()
            if job.result.done():  # cancelled
                self._count(-len(job.remaining()))
            elif min(sentences, characters) <= 0 or (batch and not job.matches(batch[0][0])):
                others.append(job)
            else:
                lines = job.remaining()[:sentences]
                starts = accumulate(map(len, lines), initial=0)
                share = [line for line, start in zip(lines, starts, strict=False) if start < characters]
                batch.append((job, share))
                sentences, characters = sentences - len(share), characters - sum(map(len, share))
        self._jobs.extend(others)
        return batch
