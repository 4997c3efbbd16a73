"""Work is shared between processes, and what comes of it is in order."""

import multiprocessing
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from mt.errors import MachineError
from mt.system.workers import in_order
from workers_helpers import square, squares


@pytest.mark.parametrize("workers", [1, 2])
def test_results_are_in_order_and_jobs_are_made_when_they_are_needed(workers: int) -> None:
    made = 0

    def jobs() -> Iterator[int]:
        nonlocal made
        for number in range(40):
            made += 1
            yield number

    for done, (number, result) in enumerate(in_order(square, jobs(), workers)):
        assert (number, result) == (done, done * done)
        assert made - done <= 2 * workers + 1
    assert done == 39


def test_a_script_needs_no_guard(tmp_path: Path) -> None:
    """The workers do not run the user's script, which starts them, again."""
    script = tmp_path / "script.py"
    script.write_text("from mt.system.workers import in_order\nprint([r for _, r in in_order(abs, [-1, 2, -3], 2)])\n")
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, check=True)
    assert done.stdout == "[1, 2, 3]\n"
    done = subprocess.run([sys.executable, "-m", "script"], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout == "[1, 2, 3]\n"


def test_a_killed_process_is_explained() -> None:
    with pytest.raises(MachineError, match="was killed"):
        list(in_order(square, iter([1, -1, 2]), 2))


def test_a_process_that_may_not_have_children_works_alone() -> None:
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.apply(squares, ([1, 2, 3],)) == [1, 4, 9]
