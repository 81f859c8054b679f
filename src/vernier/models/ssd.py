"""SSD, the single-shot detector: a residual backbone, coarser levels after it, and two convolutions per level.

Owns the network, its levels for an image size, and their default boxes (anchors). Matching, loss and suppression are in
`tasks.detection`. Names and head channels are those of MLPerf's and NVIDIA's networks (`loc`,
`conf`; a head's channel is coordinate or class first, default box second), except `backbone.`, below which are our
ResNet's names, and `extras`, which they call `additional_blocks`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from vernier.errors import ConfigError
from vernier.frozen import frozen

from .architecture import Arch, Options, SsdSpec
from .resnet import Trunk, initialise

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
    halving_stages = len(arch.blocks) - (1 if arch.last_stride == 2 else 2)
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


def make_anchors(levels: Sequence[Level]) -> Tensor:
    """Compute the default boxes [A, 4]: centre x, centre y, width, height as shares of the image, clamped to 0..1.

    Ordered by level; within a level by shape, then row, then column, like the heads' channels.
    """
    boxes = []
    for level in levels:
        centres = (torch.arange(level.grid, dtype=torch.float64) + 0.5) / level.cells
        y, x = torch.meshgrid(centres, centres, indexing="ij")
        for width, height in level.shapes:
            boxes.append(torch.stack([x, y, torch.full_like(x, width), torch.full_like(x, height)], -1).flatten(0, 1))
    return torch.cat(boxes).clamp(0, 1).float()


class Ssd(nn.Module):
    """Images [N, in_channels, px, px] to offsets [N, A, 4] and logits [N, A, K]; class 0 is the background.

    Both are transposed views of [N, 4, A] and [N, K, A]. The default boxes are `make_anchors(model.levels)`.
    """

    def __init__(self, arch: Arch, spec: SsdSpec, options: Options, image_px: int) -> None:
        super().__init__()
        self.arch, self.spec, self.options, self.image_px = arch, spec, options, image_px
        self.levels = levels(arch, spec, image_px, options.stem)
        self.num_classes = options.num_classes
        self.backbone = Trunk(arch, options)
        initialise(self.backbone, options.init, zero_gamma=options.zero_gamma)
        channels, extras = [self.backbone.out_channels], []
        for index, level in enumerate(self.levels[1:]):
            hidden, out = self._extra_channels(index)
            extras.append(_extra(channels[-1], hidden, out, level, spec.extra_norm, options))
            channels.append(out)
        heads = [(c, len(level.shapes)) for c, level in zip(channels, self.levels, strict=True)]
        self.extras = nn.ModuleList(extras)
        self.loc = nn.ModuleList(nn.Conv2d(c, 4 * n, 3, padding=1) for c, n in heads)
        self.conf = nn.ModuleList(nn.Conv2d(c, self.num_classes * n, 3, padding=1) for c, n in heads)
        for part in (self.extras, self.loc, self.conf):
            for parameter in part.parameters():
                if parameter.dim() > 1:
                    nn.init.xavier_uniform_(parameter)

    def _extra_channels(self, index: int) -> tuple[int, int]:
        scale = (self.options.width or self.arch.width) / self.arch.width
        hidden, out = self.spec.extras[min(index, len(self.spec.extras) - 1)]
        return max(_MIN_CHANNELS, round(hidden * scale)), max(_MIN_CHANNELS, round(out * scale))

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        tracing = torch.jit.is_tracing()  # type: ignore[attr-defined, no-untyped-call]
        if not tracing and images.shape[2:] != (self.image_px, self.image_px):
            raise ConfigError(
                f"The detector was built for images of {self.image_px}x{self.image_px} pixels and got "
                f"{images.shape[2]}x{images.shape[3]}: set data.image_px and data.eval_px to the same value."
            )
        features = [self.backbone(images)]
        for extra in self.extras:
            features.append(extra(features[-1]))
        return self._heads(self.loc, features, 4), self._heads(self.conf, features, self.num_classes)

    @staticmethod
    def _heads(heads: nn.ModuleList, features: list[Tensor], values: int) -> Tensor:
        outputs = [head(x).reshape(x.shape[0], values, -1) for head, x in zip(heads, features, strict=True)]
        return torch.cat(outputs, dim=2).transpose(1, 2)


def _extra(in_channels: int, hidden: int, out: int, level: Level, norm: bool, options: Options) -> nn.Sequential:
    stride, padding = (2, 1) if level.halves else (1, 0)
    reduce = nn.Conv2d(in_channels, hidden, 1, bias=not norm)
    layers: list[nn.Module] = []
    for conv in (reduce, nn.Conv2d(hidden, out, 3, stride=stride, padding=padding, bias=not norm)):
        layers.append(conv)
        if norm:
            layers.append(nn.BatchNorm2d(conv.out_channels, eps=options.bn_eps, momentum=options.bn_momentum))
        layers.append(nn.ReLU(inplace=True))
    return nn.Sequential(*layers)
