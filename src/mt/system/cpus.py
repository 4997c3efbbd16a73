"""The CPU cores and the memory that this process may use."""

import os
import sys
from contextlib import suppress
from math import ceil
from pathlib import Path

_CGROUP = Path("/sys/fs/cgroup")  # a container's own


def usable_cores() -> int:
    """Return the number of cores that this process may use, within its affinity and the container's quota."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(cores, _quota() or cores)


def cpu_cores() -> int:
    """Return the number of cores to compute on: `usable_cores`, or fewer if OMP_NUM_THREADS says so."""
    cores = usable_cores()
    limit = os.environ.get("OMP_NUM_THREADS", "")
    return min(cores, int(limit)) if limit.isdecimal() and int(limit) > 0 else cores


def usable_memory() -> int:
    """Return the bytes of this machine's memory, or of the container's (`docker --memory`)."""
    is_known = hasattr(os, "sysconf")  # not on Windows
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") if is_known else sys.maxsize
    for name in ("memory.max", "memory/memory.limit_in_bytes"):  # version 2, version 1
        with suppress(OSError, ValueError):  # "max" without a limit
            total = min(total, int((_CGROUP / name).read_text(encoding="utf-8")))
    return total


def _quota() -> int | None:
    """Return a container's CPU quota (`docker --cpus`) in cores, rounded up; None without one."""
    for files in (("cpu.max",), ("cpu/cpu.cfs_quota_us", "cpu/cpu.cfs_period_us")):  # version 2, version 1
        try:
            time, period = " ".join((_CGROUP / name).read_text(encoding="utf-8") for name in files).split()
            return None if time in ("max", "-1") else max(1, ceil(int(time) / int(period)))
        except (OSError, ValueError, ZeroDivisionError):
            continue
    return None
