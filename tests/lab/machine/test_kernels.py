import pytest
import torch

from vernier.lab.machine.kernels import CopyLoad, MatrixLoad

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
