"""Decides where objects and clutter lie in an image of the built-in set, so that enough of every object is visible.

Nothing is painted before that is certain. Colours and light are up to `paint`, the shapes' outlines to `outlines`.
"""

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from .outlines import CLASSES, F32, OUTLINES, Outline
from .spec import ShapesSpec


def clip_unit(values: F32) -> F32:
    """Clip to the range 0 to 1, in place."""
    np.maximum(values, 0.0, out=values)
    return np.minimum(values, 1.0, out=values)


class Random:
    """The random numbers of one image.

    Scalars come from `random()`, because numpy's `uniform` and `integers` are ten times slower.
    """

    def __init__(self, seed: int, split: int, index: int) -> None:
        self.generator = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(split, index)))
        self._random = self.generator.random

    def uniform(self, low: float, high: float) -> float:
        return low + (high - low) * self._random()

    def integer(self, low: int, end: int) -> int:
        return low + int((end - low) * self._random())

    def angle(self) -> float:
        return 2.0 * math.pi * self._random()


@dataclass(frozen=True)
class Body:
    """A flat body: its signed distance in pixels on a window that may reach out of the image."""

    top: int
    left: int
    distance: F32
    u: F32  # coordinates of the body's own frame, which carries its texture
    v: F32
    half_width_px: float  # about the distance from its middle to its edge

    def coverage(self, softness_px: float = 1.0) -> F32:
        return clip_unit(0.5 - self.distance * (1.0 / softness_px))


@dataclass(frozen=True)
class Layout:
    """The bodies of an image, in the order in which they are painted."""

    objects: list[Body]
    classes: list[int]
    occluders: list[Body]
    visible: list[NDArray[np.bool_]]  # one mask of the whole image per object


def _draw_outline(
    outline: Outline, size: int, x: float, y: float, radius: float, angle: float, squeeze: float, slim: float = 1.0
) -> Body:
    """An outline in an image of `size` pixels: scaled to `radius` pixels, rotated, and squeezed across its own axis.

    `slim` is its width before that, relative to its length: it only makes the window smaller.
    """
    cos, sin, slim = math.cos(angle), math.sin(angle), slim * squeeze
    left, right = _window(x, size, radius * min(1.0, abs(cos) + abs(sin) * slim))
    top, bottom = _window(y, size, radius * min(1.0, abs(sin) + abs(cos) * slim))
    across = (np.arange(left, right, dtype=np.float32) + (0.5 - x))[None, :]
    down = (np.arange(top, bottom, dtype=np.float32) + (0.5 - y))[:, None]
    u = across * (cos / radius) + down * (sin / radius)
    v = down * (cos / radius / squeeze) - across * (sin / radius / squeeze)
    return Body(top, left, outline(u, v) * (radius * math.sqrt(squeeze)), u, v, radius)


def _window(middle: float, size: int, reach: float) -> tuple[int, int]:
    """First and end pixel, up to a margin beyond the image from which a body can still cast a shadow into it."""
    reach, margin = reach * 1.05 + 3.0, size / 8.0 + 3.0
    first = math.floor(max(middle - reach, -margin))
    return first, max(math.ceil(min(middle + reach, size + margin)), first + 3)


def make_bar(rng: Random, x: float, y: float, size: int) -> Body:
    """A thin rod with round ends."""
    radius, thickness = rng.uniform(0.2, 0.45) * size, rng.uniform(0.012, 0.022) * size
    half = thickness / radius

    def rod(u: F32, v: F32) -> F32:
        return np.hypot(np.maximum(np.abs(u) - (1.0 - half), 0.0), v) - half

    return replace(_draw_outline(rod, size, x, y, radius, rng.angle(), 1.0, half), half_width_px=2.0 * thickness)


