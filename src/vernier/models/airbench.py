"""The airbench network for CIFAR-10: convolutions with pools and no shortcuts, behind fixed whitening filters.

Jordan 2024, "94% on CIFAR-10 in 3.29 Seconds on a Single GPU", github.com/KellerJordan/cifar10-airbench, after Page
2018 and hlb-CIFAR10. The first convolution whitens patches of 2x2 pixels. Its filters come from the training images,
without their labels (`whitening_filters`), and stay as they are; `engine.starting_weights` sets them before the first
step.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional

from .architecture import PATCH_PX, Arch, Options, stage_channels, whitening_channels

_BN_EPS, _BN_MOMENTUM = 1e-12, 0.4
_LEAST_VARIANCE = 5e-4  # added to the variance of each direction, so that noise is not blown up


class PooledBlock(nn.Module):
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

    def __init__(self, arch: Arch, options: Options) -> None:
        super().__init__()
        self.arch, self.options = arch, options
        channels = whitening_channels(options.in_channels)
        self.conv1 = nn.Conv2d(options.in_channels, channels, PATCH_PX)
        self.conv1.weight.requires_grad_(False)
        for number, planes in enumerate(stage_channels(arch, options.width), start=1):
            self.add_module(f"layer{number}", nn.Sequential(PooledBlock(channels, planes)))
            channels = planes
        self.fc = nn.Linear(channels, options.num_classes, bias=False)
        # The published network has weights of deviation 1 and divides its outputs by the channels.
        nn.init.uniform_(self.fc.weight, -(3**0.5) / channels, 3**0.5 / channels)

    def forward(self, x: Tensor) -> Tensor:
        x = functional.gelu(self.conv1(x))
        for number in range(1, len(self.arch.blocks) + 1):
            x = self.get_submodule(f"layer{number}")(x)
        logits: Tensor = self.fc(torch.flatten(functional.adaptive_max_pool2d(x, 1), 1))
        return logits


def whitening_filters(images: Tensor) -> Tensor:
    """Filters [2 x patch values, channels, 2, 2] whose outputs have no correlation and equal variance on these images.

    `images` [N, channels, H, W] are normalised. Each principal direction of their patches is there with both signs, so
    that GELU loses nothing.
    """
    channels = images.shape[1]
    patches = functional.unfold(images.double(), PATCH_PX).transpose(1, 2).reshape(-1, channels * PATCH_PX**2)
    variances, directions = torch.linalg.eigh(patches.T @ patches / len(patches))
    filters = (directions / torch.sqrt(variances + _LEAST_VARIANCE)).T.reshape(-1, channels, PATCH_PX, PATCH_PX)
    return torch.cat((filters, -filters)).float()
