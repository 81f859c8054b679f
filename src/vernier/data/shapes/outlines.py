"""The outlines of the ten shapes, which are the classes of the built-in set.

An outline maps coordinates (u, v) to a signed distance, negative inside, in the shape's own frame, where it fills the
unit circle. Where shapes lie in an image is up to `layout`.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

F32 = NDArray[np.floating[Any]]  # always float32; numpy's types cannot express that for `array * 0.5`
Outline = Callable[[F32, F32], F32]


def _arrow(u: F32, v: F32) -> F32:
    side = np.abs(v)
    head = np.maximum((side * 0.95 + (u - 1.0) * 0.78) / math.hypot(0.95, 0.78), 0.05 - u)
    shaft = _box(u + 0.40, side, 0.55, 0.25)
    distance: F32 = np.minimum(head, shaft)
    return distance


def _crescent(u: F32, v: F32) -> F32:
    bite = 0.80 - np.hypot(u - 0.50, v)
    distance: F32 = np.maximum(np.hypot(u, v) - 0.95, bite)
    return distance


def _drop(u: F32, v: F32) -> F32:
    radius, length = 0.55, 1.40  # of the round end, and from its middle to the tip, where two tangents meet
    u, side = u + 0.42, np.abs(v)
    slope = radius / length
    flank = math.sqrt(1.0 - slope * slope)
    return np.where(u * flank < side * slope, np.hypot(u, side) - radius, u * slope + side * flank - radius)


def _heart(u: F32, v: F32) -> F32:
    u, side = u - 0.40, np.abs(v) - 0.43  # from the middle of a lobe; the heart's tip is at (-1.28, -0.43)
    flank = side * 0.7732 - u * 0.6342 - 0.48  # tangent to the lobe through the tip
    notch = np.hypot(u - 0.213, side + 0.43)
    below_lobe = np.maximum(side * 0.6342 + u * 0.7732, side * 0.444 + u * 0.896) < 0.0
    return np.where(below_lobe, np.maximum(flank, -notch), np.hypot(u, side) - 0.48)


def _star(u: F32, v: F32) -> F32:
    sector = 2.0 * math.pi / 5.0
    angle = np.arctan2(v, u)
    angle = np.abs(angle - sector * np.round(angle / sector))  # fold every arm onto one half-arm
    reach = np.hypot(u, v)
    inner_u, inner_v = 0.44 * math.cos(sector / 2.0), 0.44 * math.sin(sector / 2.0)
    edge = math.hypot(1.0 - inner_u, inner_v)
    return ((reach * np.cos(angle) - 1.0) * inner_v + reach * np.sin(angle) * (1.0 - inner_u)) / edge


def _box(u: F32, v: F32, half_u: float, half_v: float) -> F32:
    return np.maximum(np.abs(u) - half_u, np.abs(v) - half_v)


OUTLINES: dict[str, Outline] = {
    "arrow": _arrow,
    "crescent": _crescent,
    "cross": lambda u, v: np.minimum(_box(u, v, 0.95, 0.30), _box(u, v, 0.30, 0.95)),
    "disc": lambda u, v: np.hypot(u, v) - 0.82,
    "drop": _drop,
    "heart": _heart,
    "ring": lambda u, v: np.abs(np.hypot(u, v) - 0.68) - 0.22,
    "square": lambda u, v: _box(u, v, 0.70, 0.70),
    "star": _star,
    "triangle": lambda u, v: np.maximum(np.abs(v) * math.sqrt(0.75) + u * 0.5, -u) - 0.48,
}
CLASSES: tuple[str, ...] = tuple(OUTLINES)  # alphabetical, as an image folder sorts them
