"""What describes a network before it is built: the shape of a residual network and of a detector, and its options.

Imports no torch. The networks are built in `resnet` and `ssd`, the named ones are listed in `catalogue`.
"""

from __future__ import annotations

import math
from typing import Literal

from vernier.errors import ConfigError
from vernier.frozen import frozen

Init = Literal["fan-out", "fan-in", "tf"]
Stem = Literal["default", "imagenet", "small", "small-pool"]


@frozen
class Arch:
    """The shape of a network: everything that distinguishes one catalogue entry from another."""

    block: Literal["basic", "bottleneck", "pooled"]
    """Two kinds of residual block, and that of `AirbenchNet`, which has no shortcut and a pool instead of a stride."""
    blocks: tuple[int, ...]
    """Blocks per stage; every stage but the first halves the resolution, pooled ones all do."""
    width: int = 64
    """Channels of the stem and of the first stage's blocks."""
    multiples: tuple[int, ...] = ()
    """Channels of each stage, as multiples of the width; empty: 1, 2, 4 and so on."""
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
    stem: Literal["imagenet", "small", "whitening"] = "imagenet"
    last_stride: Literal[1, 2] = 2
    """Stride of the last stage. A detector's backbone has 1, to keep the resolution."""

    @property
    def expansion(self) -> int:
        return 4 if self.block == "bottleneck" else 1

    @property
    def depth(self) -> int:
        """Weight layers on the longest path: the number in the network's name."""
        return sum(self.blocks) * (3 if self.block == "bottleneck" else 2) + 2


@frozen
class SsdSpec:
    """The shape of a single-shot detector, for any image size; `levels` computes the levels for one.

    Each level after the backbone's halves the grid while it has more than five cells per side, then removes two cells
    while there are three: at 300 pixels 38, 19, 10, 5, 3, 1. Default boxes are shares of the image and grow with it.
    """

    extras: tuple[tuple[int, int], ...]
    """(1x1 channels, 3x3 channels) per level after the backbone, at the backbone's own width; the last repeats."""
    pyramid: int = 0
    """Channels of a feature pyramid (Lin et al. 2017) over the backbone's last two stages, which are the first two
    levels; 0: none, the backbone's last stage is the first level."""
    extra_norm: bool = False
    """Batch norm after the convolutions of those levels, which then have no bias (NVIDIA's SSD300 v1.1)."""
    sizes: tuple[float, float, float] = (21 / 300, 45 / 300, 261 / 300)
    """Side of the default boxes at the first, second and last level; those between are spaced evenly."""
    outer_ratios: tuple[int, ...] = (2,)
    """Aspect ratios, each also inverted, of the first and the last two levels."""
    inner_ratios: tuple[int, ...] = (2, 3)
    """The same for all levels between."""
    max_levels: int = 8


@frozen
class Options:
    """The options of any network of the catalogue. Ranges are checked by `config.settings`."""

    num_classes: int
    """A detector's includes the background, its class 0."""
    in_channels: int = 3
    image_px: int | None = None
    """Detectors: side of the images, which decides levels and default boxes; None: the catalogue's."""
    box_sizes: tuple[float, ...] = ()
    """Detectors: side of the default boxes at the first, second and last level, as shares of the image.
    Empty: the catalogue's."""
    init: Init = "fan-out"
    """Convolutions: He normal by fan-out (torchvision's) or fan-in (NVIDIA's), or TensorFlow's variance scaling
    (truncated normal, variance 1/fan-in). Linear layers keep PyTorch's default. A detector's layers outside its
    backbone are always Xavier uniform."""
    zero_gamma: bool = False
    """Start the last batch norm of every block at zero, so that a new block is the identity."""
    stem: Stem = "default"
    """`imagenet`: 7x7 stride 2 and max pool. `small`: 3x3 stride 1, no pool. `small-pool`: the same and a 2x2 pool.
    `default`: the architecture's own."""
    width: int | None = None
    """Channels of the stem and first stage; None: the architecture's own (64, or 16 in the small families).
    A detector's extra levels scale with it."""
    drop_path: float = 0.0
    """Stochastic depth: probability that a sample skips the last block; earlier blocks linearly less."""
    blurpool: bool = False
    """Blur (3x3 binomial) before every strided convolution with at least 16 input channels, as FFCV's rn50 does."""
    bn_momentum: float = 0.1
    bn_eps: float = 1e-5


BLUR_MIN_CHANNELS = 16
"""FFCV blurs only in front of strided convolutions with at least this many input channels: all but the stem."""
LARGE_GRID = 5  # cells per side: a larger grid is halved for the next level, a smaller one loses its border
_MIN_CHANNELS = 8  # below, strided 1x1 convolutions crash in channels-last memory (torch 2.13, CPU)
_STEMS = {"imagenet": 4, "small": 1, "small-pool": 2}  # factor by which each reduces the resolution


