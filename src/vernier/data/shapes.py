"""The embedded data set: little lit scenes of ten shapes, drawn from a seed and kept as real JPEG files.

Owns the drawing (`render`), the files on disk (`make`, `cached`) and where they are kept (`default_root`). What it
writes is an ordinary image folder with COCO boxes beside it; reading it back is up to the folder and COCO sources.

Every image is a function of (seed, split, index, kind, size) alone: in any order, by any number of processes, the files
come out the same to the byte on one machine (another CPU or numpy version may round a pixel differently). Colour,
place, size, rotation, texture, light and clutter are drawn without looking at the class: only the outline tells it.

    classify: train/disc/disc_00001.jpg ...      one labelled object an image, behind clutter and in front of more
    detect:   train/000001.jpg ...               one to five labelled objects, which may overlap
    both:     annotations/instances_train.json, annotations/instances_val.json, and shapes.json, which is written last
"""

import contextlib
import errno
import functools
import glob
import itertools
import json
import math
import multiprocessing
import multiprocessing.connection
import os
import shutil
import signal
import socket
import sys
import threading
import uuid
import warnings
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import psutil
import simplejpeg
from numpy.typing import NDArray

from vernier.data.sources import data_home
from vernier.errors import ConfigError

FORMAT = 1  # of the files and of the drawing: a change in either takes a new number, lest an old set pass for a new one
JPEG_QUALITY = 90
SPLITS = ("train", "val")
SMALLEST_PX, LARGEST_PX = 16, 1024
DEFAULT_PX = {"classify": 64, "detect": 160}
SPEC_FILE = "shapes.json"

_F32 = NDArray[np.floating[Any]]  # always float32; numpy's own types cannot say that of `array * 0.5`
_Outline = Callable[[_F32, _F32], _F32]


@dataclass(frozen=True, kw_only=True)
class ShapesSpec:
    """Which set: two equal specs are the same files. Raises ConfigError for what cannot be made."""

    kind: Literal["classify", "detect"] = "classify"
    train: int = 8000
    val: int = 1000
    size_px: int = 0
    """Images are square; 0 becomes what suits the kind: 64 to classify, 160 to detect."""
    seed: int = 0

    def __post_init__(self) -> None:
        if self.kind not in ("classify", "detect"):
            raise ConfigError(f"shapes: kind is {self.kind!r}; use 'classify' or 'detect'")
        for name in ("train", "val", "size_px", "seed"):
            if not isinstance(getattr(self, name), int) or isinstance(getattr(self, name), bool):
                raise ConfigError(f"shapes: {name} is {getattr(self, name)!r}; use a whole number")
        if self.size_px == 0:
            object.__setattr__(self, "size_px", DEFAULT_PX[self.kind])
        for name in SPLITS:
            if getattr(self, name) < 1:
                raise ConfigError(f"shapes: {name} is {getattr(self, name)} images; use 1 or more")
        if not SMALLEST_PX <= self.size_px <= LARGEST_PX:
            raise ConfigError(f"shapes: size_px is {self.size_px}; use {SMALLEST_PX} to {LARGEST_PX} pixels")
        if self.seed < 0:
            raise ConfigError(f"shapes: seed is {self.seed}; use 0 or more")

    @property
    def folder_name(self) -> str:
        """The name under which `cached` keeps this set."""
        return f"shapes-{self.kind}-{self.size_px}px-{self.train}+{self.val}-seed{self.seed}"

    def images(self, split: str) -> int:
        """How many images a split has. Raises ConfigError for a split that does not exist."""
        if split not in SPLITS:
            raise ConfigError(f"shapes: split is {split!r}; use one of {', '.join(SPLITS)}")
        return self.train if split == "train" else self.val

    def file_name(self, index: int) -> str:
        """Where image `index` lies, relative to the folder of its split."""
        if self.kind == "detect":
            return f"{index + 1:06d}.jpg"
        name = CLASSES[index % len(CLASSES)]
        return f"{name}/{name}_{index // len(CLASSES) + 1:05d}.jpg"


