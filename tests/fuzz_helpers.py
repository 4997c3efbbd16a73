"""A server that forks for each command, and reports its time and memory.

The server process imports what the commands need once. This file is that server when it is run: it reads one JSON
object a line (arguments, folder) and answers with another.
"""

import json
import os
import random
import resource
import subprocess
import sys
import tempfile
import types
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self


@dataclass(frozen=True)
class Outcome:
    """The end of a command.

    Attributes:
        code: its exit code; negative is the signal that killed it.
        seconds: CPU time.
        megabytes: peak memory, including the server's imports.
    """

    code: int
    stdout: str
    stderr: str
    seconds: float
    megabytes: float


class Server:
    """Client of the server process.

    Args:
        modules: modules to import beforehand.
        seconds: CPU time after which a command is killed.
    """

    def __init__(self, modules: Sequence[str], seconds: int = 20) -> None:
        words = [sys.executable, __file__, str(seconds), *modules]
        self._process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.worst = {"seconds": 0.0, "megabytes": 0.0}
        self.commands = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()

    def run(self, *arguments: str, cwd: Path) -> Outcome:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"arguments": arguments, "cwd": str(cwd)}) + "\n")
        self._process.stdin.flush()
        outcome = Outcome(**json.loads(self._process.stdout.readline()))
        self.commands += 1
        for name in self.worst:
            self.worst[name] = max(self.worst[name], getattr(outcome, name))
        return outcome


def some_bytes(rng: random.Random, size: int) -> bytes:
    return bytes(rng.randrange(256) for _ in range(size))


def damaged(rng: random.Random, content: bytes) -> bytes:
    """Return content with one random damage."""
    at = rng.randrange(len(content) + 1)
    before, after = content[:at], content[at:]
    damages = (
        lambda: before,
        lambda: before + some_bytes(rng, rng.randint(1, 40)) + after,
        lambda: before + after[rng.randint(1, 40) :],
        lambda: before + bytes([rng.randrange(256)]) + after[1:],
        lambda: after + before,
        lambda: content + some_bytes(rng, rng.randint(1, 200)),
    )
    return rng.choice(damages)()


def _serve(seconds: int, modules: Sequence[str]) -> None:
    # Nothing must be trained if a configuration is valid after all.
    stub: Any = types.ModuleType("mt.pipeline.run")
    stub.run = lambda *_: "valid"
    sys.modules["mt.pipeline.run"] = stub
    for name in modules:
        __import__(name)
    for line in sys.stdin:
        request = json.loads(line)
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            child = os.fork()
            if child == 0:
                _command(request["arguments"], request["cwd"], out.fileno(), err.fileno(), seconds)
            _, status, used = os.wait4(child, 0)
            texts = []
            for file in (out, err):
                file.seek(0)
                texts.append(file.read().decode())
        code, cpu = os.waitstatus_to_exitcode(status), used.ru_utime + used.ru_stime
        print(json.dumps(Outcome(code, *texts, cpu, used.ru_maxrss / 1024).__dict__), flush=True)


def _command(arguments: list[str], cwd: str, out: int, err: int, seconds: int) -> None:
    code = 70
    try:
        os.chdir(cwd)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(out, 1)
        os.dup2(err, 2)
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        sys.argv = ["mt", *arguments]
        from mt.cli import main

        main()
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    _serve(int(sys.argv[1]), sys.argv[2:])
