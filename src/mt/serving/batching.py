"""Sentences of many requests, translated together.

While one batch is translated the next ones gather; nobody waits for company. An engine works through a batch of many
sentences in far less time than through the same sentences one by one.
"""

import asyncio
import time
from collections import deque
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from mt.console import log
from mt.decoding.engine import SearchOptions
from mt.decoding.translator import Candidate, Translator
from mt.serving.metrics import Metrics
from mt.serving.problems import RequestError

_MOST = 256  # sentences in a batch: more would make the others wait for longer than they gain


@dataclass
class _Job:
    """The sentences of one request."""

    translator: Translator
    options: SearchOptions
    lines: Sequence[str]
    deadline: float
    answer: "asyncio.Future[list[list[Candidate]]]"


class Batcher:
    """Takes sentences and gives their translations, as many at a time as are waiting for the same model.

    Args:
        waiting: sentences that may wait; beyond that a request is refused.
        seconds: how long a request may take.
        metrics: what is counted.
    """

    def __init__(self, waiting: int, seconds: float, metrics: Metrics) -> None:
        self._most_waiting, self._seconds, self._metrics = waiting, seconds, metrics
        self._jobs: deque[_Job] = deque()
        self._waiting = 0
        self._thread = ThreadPoolExecutor(1, "translation")
        self._worker: asyncio.Task[None] | None = None

    async def translate(
        self, translator: Translator, lines: Sequence[str], options: SearchOptions
    ) -> list[list[Candidate]]:
        """The n best translations of each line.

        Raises:
            RequestError: 503, too many are waiting, or it took too long.
        """
        if self._waiting + len(lines) > self._most_waiting and self._waiting > 0:
            raise RequestError(503, "the server is too busy; try again later", {"Retry-After": "1"})
        answer: asyncio.Future[list[list[Candidate]]] = asyncio.get_running_loop().create_future()
        self._jobs.append(_Job(translator, options, lines, time.monotonic() + self._seconds, answer))
        self._count(len(lines))
        if self._worker is None or self._worker.done():
            self._worker = asyncio.create_task(self._work())
        try:
            # The worker gives an answer even then, so that this is for a batch that takes too long.
            return await asyncio.wait_for(answer, self._seconds)
        except TimeoutError:
            raise self._late() from None

    def close(self) -> None:
        """Ends the thread; a batch that nobody waits for any more does not keep the process."""
        self._thread.shutdown(wait=False, cancel_futures=True)

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
            lines = [line for job in batch for line in job.lines]
            self._metrics.batch.observe(len(lines))
            loop = asyncio.get_running_loop()
            try:
                found = await loop.run_in_executor(self._thread, batch[0].translator.translate, lines, batch[0].options)
            except Exception as error:
                log.error("a batch of %d sentences failed: %s: %s", len(lines), type(error).__name__, error)
                for job in batch:
                    if not job.answer.done():
                        job.answer.set_exception(RequestError(500, "the translation failed"))
                continue
            finally:
                self._count(-len(lines))
            translations = iter(found)
            for job in batch:
                own = [next(translations) for _ in job.lines]
                if not job.answer.done():
                    job.answer.set_result(own)

    def _next(self) -> list[_Job]:
        """Takes the first job and all that fit to it out of those waiting; who has gone or is late is left out."""
        batch: list[_Job] = []
        others: list[_Job] = []
        size = 0
        while self._jobs:
            job = self._jobs.popleft()
            if job.answer.done() or time.monotonic() > job.deadline:
                self._count(-len(job.lines))
                if not job.answer.done():
                    job.answer.set_exception(self._late())
            elif batch and (
                (job.translator, job.options) != (batch[0].translator, batch[0].options)
                or size + len(job.lines) > _MOST
            ):
                others.append(job)
            else:
                batch.append(job)
                size += len(job.lines)
        self._jobs.extend(others)
        return batch