@dataclass(frozen=True, kw_only=True)
class Rendered:
    """One image and what is in it. Boxes are tight around the pixels of each object that can be seen, in pixels."""

    image: NDArray[np.uint8]  # height, width, RGB
    label: int  # class of the main object, which is the first of `classes`; index into CLASSES
    boxes_xywh: NDArray[np.float64]
    classes: NDArray[np.int64]
    areas_px: NDArray[np.int64]  # visible pixels of each object


# --- The ten outlines: signed distance, negative inside, in the object's own frame, where it fills the unit circle.


def _arrow(u: _F32, v: _F32) -> _F32:
    side = np.abs(v)
    head = np.maximum((side * 0.95 + (u - 1.0) * 0.78) / math.hypot(0.95, 0.78), 0.05 - u)
    shaft = _box(u + 0.40, side, 0.55, 0.25)
    distance: _F32 = np.minimum(head, shaft)
    return distance


def _crescent(u: _F32, v: _F32) -> _F32:
    bite = 0.80 - np.hypot(u - 0.50, v)
    distance: _F32 = np.maximum(np.hypot(u, v) - 0.95, bite)
    return distance


def _cross(u: _F32, v: _F32) -> _F32:
    return np.minimum(_box(u, v, 0.95, 0.30), _box(u, v, 0.30, 0.95))


def _disc(u: _F32, v: _F32) -> _F32:
    return np.hypot(u, v) - 0.82


def _drop(u: _F32, v: _F32) -> _F32:
    radius, length = 0.55, 1.40  # a round end and, so far from its middle, the point in which two tangents meet
    u, side = u + 0.42, np.abs(v)
    slope = radius / length
    flank = math.sqrt(1.0 - slope * slope)
    return np.where(u * flank < side * slope, np.hypot(u, side) - radius, u * slope + side * flank - radius)


def _heart(u: _F32, v: _F32) -> _F32:
    u, side = u - 0.40, np.abs(v) - 0.43  # seen from the middle of a lobe; the heart's point lies at (-1.28, -0.43)
    flank = side * 0.7732 - u * 0.6342 - 0.48  # tangent to the lobe through the point
    notch = np.hypot(u - 0.213, side + 0.43)
    below_lobe = np.maximum(side * 0.6342 + u * 0.7732, side * 0.444 + u * 0.896) < 0.0
    return np.where(below_lobe, np.maximum(flank, -notch), np.hypot(u, side) - 0.48)


def _ring(u: _F32, v: _F32) -> _F32:
    return np.abs(np.hypot(u, v) - 0.68) - 0.22


def _square(u: _F32, v: _F32) -> _F32:
    return _box(u, v, 0.70, 0.70)


def _star(u: _F32, v: _F32) -> _F32:
    sector = 2.0 * math.pi / 5.0
    angle = np.arctan2(v, u)
    angle = np.abs(angle - sector * np.round(angle / sector))  # every arm folded on the half-arm that starts at its tip
    reach = np.hypot(u, v)
    inner_u, inner_v = 0.44 * math.cos(sector / 2.0), 0.44 * math.sin(sector / 2.0)
    edge = math.hypot(1.0 - inner_u, inner_v)
    return ((reach * np.cos(angle) - 1.0) * inner_v + reach * np.sin(angle) * (1.0 - inner_u)) / edge


def _triangle(u: _F32, v: _F32) -> _F32:
    return np.maximum(np.abs(v) * math.sqrt(0.75) + u * 0.5, -u) - 0.48


def _box(u: _F32, v: _F32, half_u: float, half_v: float) -> _F32:
    return np.maximum(np.abs(u) - half_u, np.abs(v) - half_v)


_OUTLINES: dict[str, _Outline] = {
    "arrow": _arrow,
    "crescent": _crescent,
    "cross": _cross,
    "disc": _disc,
    "drop": _drop,
    "heart": _heart,
    "ring": _ring,
    "square": _square,
    "star": _star,
    "triangle": _triangle,
}
CLASSES: tuple[str, ...] = tuple(_OUTLINES)  # alphabetical, as an image folder sorts them


