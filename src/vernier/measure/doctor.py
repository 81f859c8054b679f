"""What this machine can do: versions, devices, what is missing and the command that gets it."""

import os
import platform
import shutil
from typing import Any

import psutil

from vernier.measure.environment import installed_version, versions

EXTRAS = {"google-crc32c": "tfrecord", "aiohttp": "remote", "nvidia-dali-cuda120": "dali", "tensorboard": "tensorboard"}


def missing_extras() -> list[str]:
    """Optional parts that are not here, each with the command that gets it."""
    absent = [(package, extra) for package, extra in EXTRAS.items() if installed_version(package) is None]
    lines = [f"{package} is missing: pip install 'vernier[{extra}]'" for package, extra in absent]
    if shutil.which("jpegtran") is None:
        lines.append("jpegtran is missing (restart-indexed shards): apt-get install libjpeg-turbo-progs")
    return lines


def examine() -> dict[str, Any]:
    """Everything `vernier doctor` shows."""
    from vernier.devices import usable

    found = versions()
    devices = [{"device": d.name, **one} for d in usable() for one in d.identity()]
    advice = missing_extras()
    if all(d["device"] == "cpu" for d in devices):
        advice.append("no accelerator is visible to PyTorch: training runs on the CPU")
    return {
        "machine": {
            "host": platform.node(),
            "system": platform.platform(),
            "cores": len(os.sched_getaffinity(0)),
            "memory": f"{psutil.virtual_memory().total / 2**30:.1f} GiB",
            "memory available": f"{psutil.virtual_memory().available / 2**30:.1f} GiB",
        },
        "versions": found,
        "devices": devices,
        "advice": advice,
    }
