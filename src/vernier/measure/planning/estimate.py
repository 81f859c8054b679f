"""Estimates what a recipe costs on a device, from one measured training speed.

Time is assumed to be proportional to multiply-accumulates: right where the network is the limit, and not data, memory
or kernel launches. Evaluations, start-up and scaling losses are not included.
"""

from functools import cache

import torch
from torch import nn

from vernier.config import Model, Recipe, train_px
from vernier.frozen import frozen
from vernier.models import build, info
from vernier.models.cost import cost


@frozen
class Speed:
    """Training images per second of one device, for images of this many multiply-accumulates (in 1e9)."""

    images_per_s: float
    gmac: float


def build_on_meta(spec: Model, channels: int, px: int | None = None) -> nn.Module:
    """Build a network without memory, to count its parameters or operations; detectors for images of `px` pixels."""
    entry = info(spec.name)
    with torch.device("meta"):
        return build(
            spec.name,
            num_classes=spec.num_classes or entry.classes,
            in_channels=channels,
            stem=spec.stem,
            width=spec.width,
            blurpool=spec.blurpool,
            image_px=None if entry.ssd is None else px,
        )


def gmac(spec: Model, px: int, channels: int = 3) -> float:
    """Forward multiply-accumulates of one training image, in 1e9."""
    # Only these fields matter; without the others, recipes share results.
    shape = Model(
        name=spec.name, num_classes=spec.num_classes, stem=spec.stem, width=spec.width, blurpool=spec.blurpool
    )
    return _gmac(shape, px, channels)


@cache
def _gmac(shape: Model, px: int, channels: int) -> float:
    return cost(build_on_meta(shape, channels, px), (channels, px, px)).gmac


def device_hours(recipe: Recipe, train_images: int, speed: Speed) -> float:
    """Hours of one such device for the training steps of a recipe."""
    epochs, channels = recipe.schedule.epochs, len(recipe.data.mean)
    whole = max(1, round(epochs))
    sizes = [train_px(recipe.data, recipe.augment, epoch) for epoch in range(whole)]
    per_image = sum(gmac(recipe.model, px, channels) for px in sizes) / whole
    return epochs * train_images * per_image / (speed.images_per_s * speed.gmac) / 3600