# --- Layout: what lies where. Nothing is painted before every object is known to be seen well enough.


class _Dice:
    """The chance of one image. Scalars come from `random()`: numpy's `uniform` and `integers` take ten times longer."""

    def __init__(self, seed: int, split: int, index: int) -> None:
        self.generator = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(split, index)))
        self._random = self.generator.random

    def between(self, low: float, high: float) -> float:
        return low + (high - low) * self._random()

    def whole(self, low: int, end: int) -> int:
        return low + int((end - low) * self._random())

    def turn(self) -> float:
        return 2.0 * math.pi * self._random()


@dataclass(frozen=True)
class _Body:
    """A flat thing in the picture: signed distance in pixels on a window that may stick out of the image."""

    top: int
    left: int
    distance: _F32
    u: _F32  # the body's own frame, which carries its texture
    v: _F32
    girth_px: float  # how far its middle is from its edge, about

    def coverage(self, softness_px: float = 1.0) -> _F32:
        return _limit(0.5 - self.distance * (1.0 / softness_px))


@dataclass(frozen=True)
class _Layout:
    objects: list[_Body]
    classes: list[int]
    occluders: list[_Body]
    visible: list[NDArray[np.bool_]]  # one mask of the whole image for each object


def _place(
    outline: _Outline, size: int, x: float, y: float, radius: float, angle: float, squeeze: float, slim: float = 1.0
) -> _Body:
    """An outline in an image of `size` pixels: scaled to `radius` pixels, turned, and squeezed across its own axis.

    `slim` says how wide it is before that, compared with its length: it only keeps the window small.
    """
    cos, sin, slim = math.cos(angle), math.sin(angle), slim * squeeze
    left, right = _window(x, size, radius * min(1.0, abs(cos) + abs(sin) * slim))
    top, bottom = _window(y, size, radius * min(1.0, abs(sin) + abs(cos) * slim))
    across = (np.arange(left, right, dtype=np.float32) + (0.5 - x))[None, :]
    down = (np.arange(top, bottom, dtype=np.float32) + (0.5 - y))[:, None]
    u = across * (cos / radius) + down * (sin / radius)
    v = down * (cos / radius / squeeze) - across * (sin / radius / squeeze)
    return _Body(top, left, outline(u, v) * (radius * math.sqrt(squeeze)), u, v, radius)


def _window(middle: float, size: int, reach: float) -> tuple[int, int]:
    """First and end pixel; beyond the image by a margin in which a body can still cast its shadow into it."""
    reach, margin = reach * 1.05 + 3.0, size / 8.0 + 3.0
    first = math.floor(max(middle - reach, -margin))
    return first, max(math.ceil(min(middle + reach, size + margin)), first + 3)


def _bar(dice: _Dice, x: float, y: float, size: int) -> _Body:
    radius, thickness = dice.between(0.2, 0.45) * size, dice.between(0.012, 0.022) * size
    half = thickness / radius

    def rod(u: _F32, v: _F32) -> _F32:
        return np.hypot(np.maximum(np.abs(u) - (1.0 - half), 0.0), v) - half

    return replace(_place(rod, size, x, y, radius, dice.turn(), 1.0, half), girth_px=2.0 * thickness)


def _pebble(dice: _Dice, x: float, y: float, size: int) -> _Body:
    def oval(u: _F32, v: _F32) -> _F32:
        square_u, square_v = u * u, v * v
        reach = np.sqrt(square_u + square_v) + 1e-6
        cos_thrice = u * (square_u - 3.0 * square_v) / (reach * reach * reach)
        return reach - 0.85 - 0.1 * cos_thrice

    return _place(oval, size, x, y, dice.between(0.05, 0.10) * size, dice.turn(), dice.between(0.4, 0.6))


