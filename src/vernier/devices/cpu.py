"""The CPU: the embedded default."""

import ctypes
import platform
from contextlib import AbstractContextManager, nullcontext
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

    def refuse(self, precision: str, mode: str, *, allow_slow: bool) -> str:
        if mode != "eager":
            return f"mode {mode} is not offered on cpu: use --mode eager."
        if precision == "tf32":
            return "precision tf32 exists on CUDA devices only: use --precision fp32."
        hardware = _INSTRUCTIONS.get(precision)
        if hardware and not allow_slow and not hardware & instruction_sets():
            return (
                f"precision {precision} has no hardware on this CPU (none of {', '.join(sorted(hardware))}) and would be many "
                "times slower than fp32: use --precision fp32, or --allow-slow to insist."
            )
        return ""

    def autocast(self, precision: str) -> AbstractContextManager[Any]:
        if precision == "fp32":
            return nullcontext()
        return torch.autocast("cpu", dtype={"bf16": torch.bfloat16, "fp16": torch.float16}[precision])

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


_INSTRUCTIONS = {
    "bf16": frozenset({"avx512_bf16", "amx_bf16", "bf16"}),
    "fp16": frozenset({"avx512_fp16", "amx_fp16", "fphp"}),
}


def instruction_sets() -> frozenset[str]:
    """What the processor says it has, where it says so."""
    info = Path("/proc/cpuinfo")
    if not info.exists():
        return frozenset()
    lines = [line for line in info.read_text().splitlines() if line.startswith(("flags", "Features"))]
    return frozenset(lines[0].partition(":")[2].split()) if lines else frozenset()


def cpu_name() -> str:
    """The processor's name as it gives it itself."""
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
