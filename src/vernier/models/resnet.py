"""Residual networks: one `ResNet` that becomes every classifier of the catalogue but one from an `Arch` and `Options`.

Owns the layers, the forward pass and the initial weights, and the `Trunk` that detectors build on. The architectures
are listed in `catalogue`. Parameters have torchvision's names and order (`layer1.0.conv1.weight`,
`layer2.0.downsample.0.weight`, `fc.bias`), so weights need no translation. The forward pass has no branch that depends
on data, so it traces and compiles without graph breaks.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from .architecture import (
    BLUR_MIN_CHANNELS,
    Arch,
    Init,
    Options,
    inner_channels,
    stage_strides,
)
from .drop_path import DropPath

# Activation checkpointing: a part that runs again computes the same values. Batch norms use the batch's statistics, and
# the masks of stochastic depth are those of the step (`drop_path.PathMasks`).


class Recomputing(nn.Module):
    """A module with parts that can run again in the backward pass, instead of keeping what they computed."""

    recomputes = False

    def in_part(self, part: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
        """`part(x)`, of which only `x` is kept for the backward pass where this module recomputes."""
        if not self.recomputes or not torch.is_grad_enabled():
            return part(x)
        if torch.compiler.is_compiling():  # compiled code updates statistics in the forward pass only
            # No random state to preserve: masks of stochastic depth are drawn before the step, nothing else is random.
            compiled: Tensor = checkpoint(part, x, use_reentrant=False, preserve_rng_state=False)
            return compiled
        output: Tensor = checkpoint(
            part,
            x,
            use_reentrant=False,
            preserve_rng_state=False,
            # Contexts of the first run and of the recomputation, which must not update statistics a second time.
            context_fn=lambda: (nullcontext(), _unchanged_statistics(self)),
        )
        return output


def recompute_activations(model: nn.Module) -> None:
    """Let every part of the model that can run again do so."""
    for module in model.modules():
        if isinstance(module, Recomputing):
            module.recomputes = True


@contextmanager
def _unchanged_statistics(module: nn.Module) -> Iterator[None]:
    """While entered, batch norms update copies of their running statistics, which are then discarded."""
    # Frozen batch norms are in evaluation mode and update nothing.
    norms = [m for m in module.modules() if getattr(m, "track_running_stats", False) and m.training]
    own = [(norm, name, buffer) for norm in norms for name, buffer in norm.named_buffers(recurse=False)]
    for norm, name, buffer in own:
        setattr(norm, name, buffer.clone())
    try:
        yield
    finally:
        for norm, name, buffer in own:
            setattr(norm, name, buffer)


class BlurConv2d(nn.Conv2d):
    """A convolution that blurs its input first (Zhang 2019), with a fixed 3x3 binomial filter.

    A subclass, so that the weight keeps its plain name; the filter is not part of the state dict.
    """

    blur: Tensor

    def __init__(self, in_channels: int, *args: Any, **options: Any) -> None:
        super().__init__(in_channels, *args, **options)
        row = torch.tensor([1.0, 2.0, 1.0]) / 4
        self.register_buffer("blur", (row[:, None] * row).repeat(in_channels, 1, 1, 1), persistent=False)

    def forward(self, input: Tensor) -> Tensor:
        # Zero padding and stride 1, as in FFCV's BlurPoolConv2d: the convolution itself subsamples.
        return super().forward(functional.conv2d(input, self.blur, padding=1, groups=self.in_channels))


class PadShortcut(nn.Module):
    """The paper's option A: keep every `stride`-th pixel and add zero channels on both sides; no parameters."""

    def __init__(self, in_channels: int, out_channels: int, stride: int) -> None:
        super().__init__()
        self.stride = stride
        before = (out_channels - in_channels) // 2
        self.channels = (before, out_channels - in_channels - before)

    def forward(self, x: Tensor) -> Tensor:
        # `pad` lists the last dimension first: width, height, channels.
        return functional.pad(x[:, :, :: self.stride, :: self.stride], (0, 0, 0, 0, *self.channels))


class SqueezeExcite(nn.Module):
    """Scales every channel by a factor from 0 to 1, computed from the means of all channels (Hu et al. 2018)."""

    def __init__(self, channels: int, squeeze: int) -> None:
        super().__init__()
        self.fc1 = nn.Linear(channels, squeeze)
        self.fc2 = nn.Linear(squeeze, channels)

    def forward(self, x: Tensor) -> Tensor:
        hidden = functional.relu(self.fc1(x.mean(dim=(2, 3))), inplace=True)
        return torch.sigmoid(self.fc2(hidden))[:, :, None, None]