def _scatter(dice: _Dice, spec: ShapesSpec, count: int) -> list[tuple[float, float, float]] | None:
    """Places and radii (x, y, radius in pixels) of objects that overlap a little at most; None where room is short."""
    low, high = (0.30, 0.42) if spec.kind == "classify" else (0.10, 0.21)
    placed: list[tuple[float, float, float]] = []
    for _ in range(count * 12):
        radius = dice.between(low, high) * spec.size_px
        x, y = (dice.between(0.9 * radius, spec.size_px - 0.9 * radius) for _ in range(2))
        if all(math.hypot(x - ox, y - oy) > 0.75 * (radius + other) for ox, oy, other in placed):
            placed.append((x, y, radius))
        if len(placed) == count:
            return placed
    return None


def _lay_out(dice: _Dice, spec: ShapesSpec, label: int) -> _Layout:
    """Draws layouts until one shows enough of every object; most first ones do."""
    detect = spec.kind == "detect"
    while True:
        places = _scatter(dice, spec, dice.whole(1, 6) if detect else 1)
        if places is None:
            continue
        classes = [label, *(dice.whole(0, len(CLASSES)) for _ in places[1:])]
        objects = [
            _place(_OUTLINES[CLASSES[c]], spec.size_px, x, y, radius, dice.turn(), dice.between(0.85, 1.0))
            for c, (x, y, radius) in zip(classes, places, strict=True)
        ]
        occluders = [_occluder(dice, places, spec.size_px) for _ in range(dice.whole(0, 3))]
        layout = _Layout(objects, classes, occluders, _visible(objects, occluders, spec.size_px))
        if _seen_well(layout, 0.60 if detect else 0.75):
            return layout


def _occluder(dice: _Dice, places: list[tuple[float, float, float]], size: int) -> _Body:
    """A bar or a pebble that lies on one of the objects, or just beside it."""
    form = _bar if dice.between(0.0, 1.0) < 0.6 else _pebble
    x, y, radius = places[dice.whole(0, len(places))]
    angle, out = dice.turn(), dice.between(0.2, 1.1) * radius
    return form(dice, x + out * math.cos(angle), y + out * math.sin(angle), size)


def _visible(objects: list[_Body], occluders: list[_Body], size: int) -> list[NDArray[np.bool_]]:
    hidden = np.zeros((size, size), dtype=np.bool_)
    masks = []
    for body in reversed([*objects, *occluders]):
        mask = np.zeros_like(hidden)
        inside, window = _overlap(size, body.top, body.left, body.distance.shape)
        mask[inside] = body.distance[window] <= 0.0
        masks.append(mask & ~hidden)
        hidden |= mask
    return masks[: -len(objects) - 1 : -1]


def _seen_well(layout: _Layout, least: float) -> bool:
    return all(
        np.count_nonzero(mask) >= least * np.count_nonzero(body.distance <= 0.0)
        for mask, body in zip(layout.visible, layout.objects, strict=True)
    )


def _overlap(size: int, top: int, left: int, shape: tuple[int, ...]) -> tuple[tuple[slice, slice], tuple[slice, slice]]:
    """The part of a window that lies in the image: as a slice of the image, and as a slice of the window."""
    y0, x0 = max(top, 0), max(left, 0)
    y1, x1 = max(min(top + shape[0], size), y0), max(min(left + shape[1], size), x0)
    return (slice(y0, y1), slice(x0, x1)), (slice(y0 - top, y1 - top), slice(x0 - left, x1 - left))


# --- Paint: colours from 0 to 1 on a canvas of three planes, which numpy handles far quicker than RGB pixels.


@dataclass(frozen=True)
class _Light:
    right: float
    down: float
    up: float
    shadow_px: float
    shadow_depth: float


def _light(dice: _Dice, size: int) -> _Light:
    angle, up = dice.turn(), dice.between(0.5, 0.8)
    flat = math.sqrt(1.0 - up * up)
    shadow_px, shadow_depth = dice.between(0.025, 0.075) * size, dice.between(0.35, 0.65)
    return _Light(flat * math.cos(angle), flat * math.sin(angle), up, shadow_px, shadow_depth)


