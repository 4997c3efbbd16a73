"""Request limits, rate limits and the error that reports them."""

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass


class RequestError(Exception):
    """An error response.

    Args:
        status: HTTP status code.
        sentence: the message for the client.
        headers: response headers.
    """

    def __init__(self, status: int, sentence: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(sentence)
        self.status = status
        self.sentence = sentence
        self.headers = dict(headers or {})


def disconnected() -> RequestError:
    """Return the error for a client that has disconnected: nobody reads it, but it is counted."""
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
    """Leaky bucket per client: so many requests a minute, a sixth of them at once.

    Args:
        per_minute: 0 for no limit.
        clock: returns seconds.
    """

    def __init__(self, per_minute: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate = per_minute / 60
        self._most = max(1.0, per_minute / 6)
        self._clock = clock
        self._clients: dict[str, tuple[float, float]] = {}  # fill level and its time

    def take(self, client: str) -> None:
        """Count a request.

        Raises:
            RequestError: 429, too many requests.
        """
        if self._rate == 0:
            return
        now = self._clock()
        fill = self._fill(client, now)
        if fill + 1 > self._most:
            seconds = (fill + 1 - self._most) / self._rate
            raise RequestError(
                429,
                f"too many requests; the next is allowed in {seconds:.1f} s",
                {"Retry-After": f"{math.ceil(seconds)}"},
            )
        if len(self._clients) > 10_000:  # forget empty buckets
            self._clients = {name: then for name, then in self._clients.items() if self._fill(name, now) > 0}
        self._clients[client] = (fill + 1, now)

    def _fill(self, client: str, now: float) -> float:
        fill, then = self._clients.get(client, (0.0, now))
        return max(0.0, fill - (now - then) * self._rate)
