"""The painting of the embedded set: light, texture, shadow and noise, and `render`, which makes one picture.

What lies where is `data.shapes_layout`'s business.
"""

import functools
import itertools
import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vernier.data.shapes.layout import (
    CLASSES,
    F32,
    SPLITS,
    Body,
    Dice,
    ShapesSpec,
    bar,
    lay_out,
    limit,
    overlap,
    pebble,
)
from vernier.errors import ConfigError
from vernier.frozen import frozen


@frozen
class Rendered:
    """One image and what is in it. Boxes are tight around the pixels of each object that can be seen, in pixels."""

    image: NDArray[np.uint8]  # height, width, RGB
    label: int  # class of the main object, which is the first of `classes`; index into CLASSES
    boxes_xywh: NDArray[np.float64]
    classes: NDArray[np.int64]
    areas_px: NDArray[np.int64]  # visible pixels of each object


# --- Paint: colours from 0 to 1 on a canvas of three planes, which numpy handles far quicker than RGB pixels.


@dataclass(frozen=True)
class _Light:
    right: float
    down: float
    up: float
    shadow_px: float
    shadow_depth: float


def _light(dice: Dice, size: int) -> _Light:
    angle, up = dice.turn(), dice.between(0.5, 0.8)
    flat = math.sqrt(1.0 - up * up)
    shadow_px, shadow_depth = dice.between(0.025, 0.075) * size, dice.between(0.35, 0.65)
    return _Light(flat * math.cos(angle), flat * math.sin(angle), up, shadow_px, shadow_depth)


def _colour(dice: Dice, luma: float, chroma: float) -> F32:
    """A random hue of about the given brightness, as three planes of one pixel."""
    hue = dice.turn()
    return np.array([[[luma + chroma * math.cos(hue + k * 2.0 * math.pi / 3.0)]] for k in range(3)], dtype=np.float32)


def _apart(dice: Dice, luma: float, least: float) -> float:
    """A brightness in 0.15 to 0.92 that is at least so far from `luma`."""
    below, above = max(luma - least - 0.15, 0.0), max(0.92 - luma - least, 0.0)
    step = dice.between(0.0, below + above)
    return 0.15 + step if step < below else luma + least + (step - below)


@functools.lru_cache(maxsize=8)
def _steps(size: int) -> F32:
    return np.linspace(-1.0, 1.0, size, dtype=np.float32)


@functools.lru_cache(maxsize=64)
def _spread(points: int, size: int) -> F32:
    """The (size, points) matrix that interpolates smoothly between `points` values."""
    at = (_steps(size) + 1.0) * (0.5 * (points - 1))
    near = limit(1.0 - np.abs(at[:, None] - np.arange(points, dtype=np.float32)[None, :]))
    return near * near * (3.0 - 2.0 * near)


def _clouds(dice: Dice, points: int, size: int) -> F32:
    """Smooth noise from -1 to 1 with about `points` hills along a side."""
    grid = dice.generator.random((points, points), dtype=np.float32) * 2.0 - 1.0
    spread = _spread(points, size)
    return spread @ grid @ spread.T


def _pattern(dice: Dice, u: F32, v: F32, frequency: float) -> F32:
    """A texture from 0 to 1 in the frame (u, v): plain, stripes, checks, dots or marble."""
    kind = dice.whole(0, 5)
    if kind == 0:
        return np.zeros((1, 1), dtype=np.float32)
    across, along = u * frequency + dice.turn(), v * frequency + dice.turn()
    if kind == 1:
        return limit(np.sin(across) * 1.5 + 0.5)
    if kind == 2:
        return limit(np.sin(across) * np.sin(along) * 3.0 + 0.5)
    if kind == 3:
        return limit((np.sin(across) + np.sin(along) - 0.9) * 2.0)
    return limit(np.sin(across + 1.6 * np.sin(along * 0.7 + np.sin(across * 0.6))) * 0.5 + 0.5)


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
    """How much light the rounded edge and the flat top of a body take, and how much they mirror; both from 0 to 1."""
    steep = 1.6 - 1.6 * limit(body.distance * (-1.0 / bevel_px))
    upright = 1.0 / np.sqrt(1.0 + steep * steep)
    towards = np.zeros_like(body.distance)
    towards[:, 1:-1] = (body.distance[:, 2:] - body.distance[:, :-2]) * (0.5 * light.right)
    towards[1:-1] += (body.distance[2:] - body.distance[:-2]) * (0.5 * light.down)
    towards *= steep
    mirrored = limit((towards * 0.6 + 0.55 * (light.up + 1.0)) * upright)
    for _ in range(4):
        mirrored *= mirrored
    return limit((towards + light.up) * upright), mirrored


