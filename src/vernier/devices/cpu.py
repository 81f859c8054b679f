"""The CPU: the embedded default."""

import platform
from pathlib import Path
from typing import Any

import torch


class Cpu:
    name = "cpu"

    @classmethod
    def available(cls) -> bool:
        return True

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


def cpu_name() -> str:
    """The processor's name as it gives it itself."""
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
