"""What all devices share, on the CPU."""

import torch

from vernier.devices.cpu import Cpu


def test_autocast_of_the_cpu_computes_in_the_precision_and_keeps_weights() -> None:
    layer = torch.nn.Linear(4, 4)
    with Cpu().autocast("bf16"):
        assert layer(torch.ones(1, 4)).dtype == torch.bfloat16
    assert layer.weight.dtype == torch.float32
    with Cpu().autocast("fp32"):
        assert layer(torch.ones(1, 4)).dtype == torch.float32
