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


def mean_gmac(recipe: Recipe) -> float:
    """Forward multiply-accumulates of a training image of a recipe, in 1e9, on average over its image sizes."""
    whole, channels = max(1, round(recipe.schedule.epochs)), len(recipe.data.mean)
    sizes = [train_px(recipe.data, recipe.augment, epoch) for epoch in range(whole)]
    return sum(gmac(recipe.model, px, channels) for px in sizes) / whole


def device_hours(recipe: Recipe, train_images: int, speed: Speed) -> float:
    """Hours of one such device for the training steps of a recipe."""
    operations = recipe.schedule.epochs * train_images * mean_gmac(recipe)
    return operations / (speed.images_per_s * speed.gmac) / 3600
