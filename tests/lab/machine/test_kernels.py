from collections.abc import Callable

import pytest
import torch

from vernier.lab.machine import kernels
from vernier.lab.machine.kernels import CopyLoad, MatrixLoad, measure_matmul

CPU = torch.device("cpu")


def test_the_product_that_is_timed_is_computed() -> None:
    """A compiler once removed a multiplication that was being measured, as nothing used its result."""
    load = MatrixLoad(CPU, lambda: None, size=32)
    load.step()
    random = torch.Generator().manual_seed(0)
    a, b = (torch.rand(32, 32, generator=random) for _ in range(2))
    assert load.checksum() == pytest.approx(float((a @ b).sum()))
    assert load.flops == 2 * 32**3


def test_a_step_ends_when_the_device_is_done() -> None:
    waits: list[str] = []
    MatrixLoad(CPU, lambda: waits.append("product"), size=8).step()
    CopyLoad(CPU, lambda: waits.append("copy"), megabytes=1).step()
    assert waits == ["product", "copy"]


def test_the_rate_of_products_has_its_precision_and_number() -> None:
    speed = measure_matmul(CPU, lambda: None, "fp32", seconds=0.01)
    assert speed.gflop_per_s > 0
    assert speed.n >= 5
    assert (speed.precision, speed.size) == ("fp32", 1024)


def test_a_slow_device_is_not_kept_busy_with_large_products(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []

    def timed(step: Callable[[], object], fewest: int, seconds: float) -> list[float]:
        """Products on a device of 100 GFLOP/s; nothing is computed."""
        load = getattr(step, "__self__", None)
        assert isinstance(load, MatrixLoad)
        sizes.append(load.size)
        return [load.flops / 100e9] * fewest

    monkeypatch.setattr(kernels, "time_steps", timed)
    meta = torch.device("meta")
    monkeypatch.setattr(MatrixLoad, "checksum", lambda load: 0.0)
    assert measure_matmul(meta, lambda: None, "fp32").size == 1024
    assert sizes == [1024, 1024]
    assert measure_matmul(meta, lambda: None, "fp32", seconds=60.0).size == 8192
    assert measure_matmul(meta, lambda: None, "fp32", size=2048).gflop_per_s == pytest.approx(100)
