"""Draws an image of the built-in set: where objects and clutter lie, then light, texture, shadow and noise.

Nothing is painted before enough of every object is certain to be visible. `render` draws one image; the shapes'
outlines are in `outlines`, and writing files is up to `files`.
"""

import functools
import itertools
import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from vernier.frozen import frozen

from .outlines import CLASSES, F32, OUTLINES, Outline
from .spec import SPLITS, ShapesSpec


def _clip_unit(values: F32) -> F32:
    """Clip to the range 0 to 1, in place."""
    np.maximum(values, 0.0, out=values)
    return np.minimum(values, 1.0, out=values)


class _Random:
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
class _Body:
    """A flat body: its signed distance in pixels on a window that may reach out of the image."""

    top: int
    left: int
    distance: F32
    u: F32  # coordinates of the body's own frame, which carries its texture
    v: F32
    half_width_px: float  # about the distance from its middle to its edge

    def coverage(self, softness_px: float = 1.0) -> F32:
        return _clip_unit(0.5 - self.distance * (1.0 / softness_px))


@dataclass(frozen=True)
class _Layout:
    """The bodies of an image, in the order in which they are painted."""

    objects: list[_Body]
    classes: list[int]
    occluders: list[_Body]
    visible: list[NDArray[np.bool_]]  # one mask of the whole image per object


def _draw_outline(
    outline: Outline, size: int, x: float, y: float, radius: float, angle: float, squeeze: float, slim: float = 1.0
) -> _Body:
    """An outline in an image of `size` pixels: scaled to `radius` pixels, rotated, and squeezed across its own axis.

    `slim` is its width before that, relative to its length: it only makes the window smaller.
    """
    cos, sin, slim = math.cos(angle), math.sin(angle), slim * squeeze
    left, right = _window(x, size, radius * min(1.0, abs(cos) + abs(sin) * slim))
    top, bottom = _window(y, size, radius * min(1.0, abs(sin) + abs(cos) * slim))
    # 0.5: coordinates are those of the middle of a pixel.
    across = (np.arange(left, right, dtype=np.float32) + (0.5 - x))[None, :]
    down = (np.arange(top, bottom, dtype=np.float32) + (0.5 - y))[:, None]
    u = across * (cos / radius) + down * (sin / radius)
    v = down * (cos / radius / squeeze) - across * (sin / radius / squeeze)
    # One unit of u is `radius` pixels, one of v `radius * squeeze`: distances are scaled by their geometric mean.
    return _Body(top, left, outline(u, v) * (radius * math.sqrt(squeeze)), u, v, radius)


def _window(middle: float, size: int, reach: float) -> tuple[int, int]:
    """First and end pixel, up to a margin beyond the image from which a body can still cast a shadow into it."""
    reach, margin = reach * 1.05 + 3.0, size / 8.0 + 3.0
    first = math.floor(max(middle - reach, -margin))
    return first, max(math.ceil(min(middle + reach, size + margin)), first + 3)


def _make_bar(rng: _Random, x: float, y: float, size: int) -> _Body:
    """A thin rod with round ends."""
    radius, thickness = rng.uniform(0.2, 0.45) * size, rng.uniform(0.012, 0.022) * size
    half = thickness / radius

    def rod(u: F32, v: F32) -> F32:
        return np.hypot(np.maximum(np.abs(u) - (1.0 - half), 0.0), v) - half

    return replace(_draw_outline(rod, size, x, y, radius, rng.angle(), 1.0, half), half_width_px=2.0 * thickness)


def _make_pebble(rng: _Random, x: float, y: float, size: int) -> _Body:
    """A small irregular oval."""

    def oval(u: F32, v: F32) -> F32:
        square_u, square_v = u * u, v * v
        reach = np.sqrt(square_u + square_v) + 1e-6
        cos_thrice = u * (square_u - 3.0 * square_v) / (reach * reach * reach)
        return reach - 0.85 - 0.1 * cos_thrice

    return _draw_outline(oval, size, x, y, rng.uniform(0.05, 0.10) * size, rng.angle(), rng.uniform(0.4, 0.6))


