"""Pytest plugin and probe of `run.py`: records the tests that reach each mutant, and runs a chosen list of tests.

It is copied into `src` of the mutated tree, so that forked and started processes import it as well.
"""

import contextlib
import json
import os
from collections.abc import Iterator
from multiprocessing import forkserver
from pathlib import Path
from typing import Any

import pytest

_WORK = Path(__file__).parents[2]  # WORK/tree/src/mutation_probe.py
_seen: set[int] = set()
_pid = os.getpid()
_fixtures: dict[str, float] = {}
_durations: dict[str, float] = {}
_TICKS = os.sysconf("SC_CLK_TCK")
_failed: set[str] = set()


def hit(mutant: int) -> None:
    """Record, once per test and process, that a mutant's statement is executed."""
    global _pid
    if os.getpid() != _pid:
        _pid = os.getpid()
        _seen.clear()
    if mutant not in _seen:
        _seen.add(mutant)
        with contextlib.suppress(OSError):
            line = json.dumps([mutant, (_WORK / "current").read_text()])
            descriptor = os.open(_WORK / "hits", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            os.write(descriptor, f"{line}\n".encode())
            os.close(descriptor)


def _enter(name: str) -> None:
    _seen.clear()
    (_WORK / "current").write_text(name)


def _seconds() -> float:
    """Return CPU seconds of this process, its children and the fork server's: unlike wall time, independent of load."""
    seconds = sum(os.times()[:4])
    if pid := getattr(forkserver._forkserver, "_forkserver_pid", None):
        with contextlib.suppress(OSError):
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            seconds += sum(map(int, fields[11:15])) / _TICKS
    return seconds


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Attribute hits and seconds to the test; those of its wider fixtures to the fixtures."""
    _enter(item.nodeid)
    start, before = _seconds(), sum(_fixtures.values())
    result = yield
    seconds = _seconds() - start - (sum(_fixtures.values()) - before)
    names = getattr(item, "fixturenames", [])
    fixtures = {name: _fixtures[name] for name in names if name in _fixtures}
    record = {"test": item.nodeid, "seconds": seconds, "clock": _durations.get(item.nodeid, 0.0)}
    record |= {"passed": item.nodeid not in _failed, "fixtures": fixtures}
    with (_WORK / "tests.jsonl").open("a") as file:
        file.write(json.dumps(record) + "\n")
    return result


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef: Any, request: Any) -> Iterator[None]:
    """Attribute hits of fixtures that several tests share to the fixture."""
    if fixturedef.scope == "function":
        return (yield)
    test, start = (_WORK / "current").read_text(), _seconds()
    _enter(f"fixture {fixturedef.argname}")
    try:
        return (yield)
    finally:
        _fixtures[fixturedef.argname] = _seconds() - start
        _enter(test)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    _durations[report.nodeid] = _durations.get(report.nodeid, 0.0) + report.duration
    if report.outcome != "passed":
        _failed.add(report.nodeid)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep the tests named in the file `MUTATION_TESTS`, in its order."""
    if path := os.environ.get("MUTATION_TESTS"):
        order = {name: place for place, name in enumerate(json.loads(Path(path).read_text()))}
        items[:] = sorted((item for item in items if item.nodeid in order), key=lambda item: order[item.nodeid])