def _limit(values: _F32) -> _F32:
    """Cuts to 0 ... 1, in place."""
    np.maximum(values, 0.0, out=values)
    return np.minimum(values, 1.0, out=values)


def _colour(dice: _Dice, luma: float, chroma: float) -> _F32:
    """A random hue of about the given brightness, as three planes of one pixel."""
    hue = dice.turn()
    return np.array([[[luma + chroma * math.cos(hue + k * 2.0 * math.pi / 3.0)]] for k in range(3)], dtype=np.float32)


def _apart(dice: _Dice, luma: float, least: float) -> float:
    """A brightness in 0.15 to 0.92 that is at least so far from `luma`."""
    below, above = max(luma - least - 0.15, 0.0), max(0.92 - luma - least, 0.0)
    step = dice.between(0.0, below + above)
    return 0.15 + step if step < below else luma + least + (step - below)


@functools.lru_cache(maxsize=8)
def _steps(size: int) -> _F32:
    return np.linspace(-1.0, 1.0, size, dtype=np.float32)


@functools.lru_cache(maxsize=64)
def _spread(points: int, size: int) -> _F32:
    """The (size, points) matrix that interpolates smoothly between `points` values."""
    at = (_steps(size) + 1.0) * (0.5 * (points - 1))
    near = _limit(1.0 - np.abs(at[:, None] - np.arange(points, dtype=np.float32)[None, :]))
    return near * near * (3.0 - 2.0 * near)


def _clouds(dice: _Dice, points: int, size: int) -> _F32:
    """Smooth noise from -1 to 1 with about `points` hills along a side."""
    grid = dice.generator.random((points, points), dtype=np.float32) * 2.0 - 1.0
    spread = _spread(points, size)
    return spread @ grid @ spread.T


def _pattern(dice: _Dice, u: _F32, v: _F32, frequency: float) -> _F32:
    """A texture from 0 to 1 in the frame (u, v): plain, stripes, checks, dots or marble."""
    kind = dice.whole(0, 5)
    if kind == 0:
        return np.zeros((1, 1), dtype=np.float32)
    across, along = u * frequency + dice.turn(), v * frequency + dice.turn()
    if kind == 1:
        return _limit(np.sin(across) * 1.5 + 0.5)
    if kind == 2:
        return _limit(np.sin(across) * np.sin(along) * 3.0 + 0.5)
    if kind == 3:
        return _limit((np.sin(across) + np.sin(along) - 0.9) * 2.0)
    return _limit(np.sin(across + 1.6 * np.sin(along * 0.7 + np.sin(across * 0.6))) * 0.5 + 0.5)


def _blend(canvas: _F32, body: _Body, alpha: _F32, colour: _F32) -> None:
    inside, window = _overlap(canvas.shape[1], body.top, body.left, alpha.shape)
    under = canvas[:, *inside]
    over = colour[:, *window] if colour.size > 3 else colour
    under += alpha[window] * (over - under)


def _cast_shadow(canvas: _F32, body: _Body, light: _Light) -> None:
    top, left = body.top - round(light.down * light.shadow_px), body.left - round(light.right * light.shadow_px)
    inside, window = _overlap(canvas.shape[1], top, left, body.distance.shape)
    canvas[:, *inside] *= 1.0 - light.shadow_depth * body.coverage(1.0 + light.shadow_px * 0.55)[window]


def _shade(body: _Body, light: _Light, bevel_px: float) -> tuple[_F32, _F32]:
    """How much light the rounded edge and the flat top of a body take, and how much they mirror; both from 0 to 1."""
    steep = 1.6 - 1.6 * _limit(body.distance * (-1.0 / bevel_px))
    upright = 1.0 / np.sqrt(1.0 + steep * steep)
    towards = np.zeros_like(body.distance)
    towards[:, 1:-1] = (body.distance[:, 2:] - body.distance[:, :-2]) * (0.5 * light.right)
    towards[1:-1] += (body.distance[2:] - body.distance[:-2]) * (0.5 * light.down)
    towards *= steep
    mirrored = _limit((towards * 0.6 + 0.55 * (light.up + 1.0)) * upright)
    for _ in range(4):
        mirrored *= mirrored
    return _limit((towards + light.up) * upright), mirrored


