"""Runs many commands, each in a process of its own that is cheap to start, and says what each cost.

A server process imports what the commands need once and forks for every command. This file is that server when it is
run: it reads one JSON object a line (arguments, folder) and answers with another.
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
    """How a command ended.

    Attributes:
        code: its exit code; negative is the signal that killed it.
        seconds: CPU time it used.
        megabytes: the most memory it held, what the server had imported included.
    """

    code: int
    stdout: str
    stderr: str
    seconds: float
    megabytes: float


class Server:
    """Forks for commands.

    Args:
        modules: what to import beforehand.
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
    """Content with something wrong somewhere."""
    place = rng.randrange(len(content) + 1)
    kind = rng.randrange(6)
    if kind == 0:
        return content[:place]
    if kind == 1:
        return content[:place] + some_bytes(rng, rng.randint(1, 40)) + content[place:]
    if kind == 2:
        return content[:place] + content[place + rng.randint(1, 40) :]
    if kind == 3:
        return content[:place] + bytes([rng.randrange(256)]) + content[place + 1 :]
    if kind == 4:
        return content[place:] + content[:place]
    return content + some_bytes(rng, rng.randint(1, 200))


def _serve(seconds: int, modules: Sequence[str]) -> None:
    # Where a configuration is valid after all, nothing must be trained.
    stub: Any = types.ModuleType("mt.pipeline.run")
    stub.run = lambda *_: "valid"
    sys.modules["mt.pipeline.run"] = stub
    for name in modules:
        __import__(name)
    for line in sys.stdin:
        asked = json.loads(line)
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            child = os.fork()
            if child == 0:
                _command(asked["arguments"], asked["cwd"], out.fileno(), err.fileno(), seconds)
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
