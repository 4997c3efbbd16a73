"""Execution of a plan: each step is a process, and independent steps run side by side."""

import contextlib
import glob
import os
import shutil
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

from mt.config import dump_config
from mt.console import duration, harmless, log, quoted
from mt.errors import MtError, StoppedError
from mt.extras.pipelines.plan import Plan, Step
from mt.extras.pipelines.records import (
    earlier_scorers,
    note_attempt,
    output_digest,
    read_record,
    remove_altered,
    step_key,
    text_key,
    write_record,
)
from mt.extras.pipelines.schema import COMMANDS, PROGRAM
from mt.storage import atomic
from mt.storage.lock import wait_for_lock
from mt.training.signals import StopRequest

ENDS_WITH_PARENT = "MT_ENDS_WITH_PARENT"  # tells a command to end when its standard input does
_LAST_LINES = 3  # of a failed step's output


class StepError(MtError):
    """A step's command failed, with its exit code."""

    def __init__(self, code: int, message: str, hint: str) -> None:
        super().__init__(message, hint)
        self.exit_code = code


def execute(plan: Plan, jobs: int, only: str | None = None) -> None:
    """Run the steps that are not done, at most `jobs` at once; with `only` that step alone, whose inputs must exist.

    Each process gets a share of the cores by OMP_NUM_THREADS, or all cores if no other step could run beside it. If
    `jobs` is more than 1 and there are several GPUs, it gets one of these.

    Raises:
        StepError: a step failed; those that were running have ended.
        StoppedError: Ctrl-C or SIGTERM; all processes have saved their work and ended.
    """
    with atomic.explained(plan.records):
        plan.records.mkdir(parents=True, exist_ok=True)
    names = list(plan.steps) if only is None else [only]
    with StopRequest() as stop, ThreadPoolExecutor(jobs) as pool:
        runner = _Runner(plan, jobs, stop)
        waiting, running = dict.fromkeys(names), dict[Future[None], str]()
        done, failures = set(plan.steps) - set(names), list[BaseException]()
        while running or waiting:
            if failures or stop.signal is not None:
                waiting.clear()
            for name in [name for name in waiting if done.issuperset(plan.steps[name].needs)]:
                if len(running) < jobs:
                    del waiting[name]
                    running[pool.submit(runner.run, plan.steps[name])] = name
            for future in wait(running, timeout=0.1, return_when=FIRST_COMPLETED).done:
                done.add(running.pop(future))
                failures += [error] if (error := future.exception()) else []
            runner.forward_signal()
    if stop.signal is not None:
        failed = [f.message for f in failures if isinstance(f, MtError) and not isinstance(f, StoppedError)]
        message = "\n".join([f"pipeline {plan.pipeline.file.name} was stopped", *failed])
        raise StoppedError(stop.signal, message, "run the same command to resume")
    if failures:
        raise _combined(failures)


def _combined(failures: list[BaseException]) -> BaseException:
    """Return one error with all messages and the first exit code, or the first failure that is a bug."""
    known = [failure for failure in failures if isinstance(failure, MtError)]
    if len(known) < len(failures) or len(failures) == 1:
        return next((failure for failure in failures if not isinstance(failure, MtError)), failures[0])
    return StepError(known[0].exit_code, "\n".join(failure.message for failure in known), known[0].hint)