def _scatter(rng: _Random, spec: ShapesSpec, count: int) -> list[tuple[float, float, float]] | None:
    """Centres and radii (x, y, radius in pixels) of objects that overlap only a little; None if there is no room."""
    low, high = (0.30, 0.42) if spec.kind == "classify" else (0.10, 0.21)
    circles: list[tuple[float, float, float]] = []
    # A crowded draw is given up: the caller draws again, perhaps with fewer objects.
    for _ in range(count * 12):
        radius = rng.uniform(low, high) * spec.size_px
        x, y = (rng.uniform(0.9 * radius, spec.size_px - 0.9 * radius) for _ in range(2))
        if all(math.hypot(x - ox, y - oy) > 0.75 * (radius + other) for ox, oy, other in circles):
            circles.append((x, y, radius))
        if len(circles) == count:
            return circles
    return None


def _lay_out(rng: _Random, spec: ShapesSpec, label: int) -> _Layout:
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
        layout = _Layout(objects, classes, occluders, _visible_masks(objects, occluders, spec.size_px))
        if _is_visible(layout, 0.60 if detect else 0.75):
            return layout


def _make_occluder(rng: _Random, circles: list[tuple[float, float, float]], size: int) -> _Body:
    """A bar or a pebble on one of the objects, or just beside it."""
    make_body = _make_bar if rng.uniform(0.0, 1.0) < 0.6 else _make_pebble
    x, y, radius = circles[rng.integer(0, len(circles))]
    angle, offset = rng.angle(), rng.uniform(0.2, 1.1) * radius
    return make_body(rng, x + offset * math.cos(angle), y + offset * math.sin(angle), size)


def _visible_masks(objects: list[_Body], occluders: list[_Body], size: int) -> list[NDArray[np.bool_]]:
    """The visible pixels of each object: later bodies hide earlier ones."""
    hidden = np.zeros((size, size), dtype=np.bool_)
    masks = []
    for body in reversed([*objects, *occluders]):
        mask = np.zeros_like(hidden)
        inside, window = _overlap(size, body.top, body.left, body.distance.shape)
        mask[inside] = body.distance[window] <= 0.0
        masks.append(mask & ~hidden)
        hidden |= mask
    # Collected from the top body down: the last ones, reversed, are the objects'.
    return masks[: -len(objects) - 1 : -1]


def _is_visible(layout: _Layout, min_share: float) -> bool:
    """Whether at least `min_share` of every object's pixels is visible."""
    return all(
        np.count_nonzero(mask) >= min_share * np.count_nonzero(body.distance <= 0.0)
        for mask, body in zip(layout.visible, layout.objects, strict=True)
    )


def _overlap(size: int, top: int, left: int, shape: tuple[int, ...]) -> tuple[tuple[slice, slice], tuple[slice, slice]]:
    """The part of a window that is inside the image: as a slice of the image, and as a slice of the window."""
    y0, x0 = max(top, 0), max(left, 0)
    y1, x1 = max(min(top + shape[0], size), y0), max(min(left + shape[1], size), x0)
    return (slice(y0, y1), slice(x0, x1)), (slice(y0 - top, y1 - top), slice(x0 - left, x1 - left))


@frozen
class _Rendered:
    """One image and its objects. Boxes, in pixels, are tight around the visible pixels of each object."""

    image: NDArray[np.uint8]  # height, width, RGB
    label: int  # class of the main object, the first of `classes`; an index into CLASSES
    boxes_xywh: NDArray[np.float64]
    classes: NDArray[np.int64]
    areas_px: NDArray[np.int64]  # visible pixels of each object


# Colours are from 0 to 1, on a canvas of three planes, which numpy handles much faster than interleaved RGB.


@dataclass(frozen=True)
class _Light:
    """The direction towards the light, and the shadows that it casts."""

    right: float
    down: float
    up: float
    shadow_px: float
    shadow_depth: float


def _random_light(rng: _Random, size: int) -> _Light:
    angle, up = rng.angle(), rng.uniform(0.5, 0.8)
    flat = math.sqrt(1.0 - up * up)
    shadow_px, shadow_depth = rng.uniform(0.025, 0.075) * size, rng.uniform(0.35, 0.65)
    return _Light(flat * math.cos(angle), flat * math.sin(angle), up, shadow_px, shadow_depth)


