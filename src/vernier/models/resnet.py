"""Residual models: one `ResNet` that becomes ResNets, ResNeXts and their small relatives from an `Arch` and `Options`.

Owns their architectures, layers, initial weights and names, and the `Trunk` that detectors build on. Parameters have
torchvision's names and order (`layer1.0.conv1.weight`, `layer2.0.downsample.0.weight`, `fc.bias`), so weights need no
translation. The forward pass has no branch that depends on data, so it traces and compiles without graph breaks.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from vernier.config import Model
from vernier.errors import ConfigError
from vernier.frozen import frozen

from .catalogue import shown_name
from .contract import Entry, Family, Layout, Naming, Options
from .drop_path import DropPath
from .recomputing import Recomputing

_BLUR_MIN_CHANNELS = 16
"""FFCV blurs only in front of strided convolutions with at least this many input channels: all but the stem."""

HEAD = "fc"
"""The name of the classifier."""


@frozen
class Arch:
    """The shape of a residual model: everything that distinguishes one catalogue entry from another."""

    block: Literal["basic", "bottleneck"]
    blocks: tuple[int, ...]
    """Blocks per stage; every stage but the first halves the resolution."""
    width: int = 64
    """Channels of the stem and of the first stage's blocks."""
    groups: int = 1
    """Groups of the 3x3 convolution in a bottleneck (ResNeXt's cardinality)."""
    group_width: int = 64
    """Channels per group in the first stage, at width 64: the 4 of 32x4d. A plain bottleneck is one group of 64."""
    stride_in: Literal["3x3", "1x1"] = "3x3"
    """Where a bottleneck subsamples: the 3x3 is v1.5, the first 1x1 is v1 (the paper's)."""
    squeeze: int = 0
    """Width of the squeeze-and-excitation layer, the same in every block; 0 for none."""
    shortcut: Literal["projection", "pad"] = "projection"
    """How a shortcut changes shape: 1x1 convolution, or the paper's option A (subsample, pad channels with zeros)."""
    stem: Literal["imagenet", "small"] = "imagenet"
    last_stride: Literal[1, 2] = 2
    """Stride of the last stage. A detector's backbone has 1, to keep the resolution."""

    @property
    def expansion(self) -> int:
        return 4 if self.block == "bottleneck" else 1


def layout_of_arch(arch: Arch) -> Layout:
    """Where the layers of a residual model without a head are."""
    # Grouped bottlenecks are published with one stride only.
    twins = arch.block == "bottleneck" and arch.groups == 1
    return Layout(
        stem=("conv1", "bn1"),
        stages=tuple((f"layer{number}",) for number in range(1, len(arch.blocks) + 1)),
        blocks=arch.blocks,
        classifier="",
        variant=("v1.5" if arch.stride_in == "3x3" else "v1") if twins else "",
    )


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