class _Runner:
    """Runs single steps in threads of their own."""

    def __init__(self, plan: Plan, jobs: int, stop: StopRequest) -> None:
        self._plan, self._jobs, self._stop = plan, jobs, stop
        self._gpus = _gpus() if jobs > 1 else []
        self._busy, self._busy_lock = Counter[str](), threading.Lock()  # running steps of each GPU
        self._processes, self._signalled = set[subprocess.Popen[bytes]](), set[subprocess.Popen[bytes]]()

    def forward_signal(self) -> None:
        """Pass a signal that was received on to the running commands, to each once."""
        if self._stop.signal is not None:
            for process in self._processes - self._signalled:
                self._signalled.add(process)
                _send_signal(process, self._stop.signal)

    def run(self, step: Step) -> None:
        """Run a step unless it is done."""
        lock_path, notice = self._plan.records / f"{step.name}.lock", f"{step.name}: another process works on this step"
        # That may be a command of a pipeline that was killed.
        with wait_for_lock(lock_path, notice, lambda: self._stop.signal is not None) as lock:
            if self._stop.signal is not None:
                return
            key, record = step_key(step), read_record(self._plan, step)
            if record is not None and record.key == key and record.digest == output_digest(self._plan, step):
                log.info("%s: done before", step.name)
                return
            if record is not None:
                log.info("%s: runs again, since its command, its input or its output has changed", step.name)
            if step.kind == "eval":  # the scores of an earlier text would stay beside those of this one
                for path in list(step.output.glob("*.json")):
                    for file in filter(Path.is_file, step.output.glob(f"{glob.escape(path.stem)}.*")):
                        file.unlink()
            if step.kind == "clean" and record is not None:
                remove_altered(step.output)
            for run in earlier_scorers(self._plan, step):  # they would refuse to resume with this text
                shutil.rmtree(run)
            with self._own_gpu() as variables:
                self._run_command(step, key, variables, lock)
            record = write_record(self._plan, step, key)
            log.info("%s: done in %s", step.name, duration(record.seconds))

    @contextlib.contextmanager
    def _own_gpu(self) -> Iterator[dict[str, str]]:
        """Take the GPU with the fewest running steps; yield the environment variables that give it to a command."""
        with self._busy_lock:
            gpu = min(self._gpus, key=self._busy.__getitem__, default="")
            self._busy[gpu] += 1
        try:
            yield {"CUDA_VISIBLE_DEVICES": gpu} if gpu else {}
        finally:
            with self._busy_lock:
                self._busy[gpu] -= 1

    def _run_command(self, step: Step, key: str, variables: dict[str, str], lock: int) -> None:
        log.info("%s: mt %s", step.name, quoted(*step.words))
        cores = self._plan.cores(step.name, self._jobs)
        environment = os.environ | variables | {"OMP_NUM_THREADS": str(cores), ENDS_WITH_PARENT: "1"}
        arguments, started, clock = _fixed_arguments(self._plan, step), time.time(), time.monotonic()
        note_attempt(self._plan, step, key, started, cores=cores, text=text_key(step))
        # The command holds the lock as long as it lives; in a group of its own, a terminal's signals do not reach it.
        own_group: dict[str, Any] = {"pass_fds": [lock], "process_group": 0} if atomic.POSIX_FILES else {}
        process = subprocess.Popen(
            [*PROGRAM, *arguments],
            stdin=subprocess.PIPE,  # closed when this process dies, however it does
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=environment,
            **own_group,
        )
        self._processes.add(process)
        try:
            last = _copy_output(process, step.name, self._plan.records / f"{step.name}.log")
            core_seconds = _wait(process)
        finally:
            self._processes.discard(process)
        seconds = round(time.monotonic() - clock, 2)
        note_attempt(self._plan, step, key, started, seconds=seconds, core_seconds=core_seconds)
        if process.returncode and self._stop.signal is None:
            code = process.returncode if process.returncode > 0 else 128 - process.returncode
            shown = "\n  ".join(last) or "it printed nothing"
            place = self._plan.pipeline.origin("steps", step.name)
            hint = "fix that; the same command resumes"
            raise StepError(code, f"{place}: step {step.name} failed: {shown}", hint)
        if process.returncode:
            raise StoppedError(self._stop.signal or 2, f"step {step.name} was stopped")


def _fixed_arguments(plan: Plan, step: Step) -> list[str]:
    """Return the arguments of a step's command, with a copy of its configuration: users may edit the file meanwhile."""
    if step.config is None:
        return list(step.words)
    copy = plan.records / f"{step.name}.yaml"
    atomic.write_text(copy, dump_config(step.config))
    start = len(COMMANDS[step.kind])
    return [*step.words[:start], "--config", str(copy), *step.words[start + len(step.config_words) :]]


def _copy_output(process: subprocess.Popen[bytes], name: str, log_file: Path) -> list[str]:
    """Copy a command's output to a file and to stderr until it ends; return the last lines."""
    assert process.stdout is not None
    last: list[str] = []
    for line in process.stdout:
        # A full disk must not end the command. Opened for each line, the log continues once there is space again.
        with contextlib.suppress(OSError), log_file.open("ab", buffering=0) as file:
            file.write(line)
        last = [*last, harmless(line.decode(errors="replace").rstrip())][-_LAST_LINES:]
        with contextlib.suppress(OSError):
            print(f"{name}| {last[-1]}", file=sys.stderr, flush=True)
    return last


def _send_signal(process: subprocess.Popen[bytes], number: int) -> None:
    """Send a signal; Popen.send_signal could reap the process, and `_wait` then could not read its times."""
    with contextlib.suppress(OSError, ValueError):  # it has ended
        if not hasattr(os, "wait4"):
            process.send_signal(number)
        elif process.returncode is None:
            os.kill(process.pid, number)


def _wait(process: subprocess.Popen[bytes]) -> float:
    """Wait for a process; return the core-seconds of it and its children, 0 where the system does not report them."""
    if not hasattr(os, "wait4"):
        process.wait()
        return 0.0
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    return round(usage.ru_utime + usage.ru_stime, 2)


def _gpus() -> list[str]:
    """Return the GPUs to share among the steps, as CUDA_VISIBLE_DEVICES names them."""
    if given := os.environ.get("CUDA_VISIBLE_DEVICES"):
        return given.split(",")
    import torch

    return [str(n) for n in range(torch.cuda.device_count())]
