"""ConvNeXt: depthwise convolutions and layer norms in the stages of a vision transformer (Liu et al. 2022, 2201.03545).

Parameters have torchvision's names (`features.1.0.block.0.weight`, `classifier.2.weight`), so its weights need no
translation; those of timm and of the authors are renamed.
"""

from itertools import accumulate

import torch
from torch import Tensor, nn
from torch.nn import functional

from vernier.config import Model

from .contract import Entry, Family, Layout, Naming, Options
from .drop_path import DropPath
from .recomputing import Recomputing

_BLOCKS, _WIDTH = (3, 3, 9, 3), 96
_EPS = 1e-6
_FIRST_SCALE = 1e-6  # of a branch: a new block is nearly the identity
_WEIGHT_STD = 0.02
# `features` is the stem, then blocks and downsampling in turn; `classifier` is a norm, a flattening and a linear layer.
_LAYOUT = Layout(
    stem=("features.0",),
    stages=(("features.1",), ("features.3", "features.2"), ("features.5", "features.4"), ("features.7", "features.6")),
    blocks=_BLOCKS,
    classifier="classifier.2",
)


class _ChannelNorm(nn.LayerNorm):
    """Layer norm over the channels of [N, C, H, W]."""

    def forward(self, input: Tensor) -> Tensor:
        x = functional.layer_norm(input.permute(0, 2, 3, 1), self.normalized_shape, self.weight, self.bias, self.eps)
        return x.permute(0, 3, 1, 2)


class _Permute(nn.Module):
    def __init__(self, *axes: int) -> None:
        super().__init__()
        self.axes = axes

    def forward(self, x: Tensor) -> Tensor:
        return x.permute(self.axes)


class _Block(Recomputing):
    """A 7x7 depthwise convolution, then two linear layers per pixel, the first four times as wide, and a shortcut."""

    def __init__(self, channels: int, drop_path: float) -> None:
        super().__init__()
        self.block = nn.Sequential(
            nn.Conv2d(channels, channels, 7, padding=3, groups=channels),
            _Permute(0, 2, 3, 1),
            nn.LayerNorm(channels, eps=_EPS),
            nn.Linear(channels, 4 * channels),
            nn.GELU(),
            nn.Linear(4 * channels, channels),
            _Permute(0, 3, 1, 2),
        )
        self.layer_scale = nn.Parameter(torch.full((channels, 1, 1), _FIRST_SCALE))
        self.drop_path = DropPath(drop_path)

    def forward(self, x: Tensor) -> Tensor:
        return self.in_part(self._sum, x)

    def _sum(self, x: Tensor) -> Tensor:
        branch: Tensor = self.drop_path(self.layer_scale * self.block(x))
        return branch + x


class ConvNext(Recomputing):
    """Images [N, in_channels, H, W] to logits [N, num_classes]. Images have at least 32 pixels per side."""

    def __init__(self, options: Options) -> None:
        super().__init__()
        self.options, self.layout = options, _LAYOUT
        channels = options.width or _WIDTH
        stem = nn.Sequential(nn.Conv2d(options.in_channels, channels, 4, stride=4), _ChannelNorm(channels, eps=_EPS))
        parts: list[nn.Module] = [stem]
        for count, end in zip(_BLOCKS, accumulate(_BLOCKS), strict=True):
            if end > count:
                parts.append(nn.Sequential(_ChannelNorm(channels, eps=_EPS), nn.Conv2d(channels, 2 * channels, 2, 2)))
                channels *= 2
            # Linear from 0 at the first block, as the authors have it.
            rates = (options.drop_path * number / (sum(_BLOCKS) - 1) for number in range(end - count, end))
            parts.append(nn.Sequential(*(_Block(channels, rate) for rate in rates)))
        self.features = nn.Sequential(*parts)
        self.classifier = nn.Sequential(
            _ChannelNorm(channels, eps=_EPS), nn.Flatten(1), nn.Linear(channels, options.num_classes)
        )
        for module in self.modules():
            if isinstance(module, nn.Conv2d | nn.Linear):
                nn.init.trunc_normal_(module.weight, std=_WEIGHT_STD)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)

    def forward(self, x: Tensor) -> Tensor:
        for number, part in enumerate(self.features):
            # Blocks decide for themselves.
            x = part(x) if number % 2 else self.in_part(part, x)
        logits: Tensor = self.classifier(functional.adaptive_avg_pool2d(x, 1))
        return logits


def _renames(blocks: str, downsampling: str, layers: str, *others: tuple[str, str]) -> tuple[tuple[str, str], ...]:
    """Rules from the names of blocks and downsampling in stage `{}`, and of the five layers of a block."""
    own = ("block.0", "block.2", "block.3", "block.5", "layer_scale")
    return (
        *((rf"^{blocks.format(stage)}(\d+)\.", rf"features.{2 * stage + 1}.\1.") for stage in range(4)),
        *((rf"^{downsampling.format(stage)}", f"features.{2 * stage}.") for stage in range(4)),
        *((rf"^(features\.\d+\.\d+)\.{old}\b", rf"\1.{new}") for old, new in zip(layers.split(), own, strict=True)),
        *others,
    )


_NAMINGS = (
    Naming(source="torchvision", marker=r"^features\.1\.0\.layer_scale$"),
    Naming(
        source="timm",
        marker=r"^stages\.0\.blocks\.0\.conv_dw\.weight$",
        renames=_renames(
            r"stages\.{}\.blocks\.",
            r"stages\.{}\.downsample\.",
            r"conv_dw norm mlp\.fc1 mlp\.fc2 gamma",
            (r"^stem\.", "features.0."),
            (r"^head\.norm\.", "classifier.0."),
            (r"^head\.fc\.", "classifier.2."),
        ),
    ),
    Naming(
        source="facebook",
        marker=r"^stages\.0\.0\.dwconv\.weight$",
        renames=_renames(
            r"stages\.{}\.",
            r"downsample_layers\.{}\.",
            "dwconv norm pwconv1 pwconv2 gamma",
            (r"^norm\.", "classifier.0."),
            (r"^head\.", "classifier.2."),
        ),
    ),
)


def _why_not_torchvision(spec: Model, channels: int) -> str:
    if spec.width in (None, _WIDTH) and channels == 3:
        return ""
    return f"torchvision's is {_WIDTH} wide and takes images of 3 channels"


FAMILY = Family(
    models=(
        Entry(
            name="convnext-tiny",
            family="convnext",
            summary="7x7 depthwise convolutions, layer norm and layer scale (Liu et al. 2022): 96/192/384/768 channels",
            input_px=224,
            classes=1000,
            width=_WIDTH,
            build=ConvNext,
        ),
    ),
    options=("width", "drop_path"),
    namings=_NAMINGS,
    why_not_torchvision=_why_not_torchvision,
)
