"""A server process and a client for it."""

import http.client
import json
import os
import re
import signal
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlparse

from command import Command

# A server whose model takes its time and answers in capitals; its argument is the time of a document.
SLOW_SERVER = """
import sys, time
from mt.console import set_up_logging
from mt.decoding.engine import SearchOptions
from mt.decoding.candidates import Candidate
from mt.decoding.translator import Translator
from mt.extras.serving.app import create_app
from mt.extras.serving.limits import Limits
from mt.extras.serving.server import listen, serve
from mt.extras.serving.service import Direction

class Slow(Translator):
    def __init__(self): self.separator = " "
    def translate(self, lines, options, first_line=1):
        time.sleep(0.05)
        return [[Candidate(line.upper(), 0.0, 0.0)] for line in lines]

set_up_logging()
app = create_app([Direction("en", "xx", Slow(), SearchOptions())], Limits(waiting=300, file_seconds=float(sys.argv[1])))
serve(app, listen("127.0.0.1", 0), drain_seconds=1)
"""
FORM = "multipart/form-data; boundary=x7Zz"


def form(file_name: str | None, content: bytes = b"", **fields: str) -> bytes:
    """A body of the kind `FORM`, with a document unless its name is None."""
    head = '--x7Zz\r\nContent-Disposition: form-data; name="{}"{}\r\n\r\n'
    parts = [head.format(name, "").encode() + value.encode() + b"\r\n" for name, value in fields.items()]
    if file_name is not None:
        parts.insert(0, head.format("file", f'; filename="{file_name}"').encode() + content + b"\r\n")
    return b"".join(parts) + b"--x7Zz--\r\n"


class ServerProcess:
    """`mt serve` on a free port; as a context manager, it is stopped at the end.

    Args:
        program: Python code that runs in its place.
    """

    def __init__(self, *arguments: str | Path, cwd: Path, program: str = "") -> None:
        words = arguments if program else ("serve", "--port", "0", *arguments)
        self.command = Command(*words, cwd=cwd, program=program, **os.environ)
        self.url = self._address()

    def _address(self) -> str:
        while self.command.process.exitcode is None:
            if match := re.search(r"http://[^/\s]+(?=[/\s])", self.command.printed()):
                return match[0]
            time.sleep(0.02)
        raise AssertionError(f"it did not start:\n{self.command.printed()}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def address(self) -> tuple[str, int]:
        where = urlparse(self.url)
        return where.hostname or "", where.port or 0

    def connection(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection(*self.address, timeout=30)

    def metrics(self) -> str:
        with urllib.request.urlopen(self.url + "/metrics", timeout=30) as answer:
            return answer.read().decode()

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Send a signal, wait for the end and return the exit code."""
        self.command.signal(number)
        return self.command.wait(60).code

    def ask(
        self, path: str, body: Any = None, kind: str = "application/json", timeout: float = 60, **headers: str
    ) -> tuple[int, Any]:
        """Send a body (an object as JSON, bytes as they are; None is a GET); return status and JSON of the response."""
        data = None if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, {"Content-Type": kind, **headers})
        try:
            with urllib.request.urlopen(request, timeout=timeout) as response:
                return response.status, json.loads(response.read())
        except urllib.error.HTTPError as error:
            return error.code, json.loads(error.read())
