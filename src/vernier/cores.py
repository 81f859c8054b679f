"""The CPU cores this process may run on: the one place that asks, for systems that cannot say (macOS) too."""

import os


def allowed_cores() -> list[int]:
    """The numbers of the cores this process may run on; all of the machine where the system has no affinity."""
    return sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else list(range(os.cpu_count() or 1))
