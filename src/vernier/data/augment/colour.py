"""Colour jitter of the SSD pipelines: brightness, contrast, saturation and hue of an RGB image, on uint8.

`mlperf` is torchvision's ColorJitter(0.125, 0.5, 0.5, 0.05): four changes in random order, with Pillow's operations.
Only the hue is exact here, where torchvision goes through 8-bit HSV. `tf` is TensorFlow's: brightness is added,
contrast is around each channel's own mean, saturation is HSV's, and the order is fixed. Both are functions of a row of
uniform numbers.
"""

import itertools

import numpy as np
import numpy.typing as npt
from PIL import Image as Pillow
from PIL import ImageEnhance

from vernier.data.decoding.decode import Image

from .crop_flip import Row

Planes = npt.NDArray[np.int16]  # [3, pixels]

DRAWS = 5
_LARGEST_CHANGES = BRIGHTNESS, CONTRAST, SATURATION, HUE = 0.125, 0.5, 0.5, 0.05
_ENHANCERS = (ImageEnhance.Brightness, ImageEnhance.Contrast, ImageEnhance.Color)
_FINE = 8  # steps per level, so that three roundings in a row do not show; 13 x 8 x 255 still fits into 16 bits
_ORDERS = tuple(itertools.permutations(range(4)))


def jitter_mlperf(image: Image, row: Row) -> None:
    """Change `image` in place. The first number of the row gives the order, the others the strengths."""
    changes = _draw_changes(row)
    for number in _ORDERS[int(row[0] * len(_ORDERS))]:
        if number < len(_ENHANCERS):
            enhancer = _ENHANCERS[number](Pillow.fromarray(image))
            image[...] = np.asarray(enhancer.enhance(1 + changes[number]))
        else:
            turn_hue(image, changes[number])


def _draw_changes(row: Row) -> list[float]:
    """The changes of brightness, contrast, saturation and hue."""
    return [(2 * float(u) - 1) * most for u, most in zip(row[1:], _LARGEST_CHANGES, strict=True)]


def jitter_tf(image: Image, row: Row) -> None:
    """Change `image` in place. The first number of the row is not used."""
    added, contrast, saturation, turn = _draw_changes(row)
    planes = _planes(image)
    levels = np.arange(256) + 255 * added
    for plane in planes:
        middle = plane.mean() + 255 * added
        table = np.clip((levels - middle) * (1 + contrast) + middle, 0, 255)
        fine = np.rint(_FINE * table).astype(np.int16)
        np.take(fine, plane, out=plane, mode="clip")  # clip: only then without a buffer
    _scale_saturation(planes, 1 + saturation)
    _turn(planes, turn)
    _put((planes + _FINE // 2) >> 3, image)


def turn_hue(image: Image, share: float) -> None:
    """Turn the hue of every pixel by a share of the full circle, -0.5 to 0.5, in place; exact but for rounding."""
    planes = _planes(image)
    _turn(planes, share)
    _put(planes, image)


def _planes(image: Image) -> Planes:
    return image.reshape(-1, 3).T.astype(np.int16, order="C")


def _put(planes: Planes, image: Image) -> None:
    pixels = image.reshape(-1, 3)
    for channel, plane in enumerate(planes):  # four times faster than all at once
        pixels[:, channel] = plane


def _top_and_spread(planes: Planes) -> tuple[Planes, Planes]:
    """The largest value of each pixel, and how far it is from the smallest."""
    red, green, blue = planes
    top = np.maximum(np.maximum(red, green), blue)
    return top, top - np.minimum(np.minimum(red, green), blue)


def _turn(planes: Planes, share: float) -> None:
    """Rotate the hue without a conversion to HSV: the largest and smallest value of a pixel stay, hue is hue x spread.

    In sixths of the circle times the spread d, channel n of (5, 3, 1) is top - clip(min(k, 4 d - k), 0, d) at
    k = hue + n d, modulo 6 d. All of it fits into 16 bits, which numpy vectorises well.
    """
    (red, green, blue), (top, spread) = planes, _top_and_spread(planes)
    by_red = top == red
    by_green = (top == green) & ~by_red
    hue = (green - blue) * by_red + (blue - red + 2 * spread) * by_green
    hue += (red - green + 4 * spread) * ~(by_red | by_green)
    hue += np.rint(spread * np.float32(6 * share)).astype(np.int16)
    circle = 6 * spread
    hue += circle * (hue < 0)
    hue -= circle * (hue >= circle)
    for plane, sixth in zip(planes, (5, 3, 1), strict=True):
        at = hue + sixth * spread
        at -= circle * (at >= circle)
        np.minimum(at, 4 * spread - at, out=at)
        np.maximum(at, 0, out=at)
        np.minimum(at, spread, out=at)
        np.subtract(top, at, out=plane)


def _scale_saturation(planes: Planes, factor: float) -> None:
    """Scale HSV's saturation: the largest channel stays, the others move away from it or towards it, not below zero."""
    top, spread = _top_and_spread(planes)
    scale = np.minimum(np.float32(factor), top / np.maximum(spread, 1).astype(np.float32))
    for plane in planes:
        plane[...] = top - np.rint((top - plane) * scale).astype(np.int16)
