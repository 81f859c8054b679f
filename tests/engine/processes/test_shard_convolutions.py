"""Convolutions of few positions: the same outputs, the same gradients to rounding, and the usual one elsewhere."""

import copy

import pytest
import torch
from torch import nn

from vernier.engine.processes import shard_convolutions
from vernier.engine.processes.shard_convolutions import convert_convolutions


def network(stride: int = 1, kernel: int = 3, padding: int = 1) -> nn.Sequential:
    torch.manual_seed(0)
    convolutions = [nn.Conv2d(16, 96, kernel, stride, padding, bias=False), nn.Conv2d(96, 48, 1, bias=False)]
    return nn.Sequential(*convolutions).to(memory_format=torch.channels_last)


@pytest.mark.parametrize(("stride", "kernel", "padding"), [(1, 3, 1), (2, 3, 1), (2, 1, 0), (1, 3, 0)])
def test_gradients_are_those_of_pytorch(stride: int, kernel: int, padding: int) -> None:
    usual = network(stride, kernel, padding)
    own = copy.deepcopy(usual)
    convert_convolutions(own)
    assert all(type(module) is shard_convolutions._ShardConv2d for module in own)
    images = torch.randn(2, 16, 5, 4).contiguous(memory_format=torch.channels_last)
    inputs = [images.clone().requires_grad_() for _ in range(2)]
    outputs = [net(x) for net, x in zip((usual, own), inputs, strict=True)]
    assert torch.equal(*outputs)
    for output in outputs:
        output.square().sum().backward()
    pairs = [(p.grad, q.grad) for p, q in zip(usual.parameters(), own.parameters(), strict=True)]
    for expected, gradient in [*pairs, (inputs[0].grad, inputs[1].grad)]:
        assert gradient is not None
        torch.testing.assert_close(gradient, expected, rtol=1e-5, atol=1e-4)
        assert gradient.stride() == expected.stride()  # type: ignore[union-attr]


def test_the_usual_kernel_where_positions_are_many_or_the_type_is_another(monkeypatch: pytest.MonkeyPatch) -> None:
    own = network()
    convert_convolutions(own)
    monkeypatch.setattr(shard_convolutions, "_Convolution", None)
    own(torch.randn(8, 16, 8, 8)).sum().backward()
    with torch.no_grad():
        own(torch.randn(1, 16, 2, 2))
    with torch.autocast("cpu", torch.bfloat16):
        own(torch.randn(1, 16, 2, 2)).sum().backward()
    with pytest.raises(AttributeError):  # few positions, fp32
        own(torch.randn(1, 16, 2, 2))


def test_other_convolutions_are_left_alone() -> None:
    others = nn.ModuleList(
        [nn.Conv2d(4, 4, 3), nn.Conv2d(4, 4, 3, groups=2, bias=False), nn.Conv2d(4, 4, 3, dilation=2, bias=False)]
    )
    convert_convolutions(others)
    assert all(type(module) is nn.Conv2d for module in others)
