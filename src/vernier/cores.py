"""The CPU cores this process may run on: the one place that asks, for systems that cannot say (macOS) too."""

import os
from collections.abc import Iterable


def allowed_cores() -> list[int]:
    """The numbers of the cores this process may run on; all of the machine where the system has no affinity."""
    return sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else list(range(os.cpu_count() or 1))


def run_on_cores(cores: Iterable[int]) -> None:
    """Bind this process to these cores; nothing happens where the system has no affinity."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, cores)
