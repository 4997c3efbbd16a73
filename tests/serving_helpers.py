"""A real server process, and how to talk to it."""

import json
import os
import re
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

SERVE = ("-m", "mt", "serve", "--port", "0")


class ServerProcess:
    """`mt serve` on a free port; as a context, it is stopped at the end.

    Attributes:
        url: its address, without a slash at the end.
    """

    def __init__(self, *arguments: str | Path, cwd: Path, program: Sequence[str] = SERVE) -> None:
        words = [sys.executable, *program, *map(str, arguments)]
        self.process = subprocess.Popen(words, cwd=cwd, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
        self.log: list[str] = []
        self.url = self._address()

    def _address(self) -> str:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.log.append(line)
            if found := re.search(r"http://[^/]*", line):
                os.set_blocking(self.process.stderr.fileno(), False)
                return found[0]
        raise AssertionError("it did not start:\n" + "".join(self.log))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Asks it to stop and waits until it has."""
        self.process.send_signal(number)
        code = self.process.wait(60)
        assert self.process.stderr is not None
        self.process.stderr.close()
        return code

    def ask(
        self, path: str, body: Any = None, kind: str = "application/json", timeout: float = 60, **headers: str
    ) -> tuple[int, Any]:
        """Sends a body (an object as JSON, bytes as they are; None is a GET); the status and the answer's JSON."""
        data = None if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, {"Content-Type": kind, **headers})
        try:
            with urllib.request.urlopen(request, timeout=timeout) as answer:
                return answer.status, json.loads(answer.read())
        except urllib.error.HTTPError as error:
            return error.code, json.loads(error.read())
