"""machine.convolution = winograd: convolutions of 3 x 3 weights with a quarter of the products, in training.

The kernels are in winograd.cpp. They are operations of PyTorch (`vernier::winograd`), so that compiled and traced
networks and the profiler see them. Evaluation keeps PyTorch's own convolutions, and repeats to the bit elsewhere.
"""

import ctypes
from collections.abc import Callable
from functools import cache
from typing import Any, TypeGuard

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vernier.devices import Device
from vernier.errors import ConfigError
from vernier.references import given, use

from .library import NeededBy, load_function

# As in winograd.cpp, which fills buffers that are allocated here: TILE x TILE outputs need (TILE + 3 - 1)^2 points.
TILE, POINTS, CHANNEL_MULTIPLE = 4, 36, 16
# With 16 channels PyTorch's convolution was faster (docs/results/training-step.md).
FEWEST_CHANNELS = 32
# Of machine.convolution = auto: small models gain little, and keep PyTorch's rounding.
AUTO_PX, AUTO_CHANNELS = 112, 64
FEWEST_TILES = 64
"""Of a batch: with fewer, transforming the weights takes longer than the products that are saved."""
LARGEST_ERROR = 1e-4
"""Relative, of the check against PyTorch; about 3e-6 is usual."""

_NEEDED_BY = NeededBy("machine.convolution", "winograd", "torch")


class Winograd:
    """Winograd's algorithm for machine.convolution, an `engine.convolutions.ConvolutionKernels`."""

    def check(self, device: Device) -> None:
        """Raises ConfigError for any device but a CPU."""
        if device.name != "cpu":
            raise ConfigError(
                f"{given('machine.convolution', 'winograd')} is for {use('machine.device', 'cpu')}; {device.name} has "
                "convolutions of its own. Omit it."
            )

    def suits(self, model: nn.Module, image_px: int) -> bool:
        """A processor with AVX-512, images of 112 pixels and more, and a layer of 64 channels that can be converted."""
        widths = [min(m.in_channels, m.out_channels) for m in model.modules() if _is_convertible(m)]
        return (
            image_px >= AUTO_PX and max(widths, default=0) >= AUTO_CHANNELS and "avx512" in _kernel("scratch").__name__
        )

    def convert(self, model: nn.Module) -> None:
        """Let a model's 3 x 3 convolutions with stride 1 compute by Winograd's algorithm. Raises ConfigError if they
        cannot on this machine."""
        convolutions = [module for module in model.modules() if _is_convertible(module)]
        if not convolutions:
            raise ConfigError(
                f"{given(*_NEEDED_BY[:2])} has no effect on this model: it has no 3 x 3 convolution with stride 1, one "
                f"group and at least {FEWEST_CHANNELS} channels. Omit it."
            )
        check_kernels()
        for module in convolutions:
            module.__class__ = WinogradConv2d  # its parameters, hooks and name stay


def _is_convertible(module: nn.Module) -> TypeGuard[nn.Conv2d]:
    return (
        # No subclass: BlurConv2d, for example, computes something else.
        type(module) is nn.Conv2d
        and module.kernel_size == (3, 3)
        and module.stride == module.padding == module.dilation == (1, 1)
        and module.groups == 1
        and module.padding_mode == "zeros"
        and min(module.in_channels, module.out_channels) >= FEWEST_CHANNELS
    )


class WinogradConv2d(nn.Conv2d):
    """Winograd's algorithm in training, in fp32, on batches that are large enough; PyTorch's convolution elsewhere."""

    def forward(self, input: Tensor) -> Tensor:
        # Under autocast the input may still be fp32, and PyTorch would compute in lower precision.
        usual = not self.training or input.dtype != torch.float32 or torch.is_autocast_enabled("cpu")
        if usual or _count_tiles(input) < FEWEST_TILES:
            return super().forward(input)
        output: Tensor = convolve(input, self.weight)
        return output if self.bias is None else output.add_(self.bias.view(-1, 1, 1))


