"""Paints an image of the built-in set: light, texture, shadow and noise. `render` draws one image.

Where objects lie is up to `layout`, writing files to `files`.
"""

import functools
import itertools
import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vernier.errors import ConfigError
from vernier.frozen import frozen

from .layout import Body, Random, clip_unit, lay_out, make_bar, make_pebble, overlap
from .outlines import CLASSES, F32
from .spec import SPLITS, ShapesSpec


@frozen
class Rendered:
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


def _random_light(rng: Random, size: int) -> _Light:
    angle, up = rng.angle(), rng.uniform(0.5, 0.8)
    flat = math.sqrt(1.0 - up * up)
    shadow_px, shadow_depth = rng.uniform(0.025, 0.075) * size, rng.uniform(0.35, 0.65)
    return _Light(flat * math.cos(angle), flat * math.sin(angle), up, shadow_px, shadow_depth)


def _random_colour(rng: Random, luma: float, chroma: float) -> F32:
    """A random hue of about this brightness, as three planes of one pixel."""
    hue = rng.angle()
    return np.array([[[luma + chroma * math.cos(hue + k * 2.0 * math.pi / 3.0)]] for k in range(3)], dtype=np.float32)


def _random_luma_apart(rng: Random, luma: float, distance: float) -> float:
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
    near = clip_unit(1.0 - np.abs(at[:, None] - np.arange(points, dtype=np.float32)[None, :]))
    return near * near * (3.0 - 2.0 * near)


def _clouds(rng: Random, points: int, size: int) -> F32:
    """Smooth noise from -1 to 1 with about `points` hills per side."""
    grid = rng.generator.random((points, points), dtype=np.float32) * 2.0 - 1.0
    spread = _spread(points, size)
    return spread @ grid @ spread.T


def _random_pattern(rng: Random, u: F32, v: F32, frequency: float) -> F32:
    """A texture from 0 to 1 in the frame (u, v): plain, stripes, checks, dots or marble."""
    kind = rng.integer(0, 5)
    if kind == 0:
        return np.zeros((1, 1), dtype=np.float32)
    across, along = u * frequency + rng.angle(), v * frequency + rng.angle()
    if kind == 1:
        return clip_unit(np.sin(across) * 1.5 + 0.5)
    if kind == 2:
        return clip_unit(np.sin(across) * np.sin(along) * 3.0 + 0.5)
    if kind == 3:
        return clip_unit((np.sin(across) + np.sin(along) - 0.9) * 2.0)
    return clip_unit(np.sin(across + 1.6 * np.sin(along * 0.7 + np.sin(across * 0.6))) * 0.5 + 0.5)


def _blend(canvas: F32, body: Body, alpha: F32, colour: F32) -> None:
    inside, window = overlap(canvas.shape[1], body.top, body.left, alpha.shape)
    under = canvas[:, *inside]
    over = colour[:, *window] if colour.size > 3 else colour
    under += alpha[window] * (over - under)


def _cast_shadow(canvas: F32, body: Body, light: _Light) -> None:
    top, left = body.top - round(light.down * light.shadow_px), body.left - round(light.right * light.shadow_px)
    inside, window = overlap(canvas.shape[1], top, left, body.distance.shape)
    canvas[:, *inside] *= 1.0 - light.shadow_depth * body.coverage(1.0 + light.shadow_px * 0.55)[window]


def _shade(body: Body, light: _Light, bevel_px: float) -> tuple[F32, F32]:
    """Diffuse and specular light on the rounded edge and the flat top of a body, both from 0 to 1."""
    steep = 1.6 - 1.6 * clip_unit(body.distance * (-1.0 / bevel_px))
    upright = 1.0 / np.sqrt(1.0 + steep * steep)
    towards = np.zeros_like(body.distance)
    towards[:, 1:-1] = (body.distance[:, 2:] - body.distance[:, :-2]) * (0.5 * light.right)
    towards[1:-1] += (body.distance[2:] - body.distance[:-2]) * (0.5 * light.down)
    towards *= steep
    mirrored = clip_unit((towards * 0.6 + 0.55 * (light.up + 1.0)) * upright)
    for _ in range(4):
        mirrored *= mirrored
    return clip_unit((towards + light.up) * upright), mirrored


