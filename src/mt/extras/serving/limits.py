"""Request limits, rate limits, the error that reports them, and metrics."""

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest


class RequestError(Exception):
    """An error response: HTTP status, a sentence for the client, and headers."""

    def __init__(self, status: int, sentence: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(sentence)
        self.status = status
        self.sentence = sentence
        self.headers = dict(headers or {})


def disconnected() -> RequestError:
    """Return the error for a client that has disconnected; it is not sent but counted."""
    return RequestError(400, "the client has disconnected")


@dataclass(frozen=True)
class Limits:
    """Limits of a request.

    Attributes:
        body: bytes.
        texts: number of texts.
        characters: of all texts together.
        alternatives: n-best translations beside the first.
        waiting: sentences in the queue of all requests; beyond that the answer is 503.
        seconds: time limit of a request.
        requests_per_minute: per client; 0 for no limit.
    """

    body: int = 64 * 1024
    texts: int = 64
    characters: int = 5000
    alternatives: int = 10
    waiting: int = 2000
    seconds: float = 30.0
    requests_per_minute: int = 600


class RateLimit:
    """Leaky bucket per client: so many requests a minute (0 for no limit), a sixth of them at once."""

    def __init__(self, per_minute: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate = per_minute / 60
        self._capacity = max(1.0, per_minute / 6)
        self._clock = clock
        self._buckets: dict[str, tuple[float, float]] = {}  # fill level and its time

    def take(self, client: str) -> None:
        """Count a request.

        Raises:
            RequestError: 429, too many requests.
        """
        if self._rate == 0:
            return
        now = self._clock()
        fill = self._fill(client, now)
        if fill + 1 > self._capacity:
            seconds = (fill + 1 - self._capacity) / self._rate
            message = f"too many requests; the next is allowed in {seconds:.1f} s"
            raise RequestError(429, message, {"Retry-After": f"{math.ceil(seconds)}"})
        if len(self._buckets) > 10_000:  # forget empty buckets
            self._buckets = {name: bucket for name, bucket in self._buckets.items() if self._fill(name, now) > 0}
        self._buckets[client] = (fill + 1, now)

    def _fill(self, client: str, now: float) -> float:
        fill, then = self._buckets.get(client, (0.0, now))
        return max(0.0, fill - (now - then) * self._rate)


class Metrics:
    """Prometheus metrics of one server, in a registry of their own."""

    def __init__(self) -> None:
        registry = self._registry = CollectorRegistry()
        self.requests = Counter("mt_requests", "Requests answered.", ("path", "status"), registry=registry)
        self.seconds = Histogram(
            "mt_request_seconds", "Seconds from a request to its answer.", ("path",), registry=registry
        )
        self.characters = Counter("mt_characters", "Characters translated.", ("source", "target"), registry=registry)
        sizes = [2**n for n in range(10)]
        self.batch = Histogram("mt_batch_sentences", "Sentences translated together.", buckets=sizes, registry=registry)
        self.waiting = Gauge("mt_waiting_sentences", "Sentences that wait or are being translated.", registry=registry)

    def text(self) -> bytes:
        """Return all metrics in Prometheus' text format."""
        return bytes(generate_latest(self._registry))
