"""The CPU, the device of the default recipe."""

import ctypes
import functools
import os
import platform
import resource
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from vernier.records.environment import DeviceInfo
from vernier.references import use

from .base import YES, Answer, Device, Memory

if TYPE_CHECKING:
    import torch


class Cpu(Device):
    name = "cpu"
    backend = "gloo"
    shared = True
    fused_optimizer = True
    folds_batch_norm = True

    @classmethod
    def available(cls) -> bool:
        return True

    def torch_device(self, local_rank: int) -> "torch.device":
        import torch

        return torch.device("cpu")

    def identity(self) -> list[DeviceInfo]:
        return [DeviceInfo(index=0, name=cpu_name(), uuid=_machine_id())]

    def answer(self, precision: str, mode: str) -> Answer:
        if precision == "tf32":
            return Answer("refused", "precision tf32 exists on CUDA devices only", use("machine.precision", "fp32"))
        if mode == "compile" and compiler() is None:
            return Answer(
                "refused",
                "mode compile needs a C++ compiler and none (g++, clang++, c++) is on the PATH",
                use("machine.mode", "eager"),
            )
        hardware = _INSTRUCTIONS.get(precision)
        if hardware and not hardware & instruction_sets():
            missing = ", ".join(sorted(hardware))
            why = (
                f"precision {precision} has no hardware on this CPU (none of {missing}) and would be many times slower "
                "than fp32"
            )
            return Answer("slow", why, use("machine.precision", "fp32"))
        if hardware and {"amx_tile", f"amx_{precision}"} <= instruction_sets() and not _amx_works():
            why = (
                f"precision {precision} would use AMX instructions, which this machine lists but which end the program"
            )
            without_amx = "set ONEDNN_MAX_CPU_ISA=AVX512_CORE_FP16 to do without AMX"
            return Answer("refused", why, f"{use('machine.precision', 'fp32')}, or {without_amx}")
        return YES

    def prepare(self, precision: str = "fp32", *, deterministic: bool = False, local_rank: int = 0) -> None:
        super().prepare(precision, deterministic=deterministic)
        if self.allocator == "huge":
            os.environ["THP_MEM_ALLOC_ENABLE"] = "1"  # PyTorch reads it at its first large allocation
        if self.allocator != "system":
            _keep_freed_memory()

    def memory(self) -> Memory | None:
        """Memory of the whole process: a CPU has no allocator to ask. The peak is the kernel's and cannot be reset."""
        # macOS counts bytes, Linux kilobytes.
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
        statm = Path("/proc/self/statm")
        # The second field: resident pages.
        now = int(statm.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") if statm.exists() else peak
        return Memory(allocated_bytes=now, peak_bytes=max(peak, now))

    def return_freed_memory(self) -> None:
        _set_malloc_options(mmap_threshold=_LARGE_BLOCK_BYTES, trim_threshold=_LARGE_BLOCK_BYTES)


_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # of glibc's malloc.h
_LARGE_BLOCK_BYTES = 2**20


def _keep_freed_memory() -> None:
    """Ask glibc to reuse large freed blocks instead of returning them to the kernel after every step.

    Every training step allocates and frees the same activations; without this each of them is mapped, zeroed and
    faulted in again (about 9,000 page faults per step for the fashion-mnist recipe).
    """
    # No activation is as large as 1 GiB; 2^31 - 1 is the largest number that mallopt takes.
    _set_malloc_options(mmap_threshold=1 << 30, trim_threshold=(1 << 31) - 1)


def _set_malloc_options(*, mmap_threshold: int, trim_threshold: int) -> None:
    """glibc maps larger blocks one by one, and returns more free memory than this at the end of its heap."""
    libc = ctypes.CDLL(None)
    if hasattr(libc, "mallopt"):
        libc.mallopt(_M_MMAP_THRESHOLD, mmap_threshold)
        libc.mallopt(_M_TRIM_THRESHOLD, trim_threshold)


# One of them is enough. The last ones are the names on Arm.
_INSTRUCTIONS = {
    "bf16": frozenset({"avx512_bf16", "amx_bf16", "bf16"}),
    "fp16": frozenset({"avx512_fp16", "amx_fp16", "fphp"}),
}


def instruction_sets() -> frozenset[str]:
    """The instruction sets of the processor, as far as /proc/cpuinfo lists them."""
    return frozenset(_cpuinfo("flags", "Features").split())


def _cpuinfo(*names: str) -> str:
    """The first entry of /proc/cpuinfo with one of these names; empty where there is none."""
    path = Path("/proc/cpuinfo")
    lines = path.read_text().splitlines() if path.exists() else []
    return next((line.partition(":")[2].strip() for line in lines if line.startswith(names)), "")


@functools.cache
def _amx_works() -> bool:
    """Whether a bf16 matrix product survives: some virtual machines list AMX and kill what uses it."""
    # -P: a torch.py in the working directory must not be imported instead.
    product = "import torch; a = torch.ones(256, 256, dtype=torch.bfloat16); torch.nn.functional.linear(a, a)"
    return subprocess.run([sys.executable, "-P", "-c", product], capture_output=True, check=False).returncode == 0


def compiler() -> str | None:
    """The C++ compiler that torch.compile would call."""
    # As PyTorch chooses it.
    names = [os.environ["CXX"]] if os.environ.get("CXX") else ["g++", "clang++", "c++"]
    return next((path for name in names if (path := shutil.which(name))), None)


def cpu_name() -> str:
    """The processor's own name."""
    return _cpuinfo("model name") or _apple_cpu_name() or platform.processor() or platform.machine()


def _apple_cpu_name() -> str:
    """Such as "Apple M2 Pro"; Python's own answer on macOS is just "arm"."""
    if sys.platform != "darwin":
        return ""
    command = ["sysctl", "-n", "machdep.cpu.brand_string"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=10).stdout.strip()
    except (OSError, subprocess.TimeoutExpired):
        return ""


def _machine_id() -> str | None:
    """An id of this machine: processors have no serial number that may be read."""
    for path in (Path("/sys/class/dmi/id/product_uuid"), Path("/etc/machine-id")):
        try:
            if text := path.read_text().strip():
                return text
        except OSError:
            continue
    return None
