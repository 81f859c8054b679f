"""Estimates what a recipe costs on a device, from one measured training speed.

Time is assumed to be proportional to multiply-accumulates: right where the network is the limit, and not data, memory
or kernel launches. Evaluations, start-up and scaling losses are not included.
"""

from vernier.config import Model, Recipe, train_px
from vernier.frozen import frozen
from vernier.models.cost import cost_of


@frozen
class Speed:
    """Training images per second of one device, for images of this many multiply-accumulates (in 1e9)."""

    images_per_s: float
    gmac: float


def gmac(spec: Model, px: int, channels: int = 3) -> float:
    """Forward multiply-accumulates of one training image, in 1e9."""
    return cost_of(spec, px=px, channels=channels).gmac


def device_hours(recipe: Recipe, train_images: int, speed: Speed) -> float:
    """Hours of one such device for the training steps of a recipe."""
    epochs, channels = recipe.schedule.epochs, len(recipe.data.mean)
    whole = max(1, round(epochs))
    sizes = [train_px(recipe.data, recipe.augment, epoch) for epoch in range(whole)]
    per_image = sum(gmac(recipe.model, px, channels) for px in sizes) / whole
    return epochs * train_images * per_image / (speed.images_per_s * speed.gmac) / 3600