def _paint(canvas: _F32, dice: _Dice, body: _Body, light: _Light, ground: float) -> None:
    """A shadow, then the body: textured, with a rounded edge that is bright towards the light, and some gloss."""
    _cast_shadow(canvas, body, light)
    luma = _apart(dice, ground, 0.30)
    first = _colour(dice, luma, dice.between(0.05, 0.28))
    second = _colour(dice, luma + dice.between(-0.1, 0.1), dice.between(0.05, 0.25))
    skin = first + (second - first) * _pattern(dice, body.u, body.v, dice.between(5.0, 11.0))
    facing, mirrored = _shade(body, light, body.girth_px * dice.between(0.15, 0.55))
    lit = skin * (0.38 + 0.80 * facing) + dice.between(0.0, 0.35) * mirrored
    _blend(canvas, body, body.coverage(), lit)


def _background(dice: _Dice, size: int, luma: float) -> _F32:
    """Two colours that run into each other, a texture, clouds, and flat litter."""
    unit, angle = _steps(size), dice.turn()
    u = unit[None, :] * math.cos(angle) + unit[:, None] * math.sin(angle)
    v = unit[:, None] * math.cos(angle) - unit[None, :] * math.sin(angle)
    first, second = _colour(dice, luma, dice.between(0.02, 0.2)), _colour(dice, luma, dice.between(0.02, 0.2))
    tone = (_pattern(dice, u, v, dice.between(8.0, 24.0)) - 0.5) * dice.between(0.02, 0.10)
    tone = tone + _clouds(dice, dice.whole(3, 6), size) * 0.06 + _clouds(dice, dice.whole(9, 17), size) * 0.03
    canvas = first + (second - first) * _limit(u * 0.5 + 0.5)
    canvas += tone
    for _ in range(dice.whole(1, 5)):
        form = _bar if dice.between(0.0, 1.0) < 0.3 else _pebble
        litter = form(dice, dice.between(0.0, size), dice.between(0.0, size), size)
        colour = _colour(dice, luma + dice.between(-0.2, 0.2), dice.between(0.0, 0.2))
        _blend(canvas, litter, litter.coverage(dice.between(1.0, 4.0)) * dice.between(0.2, 0.6), colour)
    return canvas


def _expose(dice: _Dice, canvas: _F32, light: _Light) -> NDArray[np.uint8]:
    """The light falls off away from its side; the camera adds grain. Returns height, width, RGB."""
    unit = _steps(canvas.shape[1])
    bias = dice.between(0.05, 0.22)
    canvas *= 1.0 + (unit[None, :] * (light.right * bias) + unit[:, None] * (light.down * bias))
    canvas += dice.generator.standard_normal(canvas.shape[1:], dtype=np.float32) * dice.between(0.005, 0.02)
    levels = (_limit(canvas) * 255.0 + 0.5).astype(np.uint8)
    return np.ascontiguousarray(levels.transpose(1, 2, 0))


def render(spec: ShapesSpec, split: str, index: int) -> Rendered:
    """Draws one image of a set. Raises ConfigError for an image that the set does not have."""
    if not 0 <= index < spec.images(split):
        raise ConfigError(f"shapes: there is no image {index} in {split}; use 0 to {spec.images(split) - 1}")
    dice = _Dice(spec.seed, SPLITS.index(split), index)
    label = index % len(CLASSES)
    layout = _lay_out(dice, spec, label)
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


# --- Files: drawn in chunks into a folder beside the final one, which gets its name only when it is complete.

