"""How many processor cores there are to work with."""

import os


def usable_cores() -> int:
    """Those that this process may use, where the system tells; all of them elsewhere."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
