"""The cost of steps, the cores of each, and the time until several at once are done."""

import os
from collections.abc import Mapping
from dataclasses import dataclass

from mt.extras.pipelines.plan import Plan
from mt.system.cpus import usable_cores


@dataclass(frozen=True)
class StepCost:
    """The estimated cost of a step: seconds, and bytes on the disk; None: unknown."""

    seconds: float | None = None
    disk: int | None = None


def cores_per_step(jobs: int) -> int:
    """Return the cores that each of so many steps has if they run at once; OMP_NUM_THREADS limits those of all."""
    threads = os.environ.get("OMP_NUM_THREADS", "")
    cores = int(threads) if threads.isdecimal() and int(threads) else usable_cores()
    return max(1, cores // jobs)


def makespan(plan: Plan, costs: Mapping[str, StepCost], jobs: int) -> float:
    """Return the seconds until the last of these steps has ended if `jobs` run at once."""
    free, ends = [0.0] * jobs, dict[str, float]()
    for name in filter(costs.__contains__, plan.steps):
        start = max(min(free), *(ends.get(other, 0.0) for other in plan.steps[name].needs), 0.0)
        ends[name] = start + (costs[name].seconds or 0.0)
        free[free.index(min(free))] = ends[name]
    return max(ends.values(), default=0.0)