_CHUNK = 250  # images: about a third of a second of work, so that progress moves and processes finish together
_Record = tuple[int, list[list[float]], list[int], list[int]]  # index, boxes, classes, areas


def default_root() -> Path:
    """The folder in which `cached` keeps its sets: the data home."""
    return data_home()


def cached(spec: ShapesSpec, *, progress: Callable[[int, int], None] | None = None, workers: int | None = None) -> Path:
    """The folder of this set under `default_root`; made first where it is missing."""
    return make(default_root() / spec.folder_name, spec, progress=progress, workers=workers)


def make(
    out: Path, spec: ShapesSpec, *, progress: Callable[[int, int], None] | None = None, workers: int | None = None
) -> Path:
    """Writes the set into the folder `out` and returns it; at once, if it is there already.

    `progress` is called with (images done, images in all). `workers` is the number of processes; by default one a core
    for a set that is worth it. Raises ConfigError if `out` holds anything else, and leaves that alone.
    """
    if workers is not None and workers < 1:
        raise ConfigError(f"shapes: workers is {workers}; use 1 or more, or leave it out for one a core")
    target = Path(out).resolve()
    if _holds(target, spec):
        return out
    target.parent.mkdir(parents=True, exist_ok=True)
    _sweep(target)
    partial = target.with_name(f"{_partial_prefix(target)}{os.getpid()}-{uuid.uuid4().hex[:8]}")
    try:
        _write(partial, spec, progress, workers)
        _rename(partial, target, spec)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return out


def _holds(target: Path, spec: ShapesSpec) -> bool:
    """Whether the folder is this set. Raises ConfigError if it is anything else that a new set would have to replace."""
    try:
        found = json.loads((target / SPEC_FILE).read_text())
    except (FileNotFoundError, NotADirectoryError):
        if target.is_dir() and not any(target.iterdir()):
            return False
        if target.exists():
            raise ConfigError(f"shapes: {target} exists and is no shapes set; choose a new or empty folder") from None
        return False
    except ValueError:
        found = None
    if found == _identity(spec):
        return True
    have = found.get("spec") if isinstance(found, dict) else None
    version = found.get("format") if isinstance(found, dict) else None
    raise ConfigError(
        f"shapes: {target} holds another set (format {version}: {have}) than the one asked for "
        f"(format {FORMAT}: {asdict(spec)}); choose another folder, or delete this one first"
    )


def _identity(spec: ShapesSpec) -> dict[str, Any]:
    return {"format": FORMAT, "spec": asdict(spec), "classes": list(CLASSES)}


def _partial_prefix(target: Path) -> str:
    return f".{target.name}.partial-{socket.gethostname()}-"


def _sweep(target: Path) -> None:
    """Removes what makers of this set left behind when they were killed on this host."""
    for left in target.parent.glob(f"{glob.escape(_partial_prefix(target))}*"):
        pid = left.name.removeprefix(_partial_prefix(target)).split("-")[0]
        if pid.isdigit() and not psutil.pid_exists(int(pid)):
            shutil.rmtree(left, ignore_errors=True)


def _rename(partial: Path, target: Path, spec: ShapesSpec) -> None:
    """Gives the finished folder its name, unless somebody else just did: then theirs is as good."""
    try:
        partial.rename(target)
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.EACCES) or not _holds(target, spec):
            raise


def _write(folder: Path, spec: ShapesSpec, progress: Callable[[int, int], None] | None, workers: int | None) -> None:
    for split in SPLITS:
        for name in CLASSES if spec.kind == "classify" else ("",):
            (folder / split / name).mkdir(parents=True, exist_ok=True)
    records: dict[str, list[_Record]] = {split: [] for split in SPLITS}
    done, total = 0, spec.train + spec.val
    for split, drawn in _draw_all(folder, spec, workers):
        records[split] += drawn
        done += len(drawn)
        if progress:
            progress(done, total)
    (folder / "annotations").mkdir()
    for split in SPLITS:
        text = json.dumps(_instances(spec, split, sorted(records[split])))
        (folder / "annotations" / f"instances_{split}.json").write_text(text)
    (folder / SPEC_FILE).write_text(json.dumps(_identity(spec), indent=2) + "\n")


