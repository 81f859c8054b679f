import pytest
import torch

from vernier.measure.machine.kernels import CopyLoad, MatrixLoad, measure_matmul

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
