"""SSD, the single-shot detector: a residual backbone, coarser levels after it, and two convolutions per level.

Owns the models, their levels for an image size, and their default boxes (anchors). Matching, loss and suppression are
in `tasks.detection`. Names and head channels are those of MLPerf's and NVIDIA's detectors (`loc`, `conf`; a head's
channel is coordinate or class first, default box second), except `backbone.`, below which are our ResNet's names, and
`extras`, which they call `additional_blocks`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional

from vernier.config import Model
from vernier.errors import ConfigError
from vernier.frozen import frozen

from .contract import Entry, Family, Naming, Options
from .resnet import RESIDUAL_OPTIONS, Arch, SameConv2d, Trunk, initialise, layout_of_arch

_LARGE_GRID = 5  # cells per side: a larger grid is halved for the next level, a smaller one loses its border
_MIN_CHANNELS = 8  # below, strided 1x1 convolutions crash in channels-last memory (torch 2.13, CPU)
_STEMS = {"imagenet": 4, "small": 1, "small-pool": 2}  # factor by which each reduces the resolution


@frozen
class _Spec:
    """The shape of a single-shot detector, for any image size; `_levels` computes the levels for one.

    Each level after the backbone's halves the grid while it has more than five cells per side, then removes two cells
    while there are three: at 300 pixels 38, 19, 10, 5, 3, 1. Default boxes are fractions of the image and grow with it.
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
class _Level:
    """One resolution of a detector, with its default boxes."""

    grid: int
    """Cells per side."""
    cells: float
    """The grid as a length: a cell is 1 / cells of the image. Fractional if the stride does not divide the image."""
    halves: bool
    """Made from the previous level with stride 2; otherwise by a 3x3 without padding. Unused for the first level."""
    size: float
    """Side of the default box, as a fraction of the image."""
    next_size: float
    ratios: tuple[int, ...]

    @property
    def shapes(self) -> list[tuple[float, float]]:
        """Widths and heights of the default boxes in a cell, in order: square, larger square, then every ratio."""
        between = math.sqrt(self.size * self.next_size)
        pairs = [(self.size * math.sqrt(r), self.size / math.sqrt(r)) for r in self.ratios]
        return [(self.size, self.size), (between, between)] + [box for w, h in pairs for box in ((w, h), (h, w))]