def _paint(canvas: F32, dice: Dice, body: Body, light: _Light, ground: float) -> None:
    """A shadow, then the body: textured, with a rounded edge that is bright towards the light, and some gloss."""
    _cast_shadow(canvas, body, light)
    luma = _apart(dice, ground, 0.30)
    first = _colour(dice, luma, dice.between(0.05, 0.28))
    second = _colour(dice, luma + dice.between(-0.1, 0.1), dice.between(0.05, 0.25))
    skin = first + (second - first) * _pattern(dice, body.u, body.v, dice.between(5.0, 11.0))
    facing, mirrored = _shade(body, light, body.girth_px * dice.between(0.15, 0.55))
    lit = skin * (0.38 + 0.80 * facing) + dice.between(0.0, 0.35) * mirrored
    _blend(canvas, body, body.coverage(), lit)


def _background(dice: Dice, size: int, luma: float) -> F32:
    """Two colours that run into each other, a texture, clouds, and flat litter."""
    unit, angle = _steps(size), dice.turn()
    u = unit[None, :] * math.cos(angle) + unit[:, None] * math.sin(angle)
    v = unit[:, None] * math.cos(angle) - unit[None, :] * math.sin(angle)
    first, second = _colour(dice, luma, dice.between(0.02, 0.2)), _colour(dice, luma, dice.between(0.02, 0.2))
    tone = (_pattern(dice, u, v, dice.between(8.0, 24.0)) - 0.5) * dice.between(0.02, 0.10)
    tone = tone + _clouds(dice, dice.whole(3, 6), size) * 0.06 + _clouds(dice, dice.whole(9, 17), size) * 0.03
    canvas = first + (second - first) * limit(u * 0.5 + 0.5)
    canvas += tone
    for _ in range(dice.whole(1, 5)):
        form = bar if dice.between(0.0, 1.0) < 0.3 else pebble
        litter = form(dice, dice.between(0.0, size), dice.between(0.0, size), size)
        colour = _colour(dice, luma + dice.between(-0.2, 0.2), dice.between(0.0, 0.2))
        _blend(canvas, litter, litter.coverage(dice.between(1.0, 4.0)) * dice.between(0.2, 0.6), colour)
    return canvas


def _expose(dice: Dice, canvas: F32, light: _Light) -> NDArray[np.uint8]:
    """The light falls off away from its side; the camera adds grain. Returns height, width, RGB."""
    unit = _steps(canvas.shape[1])
    bias = dice.between(0.05, 0.22)
    canvas *= 1.0 + (unit[None, :] * (light.right * bias) + unit[:, None] * (light.down * bias))
    canvas += dice.generator.standard_normal(canvas.shape[1:], dtype=np.float32) * dice.between(0.005, 0.02)
    levels = (limit(canvas) * 255.0 + 0.5).astype(np.uint8)
    return np.ascontiguousarray(levels.transpose(1, 2, 0))


def render(spec: ShapesSpec, split: str, index: int) -> Rendered:
    """Draws one image of a set. Raises ConfigError for an image that the set does not have."""
    if not 0 <= index < spec.images(split):
        raise ConfigError(f"shapes: there is no image {index} in {split}; use 0 to {spec.images(split) - 1}")
    dice = Dice(spec.seed, SPLITS.index(split), index)
    label = index % len(CLASSES)
    layout = lay_out(dice, spec, label)
    ground, light = dice.between(0.2, 0.8), _light(dice, spec.size_px)
    canvas = _background(dice, spec.size_px, ground)
    for body in itertools.chain(layout.objects, layout.occluders):
        _paint(canvas, dice, body, light, ground)
    return Rendered(
        image=_expose(dice, canvas, light),
        label=label,
        boxes_xywh=np.array([_box_xywh(mask) for mask in layout.visible], dtype=np.float64),
        classes=np.array(layout.classes, dtype=np.int64),
        areas_px=np.array([np.count_nonzero(mask) for mask in layout.visible], dtype=np.int64),
    )


def _box_xywh(mask: NDArray[np.bool_]) -> tuple[int, int, int, int]:
    columns, rows = np.flatnonzero(mask.any(axis=0)), np.flatnonzero(mask.any(axis=1))
    return columns[0], rows[0], columns[-1] - columns[0] + 1, rows[-1] - rows[0] + 1