def _random_colour(rng: _Random, luma: float, chroma: float) -> F32:
    """A random hue of about this brightness, as three planes of one pixel."""
    hue = rng.angle()
    return np.array([[[luma + chroma * math.cos(hue + k * 2.0 * math.pi / 3.0)]] for k in range(3)], dtype=np.float32)


def _random_luma_apart(rng: _Random, luma: float, distance: float) -> float:
    """A brightness from 0.15 to 0.92 that differs from `luma` by at least `distance`."""
    below, above = max(luma - distance - 0.15, 0.0), max(0.92 - luma - distance, 0.0)
    step = rng.uniform(0.0, below + above)
    return 0.15 + step if step < below else luma + distance + (step - below)


@functools.lru_cache(maxsize=8)
def _steps(size: int) -> F32:
    return np.linspace(-1.0, 1.0, size, dtype=np.float32)


@functools.lru_cache(maxsize=64)
def _spread(points: int, size: int) -> F32:
    """The (size, points) matrix that interpolates smoothly between `points` values."""
    at = (_steps(size) + 1.0) * (0.5 * (points - 1))
    near = _clip_unit(1.0 - np.abs(at[:, None] - np.arange(points, dtype=np.float32)[None, :]))
    # Smoothstep: without it, the noise would have visible edges where two intervals meet.
    return near * near * (3.0 - 2.0 * near)


def _clouds(rng: _Random, points: int, size: int) -> F32:
    """Smooth noise from -1 to 1 with about `points` hills per side."""
    grid = rng.generator.random((points, points), dtype=np.float32) * 2.0 - 1.0
    spread = _spread(points, size)
    return spread @ grid @ spread.T


def _random_pattern(rng: _Random, u: F32, v: F32, frequency: float) -> F32:
    """A texture from 0 to 1 in the frame (u, v): plain, stripes, checks, dots or marble."""
    kind = rng.integer(0, 5)
    if kind == 0:
        return np.zeros((1, 1), dtype=np.float32)
    across, along = u * frequency + rng.angle(), v * frequency + rng.angle()
    if kind == 1:
        return _clip_unit(np.sin(across) * 1.5 + 0.5)
    if kind == 2:
        return _clip_unit(np.sin(across) * np.sin(along) * 3.0 + 0.5)
    if kind == 3:
        return _clip_unit((np.sin(across) + np.sin(along) - 0.9) * 2.0)
    return _clip_unit(np.sin(across + 1.6 * np.sin(along * 0.7 + np.sin(across * 0.6))) * 0.5 + 0.5)


def _blend(canvas: F32, body: _Body, alpha: F32, colour: F32) -> None:
    inside, window = _overlap(canvas.shape[1], body.top, body.left, alpha.shape)
    under = canvas[:, *inside]
    over = colour[:, *window] if colour.size > 3 else colour
    under += alpha[window] * (over - under)


def _cast_shadow(canvas: F32, body: _Body, light: _Light) -> None:
    # Away from the light.
    top, left = body.top - round(light.down * light.shadow_px), body.left - round(light.right * light.shadow_px)
    inside, window = _overlap(canvas.shape[1], top, left, body.distance.shape)
    canvas[:, *inside] *= 1.0 - light.shadow_depth * body.coverage(1.0 + light.shadow_px * 0.55)[window]


def _shade(body: _Body, light: _Light, bevel_px: float) -> tuple[F32, F32]:
    """Diffuse and specular light on the rounded edge and the flat top of a body, both from 0 to 1."""
    steep = 1.6 - 1.6 * _clip_unit(body.distance * (-1.0 / bevel_px))
    upright = 1.0 / np.sqrt(1.0 + steep * steep)
    towards = np.zeros_like(body.distance)
    towards[:, 1:-1] = (body.distance[:, 2:] - body.distance[:, :-2]) * (0.5 * light.right)
    towards[1:-1] += (body.distance[2:] - body.distance[:-2]) * (0.5 * light.down)
    towards *= steep
    mirrored = _clip_unit((towards * 0.6 + 0.55 * (light.up + 1.0)) * upright)
    # To the 16th power, which narrows the highlight; squaring is much faster than `power`.
    for _ in range(4):
        mirrored *= mirrored
    return _clip_unit((towards + light.up) * upright), mirrored