def _levels(arch: Arch, spec: _Spec, px: int, stem: str = "default") -> tuple[_Level, ...]:
    """Compute the levels for images of `px` pixels per side. Raises ConfigError if there is no room for two."""
    stem = arch.stem if stem == "default" else stem
    grid, stride = (px // 2 if stem == "small-pool" else math.ceil(px / _STEMS[stem])), _STEMS[stem]
    halving_stages = len(arch.blocks) - (1 if arch.last_stride == 2 else 2) - (1 if spec.pyramid else 0)
    for _ in range(halving_stages):
        grid, stride = math.ceil(grid / 2), stride * 2
    grids, cells, halves = [grid], [px / stride], [True]
    while grids[-1] >= 3 and len(grids) < spec.max_levels:
        halves.append(grids[-1] > _LARGE_GRID)
        stride *= 2
        grids.append(math.ceil(grids[-1] / 2) if halves[-1] else grids[-1] - 2)
        cells.append(px / stride if halves[-1] else float(grids[-1]))
    if len(grids) < 2:
        raise ConfigError(f"Images of {px} pixels are too small for this detector: use at least {2 * stride + 1}.")
    sizes = _sizes(spec, len(grids))
    return tuple(
        _Level(
            grid=grids[k],
            cells=cells[k],
            halves=halves[k],
            size=sizes[k],
            next_size=sizes[k + 1],
            ratios=spec.inner_ratios if 0 < k < len(grids) - 2 else spec.outer_ratios,
        )
        for k in range(len(grids))
    )


def _sizes(spec: _Spec, count: int) -> list[float]:
    """Sizes of all levels and one more, which the larger square of the last level needs."""
    first, second, last = spec.sizes
    step = (last - second) / max(1, count - 2)
    return [first] + [second + step * k for k in range(count)]


def _scaled(arch: Arch, width: int | None, *channels: int) -> list[int]:
    """Numbers of channels outside the backbone, scaled with its width."""
    return [max(_MIN_CHANNELS, round(count * (width or arch.width) / arch.width)) for count in channels]


def make_anchors(levels: Sequence[_Level]) -> Tensor:
    """Compute the default boxes [A, 4]: centre x, centre y, width, height as fractions of the image, clamped to 0..1.

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

    def __init__(self, arch: Arch, spec: _Spec, options: Options, image_px: int) -> None:
        super().__init__()
        self.spec, self.options, self.image_px = spec, options, image_px
        self.levels = _levels(arch, spec, image_px, options.stem)
        self.layout = replace(layout_of_arch(arch), classifier="conf", boxes=len(self.levels[0].shapes), detector=True)
        self.num_classes = options.num_classes
        self.backbone = Trunk(arch, options)
        initialise(self.backbone, options.init, zero_gamma=options.zero_gamma)
        channels, extras = [self.backbone.out_channels], []
        if spec.pyramid:
            channels = _scaled(arch, options.width, spec.pyramid) * 2
            self.pyramid = _Pyramid(self.backbone.out_channels, channels[0], options)
        for index, level in enumerate(self.levels[len(channels) :]):
            hidden, out = _scaled(arch, options.width, *spec.extras[min(index, len(spec.extras) - 1)])
            extras.append(_extra(channels[-1], hidden, out, level, spec.extra_norm, options))
            channels.append(out)
        heads = [(c, len(level.shapes)) for c, level in zip(channels, self.levels, strict=True)]
        self.extras = nn.ModuleList(extras)
        self.loc = nn.ModuleList(nn.Conv2d(c, 4 * n, 3, padding=1) for c, n in heads)
        self.conf = nn.ModuleList(nn.Conv2d(c, self.num_classes * n, 3, padding=1) for c, n in heads)
        # As in SSD's reference. The backbone is initialized like a classifier's.
        for part in (*([self.pyramid] if spec.pyramid else []), self.extras, self.loc, self.conf):
            for parameter in part.parameters():
                if parameter.dim() > 1:
                    nn.init.xavier_uniform_(parameter)

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        tracing = torch.jit.is_tracing()  # type: ignore[attr-defined, no-untyped-call]
        if not tracing and images.shape[2:] != (self.image_px, self.image_px):
            raise ConfigError(
                f"The detector was built for images of {self.image_px}x{self.image_px} pixels and got "
                f"{images.shape[2]}x{images.shape[3]}: set data.image_px and data.eval_px to the same value."
            )
        # The finest level first: default boxes are numbered in this order.
        features = self.pyramid(*self.backbone.last_two(images)) if self.spec.pyramid else [self.backbone(images)]
        for extra in self.extras:
            features.append(extra(features[-1]))
        return self._heads(self.loc, features, 4), self._heads(self.conf, features, self.num_classes)

    @staticmethod
    def _heads(heads: nn.ModuleList, features: list[Tensor], values: int) -> Tensor:
        outputs = [head(x).reshape(x.shape[0], values, -1) for head, x in zip(heads, features, strict=True)]
        return torch.cat(outputs, dim=2).transpose(1, 2)


class _Pyramid(nn.Module):
    """The last two stages of a backbone as maps of the same number of channels, the finer with the coarser added."""

    def __init__(self, in_channels: int, channels: int, options: Options) -> None:
        super().__init__()
        self.lateral = nn.ModuleList(nn.Conv2d(inputs, channels, 1) for inputs in (in_channels // 2, in_channels))
        self.smooth = nn.ModuleList(
            nn.Sequential(
                nn.Conv2d(channels, channels, 3, padding=1, bias=False),
                nn.BatchNorm2d(channels),
                nn.ReLU(inplace=True),
            )
            for _ in range(2)
        )

    def forward(self, fine: Tensor, coarse: Tensor) -> list[Tensor]:
        coarse = self.lateral[1](coarse)
        fine = self.lateral[0](fine)
        fine = fine + functional.interpolate(coarse, size=fine.shape[2:], mode="nearest")
        return [self.smooth[0](fine), self.smooth[1](coarse)]


def _extra(in_channels: int, hidden: int, out: int, level: _Level, norm: bool, options: Options) -> nn.Sequential:
    stride, padding = (2, 1) if level.halves else (1, 0)
    same = options.padding != "torch" and level.halves
    kind: type[nn.Conv2d] = SameConv2d if same else nn.Conv2d
    padding = 0 if same else padding
    reduce = nn.Conv2d(in_channels, hidden, 1, bias=not norm)
    layers: list[nn.Module] = []
    for conv in (reduce, kind(hidden, out, 3, stride=stride, padding=padding, bias=not norm)):
        layers.append(conv)
        if norm:
            layers.append(nn.BatchNorm2d(conv.out_channels))
        layers.append(nn.ReLU(inplace=True))
    return nn.Sequential(*layers)


# --------------------------------------------------------------------------------------------------------------- names

# MLPerf's backbone is Sequential(children[:6]) and Sequential(children[6:7]) of torchvision's ResNet-34; NVIDIA's
# Deep Learning Examples put the first seven in one. Stages come after the stem, hence the order of the rules.
_EXTRA_LEVELS = (r"^additional_blocks\.", "extras.")
_NAMINGS = (
    Naming(
        source="mlperf-ssd",
        marker=r"^layer1\.4\.0\.conv1\.weight$",
        renames=(
            (r"^layer2\.0\.", "backbone.layer3."),
            (r"^layer1\.5\.", "backbone.layer2."),
            (r"^layer1\.0\.", "backbone.conv1."),
            (r"^layer1\.1\.", "backbone.bn1."),
            (r"^layer1\.4\.", "backbone.layer1."),
            _EXTRA_LEVELS,
        ),
    ),
    Naming(
        source="nvidia-ssd",
        marker=r"^feature_extractor\.feature_extractor\.4\.0\.conv1\.weight$",
        renames=(
            (r"^feature_extractor\.feature_extractor\.", "backbone."),
            (r"^backbone\.0\.", "backbone.conv1."),
            (r"^backbone\.1\.", "backbone.bn1."),
            *((rf"^backbone\.{index + 3}\.", f"backbone.layer{index}.") for index in (1, 2, 3)),
            _EXTRA_LEVELS,
        ),
    ),
    Naming(source="vernier-ssd", marker=r"^backbone\.conv1\.weight$"),
)


# -------------------------------------------------------------------------------------------------------------- models


_EXTRAS = ((256, 512), (256, 512), (128, 256), (128, 256), (128, 256))
_MLPERF = _Spec(extras=_EXTRAS)
_NVIDIA = _Spec(extras=_EXTRAS, extra_norm=True)
_NVIDIA_18 = _Spec(extras=(*_EXTRAS[:4], (128, 128)), extra_norm=True)
_PYRAMID = _Spec(
    extras=((128, 128),), pyramid=128, extra_norm=True, sizes=(0.06, 0.15, 0.6), inner_ratios=(2,), max_levels=4
)
_SMALL = _Spec(extras=((32, 64),), extra_norm=True, sizes=(0.15, 0.24, 0.38), inner_ratios=(2,), max_levels=3)

_ABOUT_NVIDIA = "8732 default boxes, batch norm in the extra levels (NVIDIA's SSD300 v1.1)"
_ABOUT_V1 = "the same on a v1 backbone, for weights of that kind"
_ABOUT_PYRAMID = "four levels on a light feature pyramid, for fine-tuning on few photographs (Vernier's own)"
_ABOUT_SMALL = "three levels on a narrow backbone for the built-in shapes"
_B18, _B34 = Arch(block="basic", blocks=(2, 2, 2)), Arch(block="basic", blocks=(3, 4, 6))
_B50 = Arch(block="bottleneck", blocks=(3, 4, 6))
_B50_V1 = replace(_B50, stride_in="1x1")
_B_SMALL = Arch(block="basic", blocks=(1, 1, 1), width=16, last_stride=1)
# Name, image size, backbone, levels and summary.
_MODELS: tuple[tuple[str, int, Arch, _Spec, str], ...] = (
    ("ssd300-resnet34", 300, replace(_B34, last_stride=1), _MLPERF, "8732 default boxes (MLPerf, Google, Habana)"),
    ("ssd300-resnet18", 300, replace(_B18, last_stride=1), _NVIDIA_18, _ABOUT_NVIDIA),
    ("ssd300-resnet50", 300, replace(_B50, last_stride=1), _NVIDIA, _ABOUT_NVIDIA),
    ("ssd300-resnet50-v1", 300, replace(_B50_V1, last_stride=1), _NVIDIA, _ABOUT_V1),
    ("ssd-fpn-resnet18", 320, _B18, _PYRAMID, _ABOUT_PYRAMID),
    ("ssd-fpn-resnet34", 320, _B34, _PYRAMID, _ABOUT_PYRAMID),
    ("ssd-fpn-resnet50", 320, _B50, _PYRAMID, _ABOUT_PYRAMID),
    ("ssd-fpn-resnet50-v1", 320, _B50_V1, _PYRAMID, _ABOUT_V1),
    ("ssd-small", 128, _B_SMALL, _SMALL, _ABOUT_SMALL),
)


def _with_box_sizes(spec: _Spec, box_sizes: tuple[float, ...]) -> _Spec:
    """The levels with default boxes of other sizes, if there are any. Raises ConfigError for impossible ones."""
    if not box_sizes:
        return spec
    if len(box_sizes) != 3 or not 0 < box_sizes[0] < box_sizes[1] < box_sizes[2] <= 1:
        raise ConfigError(
            f"model.box_sizes is {list(box_sizes)}; it must be three rising fractions of the image, such as "
            "[0.07, 0.15, 0.87]."
        )
    return replace(spec, sizes=(box_sizes[0], box_sizes[1], box_sizes[2]))


def anchors_of(model: Model, px: int) -> Tensor:
    """Compute the default boxes of a recipe's detector for images of `px` pixels per side, as `make_anchors` does."""
    row = next((row for row in _MODELS if row[0] == model.name), None)
    if row is None:
        raise ConfigError(f"{model.name} is no detector. `vernier models` lists detectors under the family ssd.")
    return make_anchors(_levels(row[2], _with_box_sizes(row[3], model.box_sizes), px, model.stem))


def _build(arch: Arch, spec: _Spec, px: int, options: Options) -> Ssd:
    return Ssd(arch, _with_box_sizes(spec, options.box_sizes), options, options.image_px or px)


FAMILY = Family(
    models=tuple(
        Entry(
            name=name,
            family="ssd",
            summary=summary,
            input_px=px,
            classes=11 if spec is _SMALL else 81,  # of the built-in shapes; of COCO
            width=arch.width,
            stem=arch.stem,
            build=partial(_build, arch, spec, px),
        )
        for name, px, arch, spec, summary in _MODELS
    ),
    options=(*RESIDUAL_OPTIONS, "image_px", "box_sizes"),
    namings=_NAMINGS,
    why_not_torchvision=lambda spec, channels: "it is a detector",
)
