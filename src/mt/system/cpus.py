"""How many processor cores there are to work with."""

import os
from math import ceil
from pathlib import Path

_CGROUP = Path("/sys/fs/cgroup")  # in a container its own


def usable_cores() -> int:
    """Those that this process may use, where the system tells; all of them elsewhere."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(cores, _quota(_CGROUP) or cores)


def _quota(cgroup: Path) -> int | None:
    """The cores that a container may keep busy (`docker --cpus`), rounded up; None where nothing limits it."""
    for files in (("cpu.max",), ("cpu/cpu.cfs_quota_us", "cpu/cpu.cfs_period_us")):  # version 2, version 1
        try:
            time, period = " ".join((cgroup / name).read_text() for name in files).split()
            return None if time in ("max", "-1") else max(1, ceil(int(time) / int(period)))
        except (OSError, ValueError, ZeroDivisionError):
            continue
    return None
