"""Work is shared between processes, and what comes of it is in order."""

from collections.abc import Iterator

import pytest

from mt.errors import MachineError
from mt.system.workers import in_order
from workers_helpers import square


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


def test_a_killed_process_is_explained() -> None:
    with pytest.raises(MachineError, match="was killed"):
        list(in_order(square, iter([1, -1, 2]), 2))
