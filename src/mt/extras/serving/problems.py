"""What goes wrong with a request, as its client reads it."""

from collections.abc import Mapping


class RequestError(Exception):
    """An answer that is an error: a status code of HTTP and one sentence.

    Args:
        status: 400 (ask otherwise), 403 (not allowed), 413 (too large), 429 (too often), 503 (not now).
        sentence: what is wrong.
        headers: of the answer.
    """

    def __init__(self, status: int, sentence: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(sentence)
        self.status = status
        self.sentence = sentence
        self.headers = dict(headers or {})


def gone() -> RequestError:
    """For a client that has hung up: nobody reads it, but it is counted."""
    return RequestError(400, "the client has gone")
