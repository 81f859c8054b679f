"""Models as users write them: they know nothing of Vernier."""

from typing import Any

import torch
from torch import Tensor, nn


class Block(nn.Module):
    """A residual block whose batch norm is registered after a convolution that it does not follow."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(width, width, 3, padding=1)
        self.norm = nn.BatchNorm2d(width)
        self.drop = nn.Dropout(0.2)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.drop(self.conv(self.norm(x).relu()))


class Net(nn.Module):
    """A small net of mine."""

    def __init__(self, num_classes: int, width: int = 8) -> None:
        super().__init__()
        self.model = nn.Sequential(nn.Conv2d(3, width, 3, stride=2), nn.Sequential(Block(width), Block(width)))
        self.position = nn.Parameter(torch.zeros(1, width, 1, 1))
        self.head = nn.Linear(width, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.head((self.model(x) + self.position).mean((2, 3)))


class WithoutLayers(nn.Module):
    def __init__(self, num_classes: int = 10) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(3, num_classes))

    def forward(self, x: Tensor) -> Tensor:
        return x.mean((2, 3)) @ self.weight


class LooksAtValues(Net):
    def forward(self, x: Tensor) -> Tensor:
        scores = super().forward(x)
        return scores if scores.isfinite().all().item() else scores.zero_()


class ForDigits(nn.Module):
    """For images of 32 pixels and no others."""

    def __init__(self, num_classes: int = 10) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Flatten(), nn.Linear(3 * 32 * 32, num_classes))

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x)


class MapsOfFeatures(Net):
    def forward(self, x: Tensor) -> Tensor:
        return self.model(x)


class Broken(Net):
    def forward(self, x: Tensor) -> Tensor:
        return self.head(x)


def ten_classes() -> nn.Module:
    return nn.Sequential(nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(48, 10))


def needs(depth: int, num_classes: int) -> Any:
    return depth, num_classes


three = 3