class _Layers:
    """Creates the convolutions and batch norms of one network with its options."""

    def __init__(self, options: Options) -> None:
        self.options = options

    def conv(self, in_channels: int, out_channels: int, kernel: int, *, stride: int = 1, groups: int = 1) -> nn.Conv2d:
        blur = self.options.blurpool and stride > 1 and in_channels >= BLUR_MIN_CHANNELS
        # No bias in any convolution: the batch norm behind it has one.
        return (BlurConv2d if blur else nn.Conv2d)(
            in_channels, out_channels, kernel, stride=stride, padding=kernel // 2, groups=groups, bias=False
        )

    def norm(self, channels: int) -> nn.BatchNorm2d:
        return nn.BatchNorm2d(channels, eps=self.options.bn_eps, momentum=self.options.bn_momentum)

    def shortcut(self, arch: Arch, in_channels: int, out_channels: int, stride: int) -> nn.Module | None:
        """The layer that brings the block's input to the shape of its output; None if it has that shape already."""
        if stride == 1 and in_channels == out_channels:
            return None
        if arch.shortcut == "pad":
            return PadShortcut(in_channels, out_channels, stride)
        return nn.Sequential(self.conv(in_channels, out_channels, 1, stride=stride), self.norm(out_channels))


class _Block(Recomputing):
    """What both kinds of block share: the shortcut, its sum with the branch, and the final ReLU.

    The sum is computed in place on the branch: batch norm's gradient needs its input only, not its output.
    """

    downsample: nn.Module | None

    def __init__(self, drop_path: float) -> None:
        super().__init__()
        self.relu = nn.ReLU(inplace=True)
        self.drop_path = DropPath(drop_path)

    def branch(self, x: Tensor) -> Tensor:
        raise NotImplementedError

    def forward(self, x: Tensor) -> Tensor:
        return self.in_part(self.block, x)

    def block(self, x: Tensor) -> Tensor:
        identity: Tensor = x if self.downsample is None else self.downsample(x)
        out: Tensor = self.drop_path(self.branch(x))
        out += identity
        summed: Tensor = self.relu(out)
        return summed


class BasicBlock(_Block):
    """Two 3x3 convolutions."""

    def __init__(
        self, layers: _Layers, arch: Arch, in_channels: int, planes: int, stride: int, drop_path: float
    ) -> None:
        super().__init__(drop_path)
        self.conv1 = layers.conv(in_channels, planes, 3, stride=stride)
        self.bn1 = layers.norm(planes)
        self.conv2 = layers.conv(planes, planes, 3)
        self.bn2 = layers.norm(planes)
        self.downsample = layers.shortcut(arch, in_channels, planes, stride)

    def branch(self, x: Tensor) -> Tensor:
        out = self.relu(self.bn1(self.conv1(x)))
        last: Tensor = self.bn2(self.conv2(out))
        return last


class Bottleneck(_Block):
    """1x1 down, 3x3 (grouped in ResNeXt), 1x1 up, and squeeze-and-excitation if the architecture has it."""

    def __init__(
        self, layers: _Layers, arch: Arch, in_channels: int, planes: int, stride: int, drop_path: float
    ) -> None:
        inner, out_channels = inner_channels(arch, planes), planes * arch.expansion
        # v1.5 ("3x3") or v1. A 1x1 with stride 2 ignores three quarters of its inputs; a 3x3 reads all of them.
        first, second = (1, stride) if arch.stride_in == "3x3" else (stride, 1)
        super().__init__(drop_path)
        # In torchvision's order. Another order changes the state dict, and the random weights that a seed gives.
        self.conv1 = layers.conv(in_channels, inner, 1, stride=first)
        self.bn1 = layers.norm(inner)
        self.conv2 = layers.conv(inner, inner, 3, stride=second, groups=arch.groups)
        self.bn2 = layers.norm(inner)
        self.conv3 = layers.conv(inner, out_channels, 1)
        self.bn3 = layers.norm(out_channels)
        self.se = SqueezeExcite(out_channels, arch.squeeze) if arch.squeeze else None
        self.downsample = layers.shortcut(arch, in_channels, out_channels, stride)

    def branch(self, x: Tensor) -> Tensor:
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.relu(self.bn2(self.conv2(out)))
        last: Tensor = self.bn3(self.conv3(out))
        return last if self.se is None else last * self.se(last)