def _paint(canvas: F32, rng: Random, body: Body, light: _Light, ground: float) -> None:
    """Paint a shadow, then the body: textured, with a rounded edge that is bright towards the light, and some gloss."""
    _cast_shadow(canvas, body, light)
    luma = _random_luma_apart(rng, ground, 0.30)
    first = _random_colour(rng, luma, rng.uniform(0.05, 0.28))
    second = _random_colour(rng, luma + rng.uniform(-0.1, 0.1), rng.uniform(0.05, 0.25))
    skin = first + (second - first) * _random_pattern(rng, body.u, body.v, rng.uniform(5.0, 11.0))
    facing, mirrored = _shade(body, light, body.half_width_px * rng.uniform(0.15, 0.55))
    lit = skin * (0.38 + 0.80 * facing) + rng.uniform(0.0, 0.35) * mirrored
    _blend(canvas, body, body.coverage(), lit)


def _background(rng: Random, size: int, luma: float) -> F32:
    """A gradient of two colours, a texture, clouds, and flat clutter."""
    unit, angle = _steps(size), rng.angle()
    u = unit[None, :] * math.cos(angle) + unit[:, None] * math.sin(angle)
    v = unit[:, None] * math.cos(angle) - unit[None, :] * math.sin(angle)
    first, second = _random_colour(rng, luma, rng.uniform(0.02, 0.2)), _random_colour(rng, luma, rng.uniform(0.02, 0.2))
    tone = (_random_pattern(rng, u, v, rng.uniform(8.0, 24.0)) - 0.5) * rng.uniform(0.02, 0.10)
    tone = tone + _clouds(rng, rng.integer(3, 6), size) * 0.06 + _clouds(rng, rng.integer(9, 17), size) * 0.03
    canvas = first + (second - first) * clip_unit(u * 0.5 + 0.5)
    canvas += tone
    for _ in range(rng.integer(1, 5)):
        make_body = make_bar if rng.uniform(0.0, 1.0) < 0.3 else make_pebble
        clutter = make_body(rng, rng.uniform(0.0, size), rng.uniform(0.0, size), size)
        colour = _random_colour(rng, luma + rng.uniform(-0.2, 0.2), rng.uniform(0.0, 0.2))
        _blend(canvas, clutter, clutter.coverage(rng.uniform(1.0, 4.0)) * rng.uniform(0.2, 0.6), colour)
    return canvas


def _expose(rng: Random, canvas: F32, light: _Light) -> NDArray[np.uint8]:
    """Darken the side away from the light, add grain, and return height, width, RGB in bytes."""
    unit = _steps(canvas.shape[1])
    bias = rng.uniform(0.05, 0.22)
    canvas *= 1.0 + (unit[None, :] * (light.right * bias) + unit[:, None] * (light.down * bias))
    canvas += rng.generator.standard_normal(canvas.shape[1:], dtype=np.float32) * rng.uniform(0.005, 0.02)
    levels = (clip_unit(canvas) * 255.0 + 0.5).astype(np.uint8)
    return np.ascontiguousarray(levels.transpose(1, 2, 0))


def render(spec: ShapesSpec, split: str, index: int) -> Rendered:
    """Draw one image of a set. Raises ConfigError for an image that the set does not have."""
    if not 0 <= index < spec.images(split):
        raise ConfigError(f"shapes: there is no image {index} in {split}; use 0 to {spec.images(split) - 1}")
    rng = Random(spec.seed, SPLITS.index(split), index)
    label = index % len(CLASSES)
    layout = lay_out(rng, spec, label)
    ground, light = rng.uniform(0.2, 0.8), _random_light(rng, spec.size_px)
    canvas = _background(rng, spec.size_px, ground)
    for body in itertools.chain(layout.objects, layout.occluders):
        _paint(canvas, rng, body, light, ground)
    return Rendered(
        image=_expose(rng, canvas, light),
        label=label,
        boxes_xywh=np.array([_box_xywh(mask) for mask in layout.visible], dtype=np.float64),
        classes=np.array(layout.classes, dtype=np.int64),
        areas_px=np.array([np.count_nonzero(mask) for mask in layout.visible], dtype=np.int64),
    )


def _box_xywh(mask: NDArray[np.bool_]) -> tuple[int, int, int, int]:
    columns, rows = np.flatnonzero(mask.any(axis=0)), np.flatnonzero(mask.any(axis=1))
    return columns[0], rows[0], columns[-1] - columns[0] + 1, rows[-1] - rows[0] + 1
