"""The CPU: the embedded default."""

import ctypes
import platform
from pathlib import Path
from typing import Any

import torch


class Cpu:
    name = "cpu"

    @classmethod
    def available(cls) -> bool:
        return True

    def prepare(self) -> None:
        keep_freed_memory()

    def torch_device(self, local_rank: int) -> torch.device:
        return torch.device("cpu")

    def identity(self) -> list[dict[str, Any]]:
        return [{"index": 0, "name": cpu_name(), "uuid": None}]

    def refuse(self, precision: str, mode: str) -> str:
        if precision != "fp32":
            return f"precision {precision} is not offered on cpu: use --precision fp32."
        if mode != "eager":
            return f"mode {mode} is not offered on cpu: use --mode eager."
        return ""

    def synchronize(self) -> None:
        """CPU kernels have finished when they return."""


_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3


def keep_freed_memory() -> None:
    """Ask glibc to reuse large freed blocks instead of returning them to the kernel after every step.

    A training step frees and takes the same activations again and again; without this each of them is mapped, zeroed
    and faulted in anew (about 9,000 page faults a step for the fashion-mnist recipe).
    """
    libc = ctypes.CDLL(None)
    if hasattr(libc, "mallopt"):
        libc.mallopt(_M_MMAP_THRESHOLD, 1 << 30)
        libc.mallopt(_M_TRIM_THRESHOLD, (1 << 31) - 1)


def cpu_name() -> str:
    """The processor's name as it gives it itself."""
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
