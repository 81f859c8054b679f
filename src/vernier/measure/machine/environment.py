"""What a run happened on: host, processor, devices, versions, variables, commit. Read once, written to environment.json."""

import importlib.metadata
import os
import platform
import subprocess
import sys
from typing import Any

import psutil

import vernier
from vernier.folders import REPOSITORY

PACKAGES = ("torch", "numpy", "pillow", "simplejpeg", "safetensors", "tyro", "rich", "psutil")
VARIABLES = (
    "OMP_NUM_THREADS", "OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "MKL_NUM_THREADS", "KMP_AFFINITY", "GOMP_CPU_AFFINITY", "LD_PRELOAD",
    "CUDA_VISIBLE_DEVICES", "CUBLAS_WORKSPACE_CONFIG", "PT_HPU_LAZY_MODE", "HCCL_SOCKET_IFNAME",
    "PYTORCH_ENABLE_MPS_FALLBACK", "TORCHINDUCTOR_CACHE_DIR", "VERNIER_HOME",
)  # fmt: skip


def versions() -> dict[str, str | None]:
    """Installed versions; null where a package is absent."""
    found: dict[str, str | None] = {"vernier": vernier.__version__, "python": platform.python_version()}
    return found | {name: installed_version(name) for name in PACKAGES}


def installed_version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def environment(
    devices: list[dict[str, Any]], device_kind: str, threads: int, sensors: dict[str, Any] | None = None
) -> dict[str, Any]:
    """Everything another person needs to judge or repeat a measurement; `sensors`: which are read and which are missing."""
    return {
        "host": platform.node(),
        "system": platform.platform(),
        "cpu": {
            "cores_logical": psutil.cpu_count(logical=True),
            "cores_physical": psutil.cpu_count(logical=False),
            "memory_bytes": psutil.virtual_memory().total,
            "load_average": list(os.getloadavg()),
        },
        "device_kind": device_kind,
        "devices": devices,
        "compute_threads": threads,
        "sensors": sensors,
        "versions": versions(),
        "variables": {k: v for k, v in os.environ.items() if k in VARIABLES or k.startswith("NCCL_")},
        "command": sys.argv,
        "git_commit": source_commit(),
    }


def source_commit() -> str | None:
    """The commit of Vernier's own source when it runs from a clone."""
    if not (REPOSITORY / ".git").exists():
        return None
    try:
        done = subprocess.run(
            ["git", "-C", str(REPOSITORY), "describe", "--always", "--dirty"],
            capture_output=True,
            text=True,
            timeout=10,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() or None