def make_pebble(rng: Random, x: float, y: float, size: int) -> Body:
    """A small irregular oval."""

    def oval(u: F32, v: F32) -> F32:
        square_u, square_v = u * u, v * v
        reach = np.sqrt(square_u + square_v) + 1e-6
        cos_thrice = u * (square_u - 3.0 * square_v) / (reach * reach * reach)
        return reach - 0.85 - 0.1 * cos_thrice

    return _draw_outline(oval, size, x, y, rng.uniform(0.05, 0.10) * size, rng.angle(), rng.uniform(0.4, 0.6))


def _scatter(rng: Random, spec: ShapesSpec, count: int) -> list[tuple[float, float, float]] | None:
    """Centres and radii (x, y, radius in pixels) of objects that overlap only a little; None if there is no room."""
    low, high = (0.30, 0.42) if spec.kind == "classify" else (0.10, 0.21)
    circles: list[tuple[float, float, float]] = []
    for _ in range(count * 12):
        radius = rng.uniform(low, high) * spec.size_px
        x, y = (rng.uniform(0.9 * radius, spec.size_px - 0.9 * radius) for _ in range(2))
        if all(math.hypot(x - ox, y - oy) > 0.75 * (radius + other) for ox, oy, other in circles):
            circles.append((x, y, radius))
        if len(circles) == count:
            return circles
    return None


def lay_out(rng: Random, spec: ShapesSpec, label: int) -> Layout:
    """Draw layouts until enough of every object is visible, which is usually the first."""
    detect = spec.kind == "detect"
    while True:
        circles = _scatter(rng, spec, rng.integer(1, 6) if detect else 1)
        if circles is None:
            continue
        classes = [label, *(rng.integer(0, len(CLASSES)) for _ in circles[1:])]
        objects = [
            _draw_outline(OUTLINES[CLASSES[c]], spec.size_px, x, y, radius, rng.angle(), rng.uniform(0.85, 1.0))
            for c, (x, y, radius) in zip(classes, circles, strict=True)
        ]
        occluders = [_make_occluder(rng, circles, spec.size_px) for _ in range(rng.integer(0, 3))]
        layout = Layout(objects, classes, occluders, _visible_masks(objects, occluders, spec.size_px))
        if _is_visible(layout, 0.60 if detect else 0.75):
            return layout


def _make_occluder(rng: Random, circles: list[tuple[float, float, float]], size: int) -> Body:
    """A bar or a pebble on one of the objects, or just beside it."""
    make_body = make_bar if rng.uniform(0.0, 1.0) < 0.6 else make_pebble
    x, y, radius = circles[rng.integer(0, len(circles))]
    angle, offset = rng.angle(), rng.uniform(0.2, 1.1) * radius
    return make_body(rng, x + offset * math.cos(angle), y + offset * math.sin(angle), size)


def _visible_masks(objects: list[Body], occluders: list[Body], size: int) -> list[NDArray[np.bool_]]:
    """The visible pixels of each object: later bodies hide earlier ones."""
    hidden = np.zeros((size, size), dtype=np.bool_)
    masks = []
    for body in reversed([*objects, *occluders]):
        mask = np.zeros_like(hidden)
        inside, window = overlap(size, body.top, body.left, body.distance.shape)
        mask[inside] = body.distance[window] <= 0.0
        masks.append(mask & ~hidden)
        hidden |= mask
    return masks[: -len(objects) - 1 : -1]


def _is_visible(layout: Layout, min_share: float) -> bool:
    """Whether at least `min_share` of every object's pixels is visible."""
    return all(
        np.count_nonzero(mask) >= min_share * np.count_nonzero(body.distance <= 0.0)
        for mask, body in zip(layout.visible, layout.objects, strict=True)
    )


def overlap(size: int, top: int, left: int, shape: tuple[int, ...]) -> tuple[tuple[slice, slice], tuple[slice, slice]]:
    """The part of a window that is inside the image: as a slice of the image, and as a slice of the window."""
    y0, x0 = max(top, 0), max(left, 0)
    y1, x1 = max(min(top + shape[0], size), y0), max(min(left + shape[1], size), x0)
    return (slice(y0, y1), slice(x0, x1)), (slice(y0 - top, y1 - top), slice(x0 - left, x1 - left))