def _draw_all(folder: Path, spec: ShapesSpec, workers: int | None) -> Iterator[tuple[str, list[_Record]]]:
    """Draws everything, in this process or in several, and yields each chunk as it is finished."""
    chunks = [
        (split, range(start, min(start + _CHUNK, spec.images(split))))
        for split in SPLITS
        for start in range(0, spec.images(split), _CHUNK)
    ]
    processes = _processes(spec, workers, len(chunks))
    if processes == 1:
        for split, indices in chunks:
            yield split, _draw(folder, spec, split, indices)
        return
    with _pool(processes) as pool:
        waiting = {pool.submit(_draw, folder, spec, split, indices): split for split, indices in chunks}
        for future in as_completed(waiting):
            yield waiting[future], future.result()


def _draw(folder: Path, spec: ShapesSpec, split: str, indices: Iterable[int]) -> list[_Record]:
    records: list[_Record] = []
    for index in indices:
        drawn = render(spec, split, index)
        data = simplejpeg.encode_jpeg(drawn.image, JPEG_QUALITY, "RGB", "420", fastdct=False)
        (folder / split / spec.file_name(index)).write_bytes(data)
        records.append((index, drawn.boxes_xywh.tolist(), drawn.classes.tolist(), drawn.areas_px.tolist()))
    return records


def _instances(spec: ShapesSpec, split: str, records: list[_Record]) -> dict[str, Any]:
    """The boxes of a split in COCO's instances format; ids count from 1."""
    annotation_id = itertools.count(1)
    return {
        "info": {"description": f"Vernier shapes, {split}", "version": str(FORMAT)},
        "images": [
            {"id": index + 1, "file_name": spec.file_name(index), "width": spec.size_px, "height": spec.size_px}
            for index, *_ in records
        ],
        "annotations": [
            {
                "id": next(annotation_id),
                "image_id": index + 1,
                "category_id": label + 1,
                "bbox": box,
                "area": float(area),
                "iscrowd": 0,
            }
            for index, boxes, labels, areas in records
            for box, label, area in zip(boxes, labels, areas, strict=True)
        ],
        "categories": [{"id": k + 1, "name": name, "supercategory": "shape"} for k, name in enumerate(CLASSES)],
    }


def _processes(spec: ShapesSpec, workers: int | None, chunks: int) -> int:
    """How many processes draw. Only Linux forks safely, and a daemon may not fork at all: one does it elsewhere."""
    if sys.platform != "linux" or multiprocessing.current_process().daemon:
        return 1
    if workers is None:
        small = (spec.train + spec.val) * spec.size_px**2 < 2000 * 64**2
        workers = 1 if small else len(os.sched_getaffinity(0))
    return min(workers, chunks)


@contextlib.contextmanager
def _pool(processes: int) -> Iterator[ProcessPoolExecutor]:
    """Forked: any other way to start runs the caller's main module again. The children draw and write files, no more."""
    pool = ProcessPoolExecutor(processes, multiprocessing.get_context("fork"), initializer=_begin_child)
    try:
        with warnings.catch_warnings():  # Python 3.12 warns of the caller's threads; drawing takes none of their locks
            warnings.filterwarnings("ignore", message=".*fork", category=DeprecationWarning)
            pool.submit(os.getpid).result()
        yield pool
    finally:
        pool.shutdown(cancel_futures=True)


def _begin_child() -> None:
    """Ctrl-C is for the parent to handle; and a parent that was killed must not leave children waiting for work."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    parent = multiprocessing.parent_process()
    assert parent is not None, "this runs in the children of the pool only"
    threading.Thread(target=_end_with, args=(parent.sentinel,), daemon=True).start()


def _end_with(sentinel: int) -> None:
    multiprocessing.connection.wait([sentinel])
    os._exit(1)