def _paint(canvas: F32, rng: _Random, body: _Body, light: _Light, ground: float) -> None:
    """Paint a shadow, then the body: textured, with a rounded edge that is bright towards the light, and some gloss."""
    _cast_shadow(canvas, body, light)
    luma = _random_luma_apart(rng, ground, 0.30)
    first = _random_colour(rng, luma, rng.uniform(0.05, 0.28))
    second = _random_colour(rng, luma + rng.uniform(-0.1, 0.1), rng.uniform(0.05, 0.25))
    skin = first + (second - first) * _random_pattern(rng, body.u, body.v, rng.uniform(5.0, 11.0))
    facing, mirrored = _shade(body, light, body.half_width_px * rng.uniform(0.15, 0.55))
    lit = skin * (0.38 + 0.80 * facing) + rng.uniform(0.0, 0.35) * mirrored
    _blend(canvas, body, body.coverage(), lit)


def _background(rng: _Random, size: int, luma: float) -> F32:
    """A gradient of two colours, a texture, clouds, and flat clutter."""
    unit, angle = _steps(size), rng.angle()
    u = unit[None, :] * math.cos(angle) + unit[:, None] * math.sin(angle)
    v = unit[:, None] * math.cos(angle) - unit[None, :] * math.sin(angle)
    first, second = _random_colour(rng, luma, rng.uniform(0.02, 0.2)), _random_colour(rng, luma, rng.uniform(0.02, 0.2))
    tone = (_random_pattern(rng, u, v, rng.uniform(8.0, 24.0)) - 0.5) * rng.uniform(0.02, 0.10)
    tone = tone + _clouds(rng, rng.integer(3, 6), size) * 0.06 + _clouds(rng, rng.integer(9, 17), size) * 0.03
    canvas = first + (second - first) * _clip_unit(u * 0.5 + 0.5)
    canvas += tone
    for _ in range(rng.integer(1, 5)):
        make_body = _make_bar if rng.uniform(0.0, 1.0) < 0.3 else _make_pebble
        clutter = make_body(rng, rng.uniform(0.0, size), rng.uniform(0.0, size), size)
        colour = _random_colour(rng, luma + rng.uniform(-0.2, 0.2), rng.uniform(0.0, 0.2))
        _blend(canvas, clutter, clutter.coverage(rng.uniform(1.0, 4.0)) * rng.uniform(0.2, 0.6), colour)
    return canvas


def _expose(rng: _Random, canvas: F32, light: _Light) -> NDArray[np.uint8]:
    """Darken the side away from the light, add grain, and return height, width, RGB in bytes."""
    unit = _steps(canvas.shape[1])
    bias = rng.uniform(0.05, 0.22)
    canvas *= 1.0 + (unit[None, :] * (light.right * bias) + unit[:, None] * (light.down * bias))
    canvas += rng.generator.standard_normal(canvas.shape[1:], dtype=np.float32) * rng.uniform(0.005, 0.02)
    # + 0.5, because `astype` truncates.
    levels = (_clip_unit(canvas) * 255.0 + 0.5).astype(np.uint8)
    return np.ascontiguousarray(levels.transpose(1, 2, 0))


def render(spec: ShapesSpec, split: str, index: int) -> _Rendered:
    """Draw one image of a set."""
    rng = _Random(spec.seed, SPLITS.index(split), index)
    label = index % len(CLASSES)
    layout = _lay_out(rng, spec, label)
    ground, light = rng.uniform(0.2, 0.8), _random_light(rng, spec.size_px)
    canvas = _background(rng, spec.size_px, ground)
    for body in itertools.chain(layout.objects, layout.occluders):
        _paint(canvas, rng, body, light, ground)
    return _Rendered(
        image=_expose(rng, canvas, light),
        label=label,
        boxes_xywh=np.array([_box_xywh(mask) for mask in layout.visible], dtype=np.float64),
        classes=np.array(layout.classes, dtype=np.int64),
        areas_px=np.array([np.count_nonzero(mask) for mask in layout.visible], dtype=np.int64),
    )


def _box_xywh(mask: NDArray[np.bool_]) -> tuple[int, int, int, int]:
    columns, rows = np.flatnonzero(mask.any(axis=0)), np.flatnonzero(mask.any(axis=1))
    return columns[0], rows[0], columns[-1] - columns[0] + 1, rows[-1] - rows[0] + 1
