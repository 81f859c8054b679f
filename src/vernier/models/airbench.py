"""The airbench model for CIFAR-10: convolutions with pools and no shortcuts, behind fixed whitening filters.

Jordan 2024, "94% on CIFAR-10 in 3.29 Seconds on a Single GPU", github.com/KellerJordan/cifar10-airbench, after Page
2018 and hlb-CIFAR10. The first convolution whitens patches of 2x2 pixels. Its filters come from the training images,
without their labels (`_whitening_filters`), and stay as they are; `prepare` sets them before the first step.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional

from .contract import Entry, Family, Layout, Options

_PATCH_PX = 2
"""Side of the patches that the stem whitens."""
_WIDTH = 64
_MULTIPLES = (1, 4, 4)
"""Channels of each stage, as multiples of the width."""
_BN_EPS, _BN_MOMENTUM = 1e-12, 0.4
_LEAST_VARIANCE = 5e-4  # added to the variance of each direction, so that noise is not blown up


class _PooledBlock(nn.Module):
    """A 3x3 convolution with a 2x2 max pool behind it and another one, each with batch norm and GELU; no shortcut.

    Batch norms have no scale: it would only rescale the next convolution's input. The parameter is there, with ones in
    it, so that every tool that knows batch norm knows this one.
    """

    def __init__(self, in_channels: int, channels: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(in_channels, channels, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels, eps=_BN_EPS, momentum=_BN_MOMENTUM)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels, eps=_BN_EPS, momentum=_BN_MOMENTUM)
        for norm in (self.bn1, self.bn2):
            norm.weight.requires_grad_(False)
        for conv in (self.conv1, self.conv2):
            nn.init.dirac_(conv.weight[: conv.in_channels].detach())  # these channels pass through at first

    def forward(self, x: Tensor) -> Tensor:
        out = functional.gelu(self.bn1(functional.max_pool2d(self.conv1(x), 2)))
        return functional.gelu(self.bn2(self.conv2(out)))


class AirbenchNet(nn.Module):
    """Images [N, in_channels, H, W] to logits [N, num_classes]. Images have at least 10 pixels per side."""

    preparation_images = 1024

    def __init__(self, options: Options) -> None:
        super().__init__()
        self.options = options
        self.layout = Layout(
            stem=("conv1",), stages=(("layer1",), ("layer2",), ("layer3",)), blocks=(1, 1, 1), classifier="fc"
        )
        channels = 2 * options.in_channels * _PATCH_PX**2  # both signs of each direction of a patch
        self.conv1 = nn.Conv2d(options.in_channels, channels, _PATCH_PX)
        self.conv1.weight.requires_grad_(False)
        for number, multiple in enumerate(_MULTIPLES, start=1):
            planes = (options.width or _WIDTH) * multiple
            self.add_module(f"layer{number}", nn.Sequential(_PooledBlock(channels, planes)))
            channels = planes
        self.fc = nn.Linear(channels, options.num_classes, bias=False)
        # The published model has weights of deviation 1 and divides its outputs by the channels.
        nn.init.uniform_(self.fc.weight, -(3**0.5) / channels, 3**0.5 / channels)

    def forward(self, x: Tensor) -> Tensor:
        x = functional.gelu(self.conv1(x))
        for number in range(1, len(_MULTIPLES) + 1):
            x = self.get_submodule(f"layer{number}")(x)
        logits: Tensor = self.fc(torch.flatten(functional.adaptive_max_pool2d(x, 1), 1))
        return logits

    def prepare(self, images: Tensor) -> str:
        """Set the filters of the stem from normalized training images; a note about it."""
        with torch.no_grad():
            self.conv1.weight.copy_(_whitening_filters(images))
        patch = f"{_PATCH_PX} x {_PATCH_PX}"
        return f"conv1 whitens patches of {patch} pixels, learned from {len(images):,} training images without labels"


def _whitening_filters(images: Tensor) -> Tensor:
    """Filters [2 x patch values, channels, 2, 2] whose outputs have no correlation and equal variance on these images.

    `images` [N, channels, H, W] are normalized. Each principal direction of their patches is there with both signs, so
    that GELU loses nothing.
    """
    channels = images.shape[1]
    patches = functional.unfold(images.double(), _PATCH_PX).transpose(1, 2).reshape(-1, channels * _PATCH_PX**2)
    variances, directions = torch.linalg.eigh(patches.T @ patches / len(patches))
    filters = (directions / torch.sqrt(variances + _LEAST_VARIANCE)).T.reshape(-1, channels, _PATCH_PX, _PATCH_PX)
    return torch.cat((filters, -filters)).float()


FAMILY = Family(
    models=(
        Entry(
            name="airbench94",
            family="airbench",
            summary="eight plain layers behind a whitening one (Jordan 2024, airbench94): 64/256/256 channels",
            input_px=32,
            classes=10,
            width=_WIDTH,
            stem="whitening",
            build=AirbenchNet,
        ),
    ),
    options=("width",),
)
