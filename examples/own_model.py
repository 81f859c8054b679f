"""Your own ConvNeXt, with a lower learning rate the closer a layer is to the image.

python examples/own_model.py            # from Python, or the same by the command:
vernier train --model "examples/own_model.py:ConvNeXt(width=24)" --set optim.layer_decay=0.8 --data shapes
"""

import sys

import torch
from torch import Tensor, nn

import vernier as v
from vernier.models.contract import Layout


class Block(nn.Module):
    """Depthwise convolution, norm, and a multilayer perceptron per pixel (Liu et al. 2022)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.spatial = nn.Conv2d(width, width, 7, padding=3, groups=width)
        self.norm = nn.GroupNorm(1, width)
        self.mlp = nn.Sequential(nn.Conv2d(width, 4 * width, 1), nn.GELU(), nn.Conv2d(4 * width, width, 1))
        self.scale = nn.Parameter(torch.full((width, 1, 1), 1e-2))

    def forward(self, x: Tensor) -> Tensor:
        return x + self.scale * self.mlp(self.norm(self.spatial(x)))


class ConvNeXt(nn.Module):
    """A small ConvNeXt: a stem and two stages of two blocks."""

    def __init__(self, num_classes: int, width: int = 16) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, width, 4, stride=4)
        self.one = nn.Sequential(Block(width), Block(width))
        self.down = nn.Conv2d(width, 2 * width, 2, stride=2)
        self.two = nn.Sequential(Block(2 * width), Block(2 * width))
        self.head = nn.Linear(2 * width, num_classes)
        # Optional. Without it, every layer and block counts as a part, in the order of registration.
        self.layout = Layout(stem=("stem",), stages=(("one",), ("two", "down")), blocks=(2, 2), classifier="head")

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.two(self.down(self.one(self.stem(x)))).mean((2, 3)))


if __name__ == "__main__":
    run = v.train(
        model=f"{__file__}:ConvNeXt(width=24)",
        data=sys.argv[1] if len(sys.argv) > 1 else "shapes",
        epochs=1,
        settings={"optim.layer_decay": 0.8, "ema.decay": 0.99},
    )
    print(run.summary.result)
