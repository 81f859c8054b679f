"""What a recipe would cost on a device of which one training speed is known. An estimate, and called so everywhere.

Speed is taken to go with multiply-accumulates: right where the network, and not data, memory or launches, is the limit.
Evaluations, start-up and scaling losses are not in it.
"""

from dataclasses import dataclass
from functools import cache

from vernier.config import Model, Recipe, train_px
from vernier.models import build, info


@dataclass(frozen=True, kw_only=True)
class Speed:
    """Training images a second of one device, for images of this many multiply-accumulates."""

    images_per_s: float
    gmac: float


def gmac(spec: Model, px: int, channels: int = 3) -> float:
    """Forward multiply-accumulates of one training image, in 1e9."""
    classes = spec.num_classes or info(spec.name).classes
    return _gmac(spec.name, spec.stem, spec.width, spec.blurpool, classes, channels, px)


@cache
def _gmac(name: str, stem: str, width: int | None, blurpool: bool, classes: int, channels: int, px: int) -> float:
    import torch

    from vernier.models.cost import cost

    with torch.device("meta"):
        network = build(
            name, num_classes=classes, in_channels=channels, stem=stem, width=width, blurpool=blurpool,
            image_px=None if info(name).ssd is None else px,
        )  # fmt: skip
    return cost(network, (channels, px, px)).gmac


def device_hours(recipe: Recipe, train_images: int, speed: Speed) -> float:
    """Hours of one such device for the training steps of a recipe."""
    epochs, channels = recipe.schedule.epochs, len(recipe.data.mean)
    whole = max(1, round(epochs))
    sizes = [train_px(recipe.data, recipe.augment, epoch) for epoch in range(whole)]
    per_image = sum(gmac(recipe.model, px, channels) for px in sizes) / whole
    return epochs * train_images * per_image / (speed.images_per_s * speed.gmac) / 3600