_POOLS: dict[str, Callable[[], nn.Module]] = {
    "imagenet": lambda: nn.MaxPool2d(3, stride=2, padding=1),
    "small": nn.Identity,
    "small-pool": lambda: nn.MaxPool2d(2),
}


class Trunk(Recomputing):
    """A residual network without its head: images [N, in_channels, H, W] to features. Weights are not initialised."""

    def __init__(self, arch: Arch, options: Options) -> None:
        super().__init__()
        self.arch, self.options = arch, options
        layers = _Layers(options)
        width = options.width or arch.width
        stem = arch.stem if options.stem == "default" else options.stem
        small = stem != "imagenet"
        self.conv1 = layers.conv(options.in_channels, width, 3 if small else 7, stride=1 if small else 2)
        self.bn1 = layers.norm(width)
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = _POOLS[stem]()
        for number, stage in enumerate(_stages(layers, arch, width, options.drop_path), start=1):
            self.add_module(f"layer{number}", stage)
        self.out_channels = width * 2 ** (len(arch.blocks) - 1) * arch.expansion

    @property
    def stages(self) -> list[nn.Module]:
        """`layer1`, `layer2` and so on, in order."""
        return [self.get_submodule(f"layer{number}") for number in range(1, len(self.arch.blocks) + 1)]

    def forward(self, x: Tensor) -> Tensor:
        return self.last_two(x)[1]

    def stem(self, x: Tensor) -> Tensor:
        features: Tensor = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        return features

    def last_two(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """The features of the last stage but one, and of the last."""
        # `before` is always the input of the stage that made `x`.
        x = before = self.in_part(self.stem, x)
        for stage in self.stages:
            x, before = stage(x), x
        return before, x


class ResNet(Trunk):
    """A residual network for classification: images [N, in_channels, H, W] to logits [N, num_classes]."""

    def __init__(self, arch: Arch, options: Options) -> None:
        super().__init__(arch, options)
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(self.out_channels, options.num_classes)
        initialise(self, options.init, zero_gamma=options.zero_gamma)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.fc(torch.flatten(self.avgpool(super().forward(x)), 1))
        return logits


def initialise(model: nn.Module, init: Init, *, zero_gamma: bool) -> None:
    """Initialise convolutions from torch's default generator and set batch norms to the identity."""
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            _initialise_conv(module.weight, init)
        elif isinstance(module, nn.BatchNorm2d):
            nn.init.ones_(module.weight)
            nn.init.zeros_(module.bias)
    # After the loop above, which sets every scale to 1. Goyal et al. 2017: blocks start as the identity.
    if zero_gamma:
        for module in model.modules():
            if isinstance(module, BasicBlock | Bottleneck):
                last_norm = module.bn3 if isinstance(module, Bottleneck) else module.bn2
                nn.init.zeros_(last_norm.weight)


def _initialise_conv(weight: Tensor, init: Init) -> None:
    if init == "tf":
        # A normal truncated at two deviations has 0.8796 of its deviation; TensorFlow corrects for that.
        std = math.sqrt(1.0 / weight[0].numel()) / 0.87962566103423978
        nn.init.trunc_normal_(weight, std=std, a=-2 * std, b=2 * std)
    else:
        nn.init.kaiming_normal_(weight, mode="fan_in" if init == "fan-in" else "fan_out", nonlinearity="relu")


def _stages(layers: _Layers, arch: Arch, width: int, drop_path: float) -> list[nn.Sequential]:
    block = Bottleneck if arch.block == "bottleneck" else BasicBlock
    strides = stage_strides(arch)
    stages, channels, number = [], width, 0
    for index, count in enumerate(arch.blocks):
        planes, blocks = width * 2**index, []
        for position in range(count):
            number += 1
            stride = strides[index] if position == 0 else 1
            # Linear from the first block to the last, as in "Deep Networks with Stochastic Depth" (Huang et al. 2016).
            blocks.append(block(layers, arch, channels, planes, stride, drop_path * number / sum(arch.blocks)))
            channels = planes * arch.expansion
        stages.append(nn.Sequential(*blocks))
    return stages