@frozen
class Level:
    """One resolution of a detector, with its default boxes."""

    grid: int
    """Cells per side."""
    cells: float
    """The grid as a length: a cell is 1 / cells of the image. Fractional if the stride does not divide the image."""
    halves: bool
    """Made from the previous level with stride 2; otherwise by a 3x3 without padding. Unused for the first level."""
    size: float
    """Side of the default box, as a share of the image."""
    next_size: float
    ratios: tuple[int, ...]

    @property
    def shapes(self) -> list[tuple[float, float]]:
        """Widths and heights of the default boxes in a cell, in order: square, larger square, then every ratio."""
        between = math.sqrt(self.size * self.next_size)
        pairs = [(self.size * math.sqrt(r), self.size / math.sqrt(r)) for r in self.ratios]
        return [(self.size, self.size), (between, between)] + [box for w, h in pairs for box in ((w, h), (h, w))]

    @property
    def boxes(self) -> int:
        return self.grid**2 * len(self.shapes)


def levels(arch: Arch, spec: SsdSpec, px: int, stem: str = "default") -> tuple[Level, ...]:
    """Compute the levels for images of `px` pixels per side. Raises ConfigError if there is no room for two."""
    stem = arch.stem if stem == "default" else stem
    grid, stride = (px // 2 if stem == "small-pool" else math.ceil(px / _STEMS[stem])), _STEMS[stem]
    halving_stages = len(arch.blocks) - (1 if arch.last_stride == 2 else 2) - (1 if spec.pyramid else 0)
    for _ in range(halving_stages):
        grid, stride = math.ceil(grid / 2), stride * 2
    grids, cells, halves = [grid], [px / stride], [True]
    while grids[-1] >= 3 and len(grids) < spec.max_levels:
        halves.append(grids[-1] > LARGE_GRID)
        stride *= 2
        grids.append(math.ceil(grids[-1] / 2) if halves[-1] else grids[-1] - 2)
        cells.append(px / stride if halves[-1] else float(grids[-1]))
    if len(grids) < 2:
        raise ConfigError(f"Images of {px} pixels are too small for this detector: use at least {2 * stride + 1}.")
    sizes = _sizes(spec, len(grids))
    return tuple(
        Level(
            grid=grids[k],
            cells=cells[k],
            halves=halves[k],
            size=sizes[k],
            next_size=sizes[k + 1],
            ratios=spec.inner_ratios if 0 < k < len(grids) - 2 else spec.outer_ratios,
        )
        for k in range(len(grids))
    )


def _sizes(spec: SsdSpec, count: int) -> list[float]:
    """Sizes of all levels and one more, which the larger square of the last level needs."""
    first, second, last = spec.sizes
    step = (last - second) / max(1, count - 2)
    return [first] + [second + step * k for k in range(count)]


def extra_channels(arch: Arch, spec: SsdSpec, width: int | None, index: int) -> tuple[int, int]:
    """Channels of the two convolutions of a detector's level after the backbone, scaled with the width."""
    scale = (width or arch.width) / arch.width
    hidden, out = spec.extras[min(index, len(spec.extras) - 1)]
    return max(_MIN_CHANNELS, round(hidden * scale)), max(_MIN_CHANNELS, round(out * scale))


def pyramid_channels(arch: Arch, spec: SsdSpec, width: int | None) -> int:
    """Channels of a detector's feature pyramid, scaled with the width."""
    return max(_MIN_CHANNELS, round(spec.pyramid * (width or arch.width) / arch.width))


PATCH_PX = 2
"""Side of the patches that a whitening stem takes apart."""


def whitening_channels(in_channels: int) -> int:
    """Channels of a whitening stem: both signs of each direction of a patch."""
    return 2 * in_channels * PATCH_PX**2


def stage_channels(arch: Arch, width: int | None) -> list[int]:
    """Nominal channels of every stage, at the architecture's own width or another one."""
    multiples = arch.multiples or tuple(2**index for index in range(len(arch.blocks)))
    return [(width or arch.width) * multiple for multiple in multiples]


def stage_strides(arch: Arch) -> list[int]:
    """Stride of the first block of every stage."""
    return [1] + [2] * (len(arch.blocks) - 2) + [arch.last_stride]


def inner_channels(arch: Arch, planes: int) -> int:
    """Channels of the 3x3 convolution in a bottleneck of nominal width `planes` (64 in ResNet's first stage)."""
    inner = planes * arch.group_width * arch.groups // 64
    if inner == 0 or inner % arch.groups:
        raise ConfigError(
            f"At width {planes}, {inner} channels do not divide into {arch.groups} groups. Set model.width to 64."
        )
    return inner
