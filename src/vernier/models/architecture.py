"""What describes a network before it is built: the shape of a residual network and of a detector, and its options.

Imports no torch. The networks are built in `resnet` and `ssd`, the named ones are listed in `catalogue`.
"""

from __future__ import annotations

from typing import Literal

from vernier.frozen import frozen

Init = Literal["fan-out", "fan-in", "tf"]
Stem = Literal["default", "imagenet", "small", "small-pool"]


@frozen
class Arch:
    """The shape of a residual network: everything that distinguishes one catalogue entry from another."""

    block: Literal["basic", "bottleneck"]
    blocks: tuple[int, ...]
    """Residual blocks per stage; every stage but the first halves the resolution and doubles the channels."""
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

    @property
    def depth(self) -> int:
        """Weight layers on the longest path: the number in the network's name."""
        return sum(self.blocks) * (3 if self.block == "bottleneck" else 2) + 2


@frozen
class SsdSpec:
    """The shape of a single-shot detector, for any image size; `ssd.levels` computes the levels for one.

    Each level after the backbone's halves the grid while it has more than five cells per side, then removes two cells
    while there are three: at 300 pixels 38, 19, 10, 5, 3, 1. Default boxes are shares of the image and grow with it.
    """

    extras: tuple[tuple[int, int], ...]
    """(1x1 channels, 3x3 channels) per level after the backbone, at the backbone's own width; the last repeats."""
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
