"""What this machine can do: versions, devices, what is missing and the command that gets it."""

import importlib.util
import os
import platform
from typing import Any

import psutil

from vernier.measure.environment import versions

EXTRAS = {"plotly": "report", "hotcoco": "detection", "onnx": "onnx"}


def examine() -> dict[str, Any]:
    """Everything `vernier doctor` shows."""
    from vernier.devices import usable

    found = versions()
    devices = [{"device": d.name, **one} for d in usable() for one in d.identity()]
    advice = []
    if found["torch"] is None:
        advice.append("torch is missing: pip install torch==2.13.0")
    missing_nvidia = importlib.util.find_spec("torch") and not any(d["device"] != "cpu" for d in devices)
    if missing_nvidia:
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
