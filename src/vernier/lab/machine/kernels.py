"""Loads that need no data and no recipe: a matrix product and a copy, in a given precision on a given device.

They show the best a device can do, as a reference for a network's rate. Their results are read, so that no compiler
may leave the work out.
"""

import statistics
from collections.abc import Callable
from itertools import pairwise

import torch

from vernier.clock import now_s
from vernier.lab.records.bench import MatmulSpeed

SIZES = (1024, 2048, 4096, 8192)
"""Rows and columns of the matrices that show a device's speed."""
_FEWEST = 5
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


def measure_matmul(
    device: torch.device, synchronize: Callable[[], None], precision: str, *, seconds: float = 0.5, size: int = 0
) -> MatmulSpeed:
    """The rate of large matrix products, measured now: the median of as many as fit into the time, at least five.

    `size` 0: 1024 on a CPU; elsewhere the largest of SIZES of which five fit into the time.
    """
    if not size:
        size = SIZES[0] if device.type == "cpu" else _largest_size(device, synchronize, precision, seconds)
    load = MatrixLoad(device, synchronize, size=size, precision=precision)
    # Synchronised after every product: a queue of them would hide the device's own time.
    samples_s = time_steps(load.step, _FEWEST, seconds)
    load.checksum()
    gflop_per_s = load.flops / statistics.median_high(samples_s) / 1e9
    return MatmulSpeed(gflop_per_s=gflop_per_s, size=load.size, precision=precision, n=len(samples_s))


def _largest_size(device: torch.device, synchronize: Callable[[], None], precision: str, seconds: float) -> int:
    """A fast device needs large products to be busy; a slow one would take minutes for them."""
    for size, larger in pairwise(SIZES):
        # The minimum: one disturbed product must not stop the search at a small size.
        product_s = min(time_steps(MatrixLoad(device, synchronize, size=size, precision=precision).step, 2, 0.0))
        if product_s * (larger / size) ** 3 * _FEWEST > seconds:
            return size
    return SIZES[-1]


def time_steps(step: Callable[[], object], fewest: int, seconds: float) -> list[float]:
    """Seconds of each step, for as many steps as fit into the time; one more before them is not counted."""
    # The first step compiles or loads kernels; it counts towards the time limit, and not as a sample.
    began_s, steps_s = now_s(), list[float]()
    step()
    while len(steps_s) < fewest or now_s() - began_s < seconds:
        start_s = now_s()
        step()
        steps_s.append(now_s() - start_s)
    return steps_s
