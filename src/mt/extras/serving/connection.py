"""HTTP connections bounded in number and in the time they may be stuck."""

import asyncio
import contextlib
from functools import cache

from uvicorn.protocols.http.h11_impl import H11Protocol

from mt.console import log

_UNLIMITED = 16_384  # open files to reckon with if there is no limit
_CLOSING_SECONDS = 1.0  # at shutdown, for a client that neither finishes its request nor reads its answer


def connection_limits() -> tuple[int, int]:
    """Return the most connections and the most waiting to be accepted, by the process's limit of open files.

    asyncio accepts the whole backlog in one turn of the event loop and needs three turns to close a connection.
    """
    files = _UNLIMITED
    with contextlib.suppress(ImportError):  # Windows does not count sockets as files
        import resource

        limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        files = _UNLIMITED if limit == resource.RLIM_INFINITY else limit
    return max(1, min(files // 2, 8192)), max(1, min(files // 8, 2048))


class Connection(H11Protocol):
    """uvicorn's HTTP/1.1 connection with the bounds that uvicorn lacks.

    uvicorn limits concurrent requests, not connections, and times out only between an answer and the next request. Here
    a connection beyond `limit_concurrency` is closed at once, and so is one that waits for its client longer than
    `timeout_keep_alive`: a client that is silent, sends its request byte by byte or does not read its answer.
    """

    _idle: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        limit, self.limit_concurrency = self.limit_concurrency, None  # uvicorn would answer 503 in plain text
        if limit is not None and len(self.connections) > limit:
            _report_full(limit)
            transport.abort()
        self._watch()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._watch()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._watch()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._stop_watching()

    def _should_upgrade(self) -> bool:
        return False  # uvicorn would warn twice of every request for HTTP/2 or a WebSocket, which it answers as usual

    def shutdown(self) -> None:
        super().shutdown()
        self._close_if_stuck(was_stuck=False)

    def send_400_response(self, msg: str) -> None:
        """Answer a request that is not HTTP, in JSON like every other error."""
        if self.cycle is None or not self.cycle.response_started:
            content = f'{{"error":"{msg}"}}'.encode()
            head = "HTTP/1.1 400 Bad Request\r\ncontent-type: application/json\r\nconnection: close\r\n"
            self.transport.write(f"{head}content-length: {len(content)}\r\n\r\n".encode() + content)
        self.transport.close()

    def _answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete and not self.flow.write_paused

    def _watch(self) -> None:
        """Start the timer that closes the connection, or stop it while the server works on an answer."""
        if self._answering():
            self._stop_watching()
        elif self._idle is None:
            self._idle = self.loop.call_later(self.timeout_keep_alive, self.transport.abort)

    def _stop_watching(self) -> None:
        if self._idle is not None:
            self._idle.cancel()
            self._idle = None

    def _close_if_stuck(self, was_stuck: bool) -> None:
        stuck = not self._answering() or self.cycle.more_body
        if stuck and was_stuck:
            self.transport.abort()
        elif self in self.connections:
            self.loop.call_later(_CLOSING_SECONDS, self._close_if_stuck, stuck)


@cache
def _report_full(limit: int) -> None:
    log.warning("%d connections are open; more are closed at once (raise the limit of open files, ulimit -n)", limit)
