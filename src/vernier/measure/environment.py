"""Collects the environment of a run: host, processor, devices, versions, variables, commit."""

import importlib.metadata
import os
import platform
import sys
from collections.abc import Sequence

import psutil

from vernier.addresses import redact_addresses
from vernier.records.environment import CpuInfo, DeviceInfo, Environment, SensorSetup
from vernier.records.events import ProcessInfo
from vernier.version import describe_version, source_commit

PACKAGES = ("torch", "numpy", "pillow", "simplejpeg", "safetensors", "rich", "psutil")
EVALUATORS = ("hotcoco", "faster-coco-eval", "pycocotools")
"""Of detectors: the first that is installed computes their metrics."""
THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "OMP_WAIT_POLICY",
    "GOMP_SPINCOUNT",
    "MKL_NUM_THREADS",
    "GOMP_CPU_AFFINITY",
    "KMP_AFFINITY",
)
VARIABLES = (*THREAD_VARIABLES, "LD_PRELOAD", "THP_MEM_ALLOC_ENABLE", "CUBLAS_WORKSPACE_CONFIG", "VERNIER_HOME")
"""Environment variables that change speed or results; so do all whose names begin as in `_FAMILIES`."""
_FAMILIES = (
    *("PYTORCH_", "TORCH_", "TORCHINDUCTOR_", "ONEDNN_", "UCX_"),
    *("CUDA_", "NVIDIA_TF32_OVERRIDE", "NCCL_"),
    *("HIP_", "ROCR_", "HSA_", "MIOPEN_", "RCCL_"),
    *("PT_HPU_", "HABANA_", "HLS_", "HCCL_", "HCL_"),
    *("ZE_", "CCL_", "PJRT_", "XLA_", "TPU_", "LIBTPU_"),
)


def read_versions() -> dict[str, str | None]:
    """Versions of Vernier, Python and the packages it uses; None where a package is not installed."""
    own: dict[str, str | None] = {"vernier": describe_version(), "python": platform.python_version()}
    return own | {name: installed_version(name) for name in (*PACKAGES, *EVALUATORS)}


def installed_version(package: str) -> str | None:
    """The version of a package; None where it is not installed."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def collect_environment(
    devices: Sequence[DeviceInfo],
    device_kind: str,
    threads: int,
    sensors: SensorSetup | None = None,
    processes: Sequence[ProcessInfo] | None = None,
) -> Environment:
    """The environment of this process, with the devices it uses, the sensors it reads and the processes of its run."""
    return Environment(
        host=platform.node(),
        system=platform.platform(),
        cpu=CpuInfo(
            cores_logical=psutil.cpu_count(logical=True),
            cores_physical=psutil.cpu_count(logical=False),
            memory_bytes=psutil.virtual_memory().total,
            load_average=os.getloadavg(),
        ),
        device_kind=device_kind,
        devices=tuple(devices),
        compute_threads=threads,
        sensors=sensors,
        versions=read_versions(),
        variables=_read_variables(),
        # An address on the command line may have a password.
        command=tuple(map(redact_addresses, sys.argv)),
        git_commit=source_commit(),
        processes=None if processes is None else tuple(processes),
    )


def _read_variables() -> dict[str, str]:
    """Environment variables that change speed or results, those that are set."""
    return {k: redact_addresses(v) for k, v in os.environ.items() if k in VARIABLES or k.startswith(_FAMILIES)}
