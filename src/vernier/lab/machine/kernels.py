"""Loads that need no data and no recipe: a matrix product and a copy, in a given precision on a given device.

`vernier study run` compares devices by them. Their results are read, so that no compiler may leave the work out.
"""

from collections.abc import Callable

import torch

DTYPES = {"fp32": torch.float32, "tf32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


class _KernelLoad:
    """What `lab.bench` expects of a load, for one device, one item per step and no phases."""

    devices = 1
    images = 1

    def split(self, steps: int) -> dict[str, list[float]]:
        return {}


class MatrixLoad(_KernelLoad):
    """One step is one product of two square matrices."""

    def __init__(
        self, device: torch.device, synchronize: Callable[[], None], *, size: int = 1024, precision: str = "fp32"
    ) -> None:
        # Random, not zeros: power and so the clock of a device depend on how many bits change.
        random = torch.Generator().manual_seed(0)
        self._a, self._b = (torch.rand(size, size, generator=random).to(device, DTYPES[precision]) for _ in range(2))
        self._out = torch.empty_like(self._a)
        self._synchronize, self.size = synchronize, size

    @property
    def flops(self) -> int:
        """Operations per step: two for every multiply-accumulate."""
        return 2 * self.size**3

    def step(self) -> float:
        torch.matmul(self._a, self._b, out=self._out)
        self._synchronize()
        return 0.0

    def checksum(self) -> float:
        """The sum of the product: reading it makes the work necessary."""
        return float(self._out.float().sum())


class CopyLoad(_KernelLoad):
    """One step is a copy of so many megabytes within the device's memory."""

    def __init__(self, device: torch.device, synchronize: Callable[[], None], *, megabytes: int = 256) -> None:
        # Far larger than the caches of a core, so that memory is what is measured.
        self._from = torch.arange(megabytes * 2**20 // 4, dtype=torch.float32, device=device)
        self._to = torch.empty_like(self._from)
        self._synchronize = synchronize

    def step(self) -> float:
        self._to.copy_(self._from)
        self._synchronize()
        return 0.0
