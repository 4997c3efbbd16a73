"""Runs the real command line in real processes.

Starting Python and importing torch takes seconds. Here one server process has done that and forks for every command, so
that tests can afford many; what runs in the fork is `mt.cli.main` with its own arguments, folder and standard streams.
"""

import errno
import functools
import multiprocessing
import os
import signal
import sys
import tempfile
from dataclasses import dataclass
from multiprocessing import forkserver
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import SimpleNamespace

FAILPOINT = "TEST_FAILPOINT"
_ADDRESS = "TEST_SERVER_ADDRESS"

_SERVER = multiprocessing.get_context("forkserver")
_SERVER.set_forkserver_preload(["preloaded"])


def share_server() -> None:
    """Start the server for the processes of pytest-xdist, which this one starts afterwards."""
    if not hasattr(forkserver._forkserver, "_forkserver_authkey"):  # Python 3.14 has keys, which others do not know
        _start_server()
        os.environ[_ADDRESS] = forkserver._forkserver._forkserver_address


def _start_server() -> None:
    """Start the server, unless it runs, so that it finds `preloaded`; otherwise it would silently import nothing."""
    server, address = forkserver._forkserver, os.environ.get(_ADDRESS)
    if address and server._forkserver_address is None:
        server._forkserver_address, server.ensure_running = address, lambda: None
        # The server ends with the process that started it, not with this one.
        server._forkserver_alive_fd = os.open(os.devnull, os.O_RDONLY)
    if address:
        return
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).parent), *([before] if before else [])])
    forkserver.ensure_running()
    del os.environ["PYTHONPATH"]
    os.environ |= {"PYTHONPATH": before} if before else {}


@dataclass(frozen=True)
class Done:
    """How a command ended."""

    code: int
    stdout: str
    stderr: str


class Command:
    """A running `mt` command.

    Args:
        program: Python code that runs in its place.
    """

    def __init__(
        self, *arguments: str | Path, cwd: Path, stdin: bytes = b"", program: str = "", **environment: str
    ) -> None:
        self._files = [tempfile.TemporaryFile() for _ in range(3)]  # noqa: SIM115 (closed in wait)
        self._files[0].write(stdin)
        self._files[0].seek(0)
        names = [f"/proc/{os.getpid()}/fd/{file.fileno()}" for file in self._files]
        words = ["mt", *map(str, arguments)]
        _start_server()
        self.process: BaseProcess = _SERVER.Process(target=_main, args=(words, str(cwd), names, environment, program))
        self.process.start()

    def signal(self, number: signal.Signals) -> None:
        assert self.process.pid is not None
        os.kill(self.process.pid, number)

    def printed(self) -> str:
        """Return what it has written to stderr so far."""
        self._files[2].seek(0)
        return self._files[2].read().decode()

    def wait(self, timeout: float = 600) -> Done:
        self.process.join(timeout)
        if self.process.exitcode is None:
            self.process.kill()
            raise TimeoutError("the command did not end")
        texts = []
        for file in self._files[1:]:
            file.seek(0)
            texts.append(file.read().decode())
            file.close()
        return Done(self.process.exitcode, *texts)


def mt(*arguments: str | Path, cwd: Path, stdin: bytes = b"", code: int | None = 0, **environment: str) -> Done:
    """Runs a command to its end and checks its exit code (None: any)."""
    done = Command(*arguments, cwd=cwd, stdin=stdin, **environment).wait()
    assert code is None or done.code == code, f"exit {done.code}\n{done.stdout}\n{done.stderr}"
    return done


def _set_failpoint(point: str) -> None:
    """Arms `atomic.failpoint`.

    Args:
        point: `count:FILE` writes down each place that is passed; `NUMBER:KIND` lets the one of that number, from 0,
            fail with an errno's name or, with SIGKILL, be the last thing the process does.
    """
    from mt.storage import atomic

    first, _, second = point.partition(":")
    passed = 0

    def count(action: str, path: Path) -> None:
        with Path(second).open("a") as file:
            file.write(f"{action} {path}\n")

    def fail(action: str, path: Path) -> None:
        nonlocal passed
        passed += 1
        if passed == int(first) + 1:
            if second == "SIGKILL":
                os.kill(os.getpid(), signal.SIGKILL)
            number = getattr(errno, second)
            raise OSError(number, os.strerror(number), str(path))

    atomic.failpoint = count if first == "count" else fail


def _fork_workers() -> None:
    """Let the command's own worker processes come from the server, too, instead of new interpreters."""
    from mt.system import workers

    forkserver._forkserver.ensure_running = lambda: None  # it has just forked this process
    workers.multiprocessing = SimpleNamespace(get_context=lambda method: _SERVER)
    workers.start_worker = functools.partial(_start_worker, str(Path.cwd()), dict(os.environ))


def _start_worker(cwd: str, environment: dict[str, str]) -> None:
    from mt.system.workers import start_worker

    os.chdir(cwd)
    os.environ.update(environment)
    start_worker()


def _main(words: list[str], cwd: str, streams: list[str], environment: dict[str, str], program: str) -> None:
    os.chdir(cwd)
    os.environ.update(environment)
    for number, (name, flags) in enumerate(zip(streams, (os.O_RDONLY, os.O_WRONLY, os.O_WRONLY), strict=True)):
        os.dup2(os.open(name, flags), number)
    sys.stdin = os.fdopen(0, closefd=False)
    os.fsync = lambda descriptor: None  # waits for the disk, for a power cut that no test has
    tempfile.tempdir = None  # TMPDIR may be another one than the server's
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.argv = words
    from mt.cli import main

    _fork_workers()
    if {"init", "--dry-run", "pipeline.yaml"} & set(words):
        from mt.extras.planning import probe

        probe.probe.__defaults__ = (None, 0.5)  # seconds of timed steps, 8 for users
    if point := os.environ.pop(FAILPOINT, ""):
        _set_failpoint(point)

    try:
        exec(program, {"__name__": "__main__"}) if program else main()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