def _count_tiles(images: Tensor) -> int:
    count, _, height, width = images.shape
    return count * -(-height // TILE) * -(-width // TILE)


def _filled_up(channels: int) -> int:
    """How many channels the kernels compute with."""
    return -(-channels // CHANNEL_MULTIPLE) * CHANNEL_MULTIPLE


# ---------------------------------------------------------------------------------------------------------- operations


@torch.library.custom_op("vernier::winograd", mutates_args=())
def convolve(images: Tensor, weight: Tensor) -> Tensor:
    return _multiply(images, weight, backward=False)


@torch.library.custom_op("vernier::winograd_input_gradient", mutates_args=())
def input_gradient(gradient: Tensor, weight: Tensor) -> Tensor:
    return _multiply(gradient, weight, backward=True)


@torch.library.custom_op("vernier::winograd_weight_gradient", mutates_args=())
def weight_gradient(gradient: Tensor, images: Tensor) -> Tensor:
    outputs, inputs = gradient.shape[1], images.shape[1]
    # 36 products [outputs, tiles] x [tiles, inputs]: tiles are summed before the one transform back.
    points = torch.bmm(_points(gradient, gradients=True).transpose(1, 2), _points(images, gradients=False))
    result = _channels_last(outputs, inputs, 3, 3)
    _kernel("weight_gradient")(points.data_ptr(), result.data_ptr(), outputs, inputs, torch.get_num_threads())
    return result


# Shapes and layouts without values, for torch.compile.
@convolve.register_fake
def _(images: Tensor, weight: Tensor) -> Tensor:
    return _channels_last(images.shape[0], weight.shape[0], *images.shape[2:], like=images)


@input_gradient.register_fake
def _(gradient: Tensor, weight: Tensor) -> Tensor:
    return _channels_last(gradient.shape[0], weight.shape[1], *gradient.shape[2:], like=gradient)


@weight_gradient.register_fake
def _(gradient: Tensor, images: Tensor) -> Tensor:
    return _channels_last(gradient.shape[1], images.shape[1], 3, 3, like=images)


def _keep_for_backward(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
    ctx.save_for_backward(*inputs)


def _backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor | None]:
    images, weight = ctx.saved_tensors
    needs_images, needs_weight = ctx.needs_input_grad
    return (
        input_gradient(gradient, weight) if needs_images else None,
        weight_gradient(gradient, images) if needs_weight else None,
    )


convolve.register_autograd(_backward, setup_context=_keep_for_backward)


# ------------------------------------------------------------------------------------------------------------- kernels


def _multiply(images: Tensor, weight: Tensor, *, backward: bool) -> Tensor:
    """The convolution, or the gradient of its inputs, which is one with the weights turned."""
    images = images.contiguous(memory_format=torch.channels_last)
    weight = weight.contiguous(memory_format=torch.channels_last)
    # The kernels get bare pointers: layouts must be right, and these names keep the copies alive until they return.
    count, inputs, height, width = images.shape
    outputs = weight.shape[1 if backward else 0]
    threads = torch.get_num_threads()
    points = torch.empty(POINTS * _filled_up(inputs) * _filled_up(outputs))
    _kernel("weights")(weight.data_ptr(), points.data_ptr(), weight.shape[0], weight.shape[1], backward, threads)
    result = _channels_last(count, outputs, height, width)
    scratch = torch.empty(threads * _kernel("scratch")(inputs, outputs))
    _kernel("convolve")(
        *(tensor.data_ptr() for tensor in (images, points, result, scratch)),
        *(count, height, width, inputs, outputs, threads),
    )
    return result


def _points(images: Tensor, *, gradients: bool) -> Tensor:
    images = images.contiguous(memory_format=torch.channels_last)
    count, channels, height, width = images.shape
    points = torch.empty(POINTS, _count_tiles(images), _filled_up(channels))
    threads = torch.get_num_threads()
    _kernel("points")(images.data_ptr(), points.data_ptr(), count, height, width, channels, gradients, threads)
    return points


def _channels_last(*shape: int, like: Tensor | None = None) -> Tensor:
    device = None if like is None else like.device
    return torch.empty(shape, dtype=torch.float32, device=device, memory_format=torch.channels_last)


@cache
def _kernel(name: str) -> Callable[..., Any]:
    # p: pointer, s: size or position, i: number or switch.
    signatures = {"weights": "ppssii", "scratch": "ss", "convolve": "ppppsssssi"}
    signatures |= {"points": "ppssssii", "weight_gradient": "ppssi"}
    types = {"p": ctypes.c_void_p, "s": ctypes.c_int64, "i": ctypes.c_int}
    arguments = [types[letter] for letter in signatures[name]]
    returns = ctypes.c_int64 if name == "scratch" else None
    return load_function(f"winograd_{name}", *arguments, returns=returns, by=_NEEDED_BY)


def check_kernels() -> None:
    """Compare what the compiler made with PyTorch's convolution, once: milliseconds."""
    generator = torch.Generator().manual_seed(0)
    # Sizes that fill neither a tile nor a vector, so that every border case is part of the check.
    images = torch.randn(2, 19, 9, 6, generator=generator, requires_grad=True)
    weight = torch.randn(85, 19, 3, 3, generator=generator, requires_grad=True)
    gradient = torch.randn(2, 85, 9, 6, generator=generator)
    with torch.enable_grad():
        outputs = convolve(images, weight), F.conv2d(images, weight, padding=1)
        own, usual = ((output, *torch.autograd.grad(output, (images, weight), gradient)) for output in outputs)
    for ours, expected in zip(own, usual, strict=True):
        error = ((ours - expected).norm() / expected.norm()).item()
        if not error < LARGEST_ERROR:  # also true for NaN
            raise ConfigError(
                f"{given(*_NEEDED_BY[:2])}: what the C++ compiler made of winograd.cpp differs from PyTorch's "
                f"convolution by {error:.1e}. Use {use('machine.convolution', 'torch')}."
            )
