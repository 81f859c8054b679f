"""What this machine can do: versions, devices and what they answer, threads, what is missing and the command that gets it."""

import os
import platform
import shutil
from pathlib import Path
from typing import Any

import psutil

from vernier.cores import allowed_cores
from vernier.measure.machine.environment import THREAD_VARIABLES, installed_version, read_versions
from vernier.records.codec import encode

EXTRAS: dict[str, tuple[tuple[str, ...], str]] = {
    "onnx": (("onnx", "onnxscript", "onnxruntime"), "export to ONNX"),
    "tensorboard": (("tensorboard",), "TensorBoard's event files of every run"),
    "dali": (("nvidia-dali-cuda120",), "NVIDIA's loader"),
    "remote": (("fsspec", "aiohttp"), "data from object storage"),
    "tfrecord": (("google-crc32c",), "checksums of TFRecords"),
    "wandb": (("wandb",), "--track wandb"),
    "mlflow": (("mlflow-skinny|mlflow",), "--track mlflow"),
}
"""Optional parts by extra: their packages (a|b: either will do), and what for."""


def extras() -> list[dict[str, Any]]:
    """Every optional part: whether it is here, and the command that gets it."""
    found = [
        {
            "extra": extra,
            "for": purpose,
            "missing": [p for p in packages if not any(installed_version(name) for name in p.split("|"))],
            "install": f"pip install 'vernier[{extra}]'",
        }
        for extra, (packages, purpose) in EXTRAS.items()
    ]
    absent = [] if shutil.which("jpegtran") else ["jpegtran"]
    jpegtran = {"extra": "jpegtran", "for": "restart-indexed shards", "missing": absent}
    return [*found, {**jpegtran, "install": "apt-get install libjpeg-turbo-progs"}]


def examine() -> dict[str, Any]:
    """Everything `vernier doctor` shows without measuring."""
    from vernier.devices import matrix, usable

    cores, load = len(allowed_cores()), os.getloadavg()[0]
    memory, disk = psutil.virtual_memory(), shutil.disk_usage(Path.cwd())
    devices = [{"device": d.name, **encode(one)} for d in usable() for one in d.identity()]
    optional = extras()
    advice = [f"{part['extra']} ({part['for']}): {part['install']}" for part in optional if part["missing"]]
    if all(d["device"] == "cpu" for d in devices):
        advice.append("no accelerator is visible to PyTorch: training runs on the CPU")
    if load > cores / 2:
        advice.append(
            f"other programs are busy (load {load:.1f} on {cores} cores): whatever is measured now is too low"
        )
    if disk.free < 5e9:
        advice.append(
            f"only {disk.free / 1e9:.1f} GB are free here: give --out on another disk, or keep fewer checkpoints"
        )
    return {
        "machine": {
            "host": platform.node(),
            "system": platform.platform(),
            "cores": cores,
            "load": load,
            "memory_bytes": memory.total,
            "memory_available_bytes": memory.available,
            "disk_free_bytes": disk.free,
        },
        "threads": {"compute": cores, **{name: os.environ.get(name) for name in THREAD_VARIABLES}},
        "versions": read_versions(),
        "devices": devices,
        "abilities": encode(matrix(tuple(d.name for d in usable()))),
        "extras": optional,
        "advice": advice,
    }