def _pad_same(images: Tensor, kernel: int, stride: int) -> Tensor:
    """Pad with zeros as TensorFlow's SAME: what one side gets more goes to the right and to the bottom."""
    ends: list[int] = []
    for size in (images.shape[3], images.shape[2]):  # `pad` lists the last dimension first
        total = max(0, (-(-size // stride) - 1) * stride + kernel - size)
        ends += [total // 2, total - total // 2]
    return functional.pad(images, ends)


class _ThinConv2d(nn.Conv2d):
    """A strided 1x1 convolution of few channels: the stride is taken first, which gives the same bits.

    PyTorch 2.13 writes beyond its memory in the backward pass of such a layer, in channels-last memory on a CPU.
    """

    def forward(self, input: Tensor) -> Tensor:
        step = self.stride[0]
        return functional.conv2d(input[:, :, ::step, ::step], self.weight)


_THIN_CHANNELS = 8
"""The most channels with which that was seen; from 9 on nothing is wrong."""


class SameConv2d(nn.Conv2d):
    """A strided convolution that pads as TensorFlow's SAME; `padding` is 0."""

    def forward(self, input: Tensor) -> Tensor:
        return super().forward(_pad_same(input, self.kernel_size[0], self.stride[0]))


class _SamePool(nn.MaxPool2d):
    """The pool of the stem, padded as TensorFlow's SAME. Zeros do no harm: it follows a ReLU."""

    def forward(self, input: Tensor) -> Tensor:
        pooled: Tensor = super().forward(_pad_same(input, 3, 2))
        return pooled


class _PadShortcut(nn.Module):
    """The paper's option A: keep every `stride`-th pixel and add zero channels on both sides; no parameters."""

    def __init__(self, in_channels: int, out_channels: int, stride: int) -> None:
        super().__init__()
        self.stride = stride
        before = (out_channels - in_channels) // 2
        self.channels = (before, out_channels - in_channels - before)

    def forward(self, x: Tensor) -> Tensor:
        # `pad` lists the last dimension first: width, height, channels.
        return functional.pad(x[:, :, :: self.stride, :: self.stride], (0, 0, 0, 0, *self.channels))


class _SqueezeExcite(nn.Module):
    """Scales every channel by a factor from 0 to 1, computed from the means of all channels (Hu et al. 2018)."""

    def __init__(self, channels: int, squeeze: int) -> None:
        super().__init__()
        self.fc1 = nn.Linear(channels, squeeze)
        self.fc2 = nn.Linear(squeeze, channels)

    def forward(self, x: Tensor) -> Tensor:
        hidden = functional.relu(self.fc1(x.mean(dim=(2, 3))), inplace=True)
        return torch.sigmoid(self.fc2(hidden))[:, :, None, None]


class _Layers:
    """Creates the convolutions and batch norms of one model with its options."""

    def __init__(self, options: Options) -> None:
        self.options = options

    def conv(self, in_channels: int, out_channels: int, kernel: int, *, stride: int = 1, groups: int = 1) -> nn.Conv2d:
        blur = self.options.blurpool and stride > 1 and in_channels >= _BLUR_MIN_CHANNELS
        same = self.options.padding == "tf" and kernel > 1 and stride > 1 and not blur
        thin = kernel == 1 and stride > 1 and in_channels <= _THIN_CHANNELS
        kind: type[nn.Conv2d] = SameConv2d if same else BlurConv2d if blur else _ThinConv2d if thin else nn.Conv2d
        padding = 0 if same else kernel // 2
        # No bias in any convolution: the batch norm behind it has one.
        return kind(in_channels, out_channels, kernel, stride=stride, padding=padding, groups=groups, bias=False)

    def shortcut(self, arch: Arch, in_channels: int, out_channels: int, stride: int) -> nn.Module | None:
        """The layer that brings the block's input to the shape of its output; None if it has that shape already."""
        if stride == 1 and in_channels == out_channels:
            return None
        if arch.shortcut == "pad":
            return _PadShortcut(in_channels, out_channels, stride)
        return nn.Sequential(self.conv(in_channels, out_channels, 1, stride=stride), nn.BatchNorm2d(out_channels))


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


class _BasicBlock(_Block):
    """Two 3x3 convolutions."""

    def __init__(
        self, layers: _Layers, arch: Arch, in_channels: int, planes: int, stride: int, drop_path: float
    ) -> None:
        super().__init__(drop_path)
        self.conv1 = layers.conv(in_channels, planes, 3, stride=stride)
        self.bn1 = nn.BatchNorm2d(planes)
        self.conv2 = layers.conv(planes, planes, 3)
        self.bn2 = nn.BatchNorm2d(planes)
        self.downsample = layers.shortcut(arch, in_channels, planes, stride)

    def branch(self, x: Tensor) -> Tensor:
        out = self.relu(self.bn1(self.conv1(x)))
        last: Tensor = self.bn2(self.conv2(out))
        return last


class _Bottleneck(_Block):
    """1x1 down, 3x3 (grouped in ResNeXt), 1x1 up, and squeeze-and-excitation if the architecture has it."""

    def __init__(
        self, layers: _Layers, arch: Arch, in_channels: int, planes: int, stride: int, drop_path: float
    ) -> None:
        inner, out_channels = planes * arch.group_width * arch.groups // 64, planes * arch.expansion
        if inner == 0 or inner % arch.groups:
            raise ConfigError(
                f"At width {planes}, {inner} channels do not divide into {arch.groups} groups. Set model.width to 64."
            )
        # v1.5 ("3x3") or v1. A 1x1 with stride 2 ignores three quarters of its inputs; a 3x3 reads all of them.
        first, second = (1, stride) if arch.stride_in == "3x3" else (stride, 1)
        super().__init__(drop_path)
        # In torchvision's order. Another order changes the state dict, and the random weights that a seed gives.
        self.conv1 = layers.conv(in_channels, inner, 1, stride=first)
        self.bn1 = nn.BatchNorm2d(inner)
        self.conv2 = layers.conv(inner, inner, 3, stride=second, groups=arch.groups)
        self.bn2 = nn.BatchNorm2d(inner)
        self.conv3 = layers.conv(inner, out_channels, 1)
        self.bn3 = nn.BatchNorm2d(out_channels)
        self.se = _SqueezeExcite(out_channels, arch.squeeze) if arch.squeeze else None
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
    """A residual model without its head: images [N, in_channels, H, W] to features. Weights are not initialized."""

    def __init__(self, arch: Arch, options: Options) -> None:
        super().__init__()
        self.arch, self.options, self.layout = arch, options, layout_of_arch(arch)
        layers = _Layers(options)
        width = options.width or arch.width
        stem = arch.stem if options.stem == "default" else options.stem
        small = stem != "imagenet"
        self.conv1 = layers.conv(options.in_channels, width, 3 if small else 7, stride=1 if small else 2)
        self.bn1 = nn.BatchNorm2d(width)
        self.relu = nn.ReLU(inplace=True)
        same = options.padding != "torch" and not small
        self.maxpool = _SamePool(3, stride=2) if same else _POOLS[stem]()
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
    """A residual model for classification: images [N, in_channels, H, W] to logits [N, num_classes]."""

    def __init__(self, arch: Arch, options: Options) -> None:
        super().__init__(arch, options)
        self.layout = replace(self.layout, classifier=HEAD)
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(self.out_channels, options.num_classes)
        initialise(self, options.init, zero_gamma=options.zero_gamma)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.fc(torch.flatten(self.avgpool(super().forward(x)), 1))
        return logits


def initialise(model: nn.Module, init: str, *, zero_gamma: bool) -> None:
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
            if isinstance(module, _BasicBlock | _Bottleneck):
                last_norm = module.bn3 if isinstance(module, _Bottleneck) else module.bn2
                nn.init.zeros_(last_norm.weight)


def _initialise_conv(weight: Tensor, init: str) -> None:
    if init == "tf":
        # A normal truncated at two deviations has 0.8796 of its deviation; TensorFlow corrects for that.
        std = math.sqrt(1.0 / weight[0].numel()) / 0.87962566103423978
        nn.init.trunc_normal_(weight, std=std, a=-2 * std, b=2 * std)
    else:
        nn.init.kaiming_normal_(weight, mode="fan_in" if init == "fan-in" else "fan_out", nonlinearity="relu")


def _stages(layers: _Layers, arch: Arch, width: int, drop_path: float) -> list[nn.Sequential]:
    block = _Bottleneck if arch.block == "bottleneck" else _BasicBlock
    strides = [1] + [2] * (len(arch.blocks) - 2) + [arch.last_stride]  # of the first block of every stage
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


# --------------------------------------------------------------------------------------------------------------- names


_NAMINGS = (
    Naming(
        source="nvidia-dle",
        marker=r"^layers\.0\.0\.|\.squeeze\.squeeze\.",
        renames=(
            *((rf"^layers\.{index}\.", f"layer{index + 1}.") for index in range(4)),
            (r"\.squeeze\.squeeze\.", ".se.fc1."),
            (r"\.squeeze\.expand\.", ".se.fc2."),
        ),
    ),
    Naming(
        source="timm-legacy",
        marker=r"^layer0\.conv1\.|^last_linear\.|\.se_module\.",
        renames=((r"^layer0\.", ""), (r"^last_linear\.", "fc."), (r"\.se_module\.", ".se.")),
    ),
    Naming(source="timm", marker=r"\.se\.fc1\."),
    Naming(
        source="ffcv-blurpool",
        marker=r"\.blur_filter$",
        renames=((r"\.conv\.weight$", ".weight"),),
        dropped=r"\.blur_filter$",
        needs=(("blurpool", True),),
    ),
    Naming(
        source="akamaster-cifar",
        marker=r"^linear\.weight$",
        renames=((r"^linear\.", "fc."), (r"\.shortcut\.", ".downsample.")),
    ),
    # Last, since its marker occurs in several of the others.
    Naming(source="torchvision", marker=r"^layer1\.0\.conv1\.weight$"),
)


def _why_not_torchvision(spec: Model, channels: int) -> str:
    """What torchvision's ResNet is not, or cannot be built as: weights would be wrong there, or not load."""
    arch = _ARCHS[spec.name]
    if arch.stem != "imagenet" or arch.squeeze or layout_of_arch(arch).variant == "v1":
        return "torchvision has no such model"
    if shown_name(spec) != spec.name:
        return f"torchvision's is {spec.name} as published"
    return "" if channels == 3 else "torchvision's takes images of 3 channels"


# -------------------------------------------------------------------------------------------------------------- models


_CIFAR = "He et al. 2015 section 4.2: 16/32/64 channels, parameter-free shortcuts"
_SMALL = "basic blocks in three stages for small images, projection shortcuts"
_NVIDIA = "grouped 3x3, 32 groups of 4 (NVIDIA's and Habana's ResNeXt-101)"
_SQUEEZE = "resnext101-32x4d with NVIDIA's squeeze-and-excitation, 16 wide in every block"
_PUBLISHED = {
    "resnet18": Arch(block="basic", blocks=(2, 2, 2, 2)),
    "resnet34": Arch(block="basic", blocks=(3, 4, 6, 3)),
    "resnet50": Arch(block="bottleneck", blocks=(3, 4, 6, 3)),
    "resnet101": Arch(block="bottleneck", blocks=(3, 4, 23, 3)),
    "resnet152": Arch(block="bottleneck", blocks=(3, 8, 36, 3)),
}
_V15 = "bottlenecks, stride in the 3x3 (v1.5: torchvision, NVIDIA, Habana)"
_V1 = "bottlenecks, stride in the first 1x1 (He et al. 2015)"
_SAME = "the same model as {}: basic blocks have only one form"


def _grouped(published: str, groups: int, group_width: int, squeeze: int = 0) -> Arch:
    return replace(_PUBLISHED[published], groups=groups, group_width=group_width, squeeze=squeeze)


def _small(blocks: int, shortcut: Literal["projection", "pad"]) -> Arch:
    return Arch(block="basic", blocks=(blocks,) * 3, width=16, shortcut=shortcut, stem="small")


# Family, name, architecture and summary.
_MODELS: tuple[tuple[str, str, Arch, str], ...] = (
    *(("resnet", n, arch, "basic blocks" if arch.block == "basic" else _V15) for n, arch in _PUBLISHED.items()),
    *(
        ("resnet-v1", f"{n}-v1", replace(arch, stride_in="1x1"), _SAME.format(n) if arch.block == "basic" else _V1)
        for n, arch in _PUBLISHED.items()
    ),
    ("resnext", "resnext50-32x4d", _grouped("resnet50", 32, 4), "grouped 3x3, 32 groups of 4"),
    ("resnext", "resnext101-32x4d", _grouped("resnet101", 32, 4), _NVIDIA),
    ("resnext", "resnext101-32x8d", _grouped("resnet101", 32, 8), "grouped 3x3, 32 groups of 8"),
    ("resnext", "resnext101-64x4d", _grouped("resnet101", 64, 4), "grouped 3x3, 64 groups of 4"),
    ("resnext", "se-resnext101-32x4d", _grouped("resnet101", 32, 4, squeeze=16), _SQUEEZE),
    *(("resnet-cifar", f"resnet{6 * n + 2}-cifar", _small(n, "pad"), _CIFAR) for n in (3, 5, 7, 9, 18)),
    *(("resnet-small", f"resnet{6 * n + 2}-small", _small(n, "projection"), _SMALL) for n in (1, 2, 3)),
)
_ARCHS = {name: arch for _, name, arch, _ in _MODELS}

RESIDUAL_OPTIONS = ("init", "zero_gamma", "stem", "width", "drop_path", "blurpool", "padding")

FAMILY = Family(
    models=tuple(
        Entry(
            name=name,
            family=family,
            summary=summary,
            input_px=224 if arch.stem == "imagenet" else 32,
            classes=1000 if arch.stem == "imagenet" else 10,
            width=arch.width,
            stem=arch.stem,
            build=partial(ResNet, arch),
        )
        for family, name, arch, summary in _MODELS
    ),
    options=RESIDUAL_OPTIONS,
    namings=_NAMINGS,
    why_not_torchvision=_why_not_torchvision,
)
