"""SSD, the single-shot detector: a residual backbone, coarser levels after it, and two convolutions per level.

Owns the network and its default boxes (anchors); the levels for an image size are in `architecture`. Matching, loss
and suppression are in `tasks.detection`. Names and head channels are those of MLPerf's and NVIDIA's networks (`loc`,
`conf`; a head's channel is coordinate or class first, default box second), except `backbone.`, below which are our
ResNet's names, and `extras`, which they call `additional_blocks`.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from vernier.errors import ConfigError

from .architecture import Arch, Level, Options, SsdSpec, extra_channels, levels, pyramid_channels
from .resnet import Trunk, initialise


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
        if spec.pyramid:
            self.pyramid = Pyramid(self.backbone.out_channels, pyramid_channels(arch, spec, options.width), options)
            channels = [self.pyramid.channels] * 2
        for index, level in enumerate(self.levels[len(channels) :]):
            hidden, out = extra_channels(arch, spec, options.width, index)
            extras.append(_extra(channels[-1], hidden, out, level, spec.extra_norm, options))
            channels.append(out)
        heads = [(c, len(level.shapes)) for c, level in zip(channels, self.levels, strict=True)]
        self.extras = nn.ModuleList(extras)
        self.loc = nn.ModuleList(nn.Conv2d(c, 4 * n, 3, padding=1) for c, n in heads)
        self.conf = nn.ModuleList(nn.Conv2d(c, self.num_classes * n, 3, padding=1) for c, n in heads)
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
        features = self.pyramid(*self.backbone.last_two(images)) if self.spec.pyramid else [self.backbone(images)]
        for extra in self.extras:
            features.append(extra(features[-1]))
        return self._heads(self.loc, features, 4), self._heads(self.conf, features, self.num_classes)

    @staticmethod
    def _heads(heads: nn.ModuleList, features: list[Tensor], values: int) -> Tensor:
        outputs = [head(x).reshape(x.shape[0], values, -1) for head, x in zip(heads, features, strict=True)]
        return torch.cat(outputs, dim=2).transpose(1, 2)


class Pyramid(nn.Module):
    """The last two stages of a backbone as maps of the same number of channels, the finer with the coarser added."""

    def __init__(self, in_channels: int, channels: int, options: Options) -> None:
        super().__init__()
        self.channels = channels
        self.lateral = nn.ModuleList(nn.Conv2d(inputs, channels, 1) for inputs in (in_channels // 2, in_channels))
        self.smooth = nn.ModuleList(
            nn.Sequential(
                nn.Conv2d(channels, channels, 3, padding=1, bias=False),
                nn.BatchNorm2d(channels, eps=options.bn_eps, momentum=options.bn_momentum),
                nn.ReLU(inplace=True),
            )
            for _ in range(2)
        )

    def forward(self, fine: Tensor, coarse: Tensor) -> list[Tensor]:
        coarse = self.lateral[1](coarse)
        fine = self.lateral[0](fine)
        fine = fine + functional.interpolate(coarse, size=fine.shape[2:], mode="nearest")
        return [self.smooth[0](fine), self.smooth[1](coarse)]


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
