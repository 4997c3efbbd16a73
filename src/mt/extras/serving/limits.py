"""Request limits, rate limits, the error that reports them, and metrics."""

import math
import time
from dataclasses import dataclass

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from starlette.exceptions import HTTPException


class RequestError(HTTPException):
    """An error response: HTTP status, a sentence for the client, and headers."""


@dataclass(frozen=True)
class Limits:
    """Limits of a request."""

    body: int = 64 * 1024  # bytes
    texts: int = 64
    characters: int = 5000  # of all texts together
    alternatives: int = 10  # n-best translations beside the first
    waiting: int = 2000  # sentences in the queue of all requests; beyond that the answer is 503
    seconds: float = 30.0
    requests_per_minute: int = 600  # per client; 0 for no limit
    file: int = 10_000_000  # bytes of a request with a document; 0 for no documents
    file_characters: int = 500_000
    file_seconds: float = 300.0  # to send a document, and to translate it


class RateLimit:
    """Leaky bucket per client: `per_minute` requests a minute (0 for no limit), a sixth of them at once."""

    def __init__(self, per_minute: int) -> None:
        self._rate, self._capacity = per_minute / 60, max(1.0, per_minute / 6)
        self._buckets: dict[str, tuple[float, float]] = {}  # fill level and its time

    def take(self, client: str) -> None:
        """Count a request, or raise a RequestError (429, too many requests)."""
        if self._rate == 0:
            return
        now = time.monotonic()
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
