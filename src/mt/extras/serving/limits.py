"""What a server allows, and who has had enough for now."""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

from mt.extras.serving.problems import RequestError


@dataclass(frozen=True)
class Limits:
    """Bounds on what strangers may ask for.

    Attributes:
        body: bytes of a request.
        texts: texts in a request.
        characters: of all texts of a request together.
        alternatives: further translations of a text.
        waiting: sentences that may wait for a translation; beyond that the server is too busy.
        seconds: a request that is not answered by then is given up.
        requests_per_minute: of one client; 0 is no bound.
    """

    body: int = 64 * 1024
    texts: int = 64
    characters: int = 5000
    alternatives: int = 10
    waiting: int = 2000
    seconds: float = 30.0
    requests_per_minute: int = 600


class RateLimit:
    """Lets each client make so many requests a minute, a sixth of them at once (a leaky bucket).

    Args:
        per_minute: 0 is no bound.
        clock: seconds.
    """

    def __init__(self, per_minute: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate = per_minute / 60
        self._most = max(1.0, per_minute / 6)
        self._clock = clock
        self._clients: dict[str, tuple[float, float]] = {}  # how full, and when that was

    def take(self, client: str) -> None:
        """Counts a request.

        Raises:
            RequestError: 429, the client has made too many.
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
        if len(self._clients) > 10_000:  # nobody's memory: those that are empty by now
            self._clients = {name: then for name, then in self._clients.items() if self._fill(name, now) > 0}
        self._clients[client] = (fill + 1, now)

    def _fill(self, client: str, now: float) -> float:
        fill, then = self._clients.get(client, (0.0, now))
        return max(0.0, fill - (now - then) * self._rate)
