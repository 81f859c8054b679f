"""Loads that need no data and no recipe: a matrix product and a copy, in the arithmetic and on the device asked for.

They say what a device can do at best, so that a network's rate has something to be compared with. Results are used, so no
compiler may leave the work out.
"""

from collections.abc import Callable
from typing import Any

import torch

from vernier.clock import now_s

DTYPES = {"fp32": torch.float32, "tf32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


class MatrixLoad:
    """One step: `repeats` products of two square matrices. `images` counts products."""

    devices = 1

    def __init__(
        self, place: torch.device, synchronize: Callable[[], None], *, size: int = 1024, repeats: int = 1, precision: str = "fp32"
    ) -> None:  # fmt: skip
        chance = torch.Generator().manual_seed(0)
        self._a, self._b = (torch.rand(size, size, generator=chance).to(place, DTYPES[precision]) for _ in range(2))
        self._out = torch.empty_like(self._a)
        self._synchronize, self.images, self.size = synchronize, repeats, size
        self.checksum = 0.0

    @property
    def flops(self) -> int:
        """Of one step: two for every multiply-accumulate."""
        return 2 * self.size**3 * self.images

    def step(self) -> float:
        for _ in range(self.images):
            torch.matmul(self._a, self._b, out=self._out)
        self._synchronize()
        return 0.0

    def used(self) -> float:
        """The result, so that it was needed."""
        self.checksum += float(self._out.float().sum())
        return self.checksum

    def split(self, steps: int) -> dict[str, list[float]]:
        return {}


class CopyLoad:
    """One step: a copy within the device's memory, `bytes_moved` read and written together."""

    devices = 1
    images = 1

    def __init__(self, place: torch.device, synchronize: Callable[[], None], *, megabytes: int = 256) -> None:
        self._from = torch.arange(megabytes * 2**20 // 4, dtype=torch.float32, device=place)
        self._to = torch.empty_like(self._from)
        self._synchronize = synchronize
        self.bytes_moved = 2 * self._from.numel() * 4

    def step(self) -> float:
        self._to.copy_(self._from)
        self._synchronize()
        return 0.0

    def split(self, steps: int) -> dict[str, list[float]]:
        return {}


def matmul_flops_per_s(
    place: torch.device, synchronize: Callable[[], None], precision: str, seconds: float = 0.5
) -> dict[str, Any]:
    """The rate of large matrix products, measured now: the median of as many as fit into the time, at least five."""
    load = MatrixLoad(place, synchronize, size=1024 if place.type == "cpu" else 8192, precision=precision)
    load.step()
    began_s, samples = now_s(), list[float]()
    while len(samples) < 5 or now_s() - began_s < seconds:
        start_s = now_s()
        load.step()
        samples.append(now_s() - start_s)
    load.used()
    samples.sort()
    return {
        "gflop_per_s": load.flops / samples[len(samples) // 2] / 1e9, "size": load.size, "precision": precision, "n": len(samples),
    }  # fmt: skip
