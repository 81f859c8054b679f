"""Convolutions of few positions and many channels, whose weight gradient is one matrix product on a CPU.

oneDNN computes the gradient of the weights in a layout of its own, and converts all of it to PyTorch's, however few the
images are. Exact reduction pays that once per virtual shard. Which kernel is used follows from the
shape of a shard, not from the number of processes.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.autograd.function import once_differentiable
from torch.nn.grad import conv2d_input


def convert_convolutions(network: nn.Module) -> None:
    """Let convolutions without groups, dilation and bias choose how they compute the gradient of their weights."""
    for module in network.modules():
        plain = type(module) is nn.Conv2d and module.groups == 1 and module.bias is None
        if (
            plain
            and module.dilation == (1, 1)
            and module.padding_mode == "zeros"
            and not isinstance(module.padding, str)
        ):
            module.__class__ = _ShardConv2d  # its parameters, hooks and name stay


class _ShardConv2d(nn.Conv2d):
    """A convolution that is the usual one where it has more positions than channels, or is not fp32 on a CPU."""

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        usual = not (torch.is_grad_enabled() and self.weight.requires_grad) or input.dtype != torch.float32
        if usual or input.device.type != "cpu" or torch.is_autocast_enabled("cpu"):
            return super().forward(input)
        assert not isinstance(self.padding, str)
        positions = len(input)
        sides = zip(input.shape[2:], self.kernel_size, self.stride, self.padding, strict=True)
        for size, kernel, stride, padding in sides:
            positions *= (size + 2 * padding - kernel) // stride + 1
        if positions > self.out_channels:
            return super().forward(input)
        tensors = (input, self.weight)
        output: torch.Tensor = _Convolution.apply(*tensors, self.stride, self.padding)  # type: ignore[no-untyped-call]
        return output


class _Convolution(torch.autograd.Function):
    """PyTorch's convolution, with a weight gradient in the layout that channels-last weights have."""

    @staticmethod
    def forward(ctx: Any, images: torch.Tensor, weight: torch.Tensor, stride: Any, padding: Any) -> torch.Tensor:
        ctx.save_for_backward(images, weight)
        ctx.stride, ctx.padding = stride, padding
        return F.conv2d(images, weight, None, stride, padding)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        images, weight = ctx.saved_tensors
        into_images = None
        if ctx.needs_input_grad[0]:
            tensors = (images.shape, weight, gradient)
            into_images = conv2d_input(*tensors, ctx.stride, ctx.padding)  # type: ignore[no-untyped-call]
        return into_images, weight_gradient(images, weight, gradient, ctx.stride, ctx.padding), None, None


def weight_gradient(
    images: torch.Tensor, weight: torch.Tensor, gradient: torch.Tensor, stride: Any, padding: Any
) -> torch.Tensor:
    """The gradient of a convolution's weights, channels last: windows of the images times the output's gradient."""
    channels, inputs, height, width = weight.shape
    count, _, rows, columns = gradient.shape
    padded = F.pad(images, (padding[1], padding[1], padding[0], padding[0])).permute(0, 2, 3, 1).contiguous()
    image, row, column, one = padded.stride()
    windows = padded.as_strided(
        (count, rows, columns, height, width, inputs), (image, row * stride[0], column * stride[1], row, column, one)
    )
    positions = gradient.permute(0, 2, 3, 1).reshape(-1, channels)
    product = positions.t() @ windows.reshape(len(positions), -1)
    return product.view(channels, height, width, inputs).permute(0, 3, 1, 2)
