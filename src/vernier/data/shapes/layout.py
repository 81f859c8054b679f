"""What lies where in a picture of the embedded set: the ten outlines, and objects and clutter of which enough is seen.

Owns the spec of a set and every decision that is not about colour; `data.shapes_paint` paints, `data.shapes` writes files.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from vernier.errors import ConfigError
from vernier.frozen import frozen

SPLITS = ("train", "val")
SMALLEST_PX, LARGEST_PX = 16, 1024
DEFAULT_PX = {"classify": 64, "detect": 160}

F32 = NDArray[np.floating[Any]]  # always float32; numpy's own types cannot say that of `array * 0.5`
_Outline = Callable[[F32, F32], F32]


@frozen
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


# --- The ten outlines: signed distance, negative inside, in the object's own frame, where it fills the unit circle.


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


def _cross(u: F32, v: F32) -> F32:
    return np.minimum(_box(u, v, 0.95, 0.30), _box(u, v, 0.30, 0.95))


def _disc(u: F32, v: F32) -> F32:
    return np.hypot(u, v) - 0.82


def _drop(u: F32, v: F32) -> F32:
    radius, length = 0.55, 1.40  # a round end and, so far from its middle, the point in which two tangents meet
    u, side = u + 0.42, np.abs(v)
    slope = radius / length
    flank = math.sqrt(1.0 - slope * slope)
    return np.where(u * flank < side * slope, np.hypot(u, side) - radius, u * slope + side * flank - radius)


def _heart(u: F32, v: F32) -> F32:
    u, side = u - 0.40, np.abs(v) - 0.43  # seen from the middle of a lobe; the heart's point lies at (-1.28, -0.43)
    flank = side * 0.7732 - u * 0.6342 - 0.48  # tangent to the lobe through the point
    notch = np.hypot(u - 0.213, side + 0.43)
    below_lobe = np.maximum(side * 0.6342 + u * 0.7732, side * 0.444 + u * 0.896) < 0.0
    return np.where(below_lobe, np.maximum(flank, -notch), np.hypot(u, side) - 0.48)


def _ring(u: F32, v: F32) -> F32:
    return np.abs(np.hypot(u, v) - 0.68) - 0.22


def _square(u: F32, v: F32) -> F32:
    return _box(u, v, 0.70, 0.70)


def _star(u: F32, v: F32) -> F32:
    sector = 2.0 * math.pi / 5.0
    angle = np.arctan2(v, u)
    angle = np.abs(angle - sector * np.round(angle / sector))  # every arm folded on the half-arm that starts at its tip
    reach = np.hypot(u, v)
    inner_u, inner_v = 0.44 * math.cos(sector / 2.0), 0.44 * math.sin(sector / 2.0)
    edge = math.hypot(1.0 - inner_u, inner_v)
    return ((reach * np.cos(angle) - 1.0) * inner_v + reach * np.sin(angle) * (1.0 - inner_u)) / edge


def _triangle(u: F32, v: F32) -> F32:
    return np.maximum(np.abs(v) * math.sqrt(0.75) + u * 0.5, -u) - 0.48


def _box(u: F32, v: F32, half_u: float, half_v: float) -> F32:
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


def limit(values: F32) -> F32:
    """Cuts to 0 ... 1, in place."""
    np.maximum(values, 0.0, out=values)
    return np.minimum(values, 1.0, out=values)


class Dice:
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
class Body:
    """A flat thing in the picture: signed distance in pixels on a window that may stick out of the image."""

    top: int
    left: int
    distance: F32
    u: F32  # the body's own frame, which carries its texture
    v: F32
    girth_px: float  # how far its middle is from its edge, about

    def coverage(self, softness_px: float = 1.0) -> F32:
        return limit(0.5 - self.distance * (1.0 / softness_px))


@dataclass(frozen=True)
class _Layout:
    objects: list[Body]
    classes: list[int]
    occluders: list[Body]
    visible: list[NDArray[np.bool_]]  # one mask of the whole image for each object


def _place(
    outline: _Outline, size: int, x: float, y: float, radius: float, angle: float, squeeze: float, slim: float = 1.0
) -> Body:
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
    return Body(top, left, outline(u, v) * (radius * math.sqrt(squeeze)), u, v, radius)


def _window(middle: float, size: int, reach: float) -> tuple[int, int]:
    """First and end pixel; beyond the image by a margin in which a body can still cast its shadow into it."""
    reach, margin = reach * 1.05 + 3.0, size / 8.0 + 3.0
    first = math.floor(max(middle - reach, -margin))
    return first, max(math.ceil(min(middle + reach, size + margin)), first + 3)


def bar(dice: Dice, x: float, y: float, size: int) -> Body:
    radius, thickness = dice.between(0.2, 0.45) * size, dice.between(0.012, 0.022) * size
    half = thickness / radius

    def rod(u: F32, v: F32) -> F32:
        return np.hypot(np.maximum(np.abs(u) - (1.0 - half), 0.0), v) - half

    return replace(_place(rod, size, x, y, radius, dice.turn(), 1.0, half), girth_px=2.0 * thickness)


def pebble(dice: Dice, x: float, y: float, size: int) -> Body:
    def oval(u: F32, v: F32) -> F32:
        square_u, square_v = u * u, v * v
        reach = np.sqrt(square_u + square_v) + 1e-6
        cos_thrice = u * (square_u - 3.0 * square_v) / (reach * reach * reach)
        return reach - 0.85 - 0.1 * cos_thrice

    return _place(oval, size, x, y, dice.between(0.05, 0.10) * size, dice.turn(), dice.between(0.4, 0.6))


def _scatter(dice: Dice, spec: ShapesSpec, count: int) -> list[tuple[float, float, float]] | None:
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


def lay_out(dice: Dice, spec: ShapesSpec, label: int) -> _Layout:
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


def _occluder(dice: Dice, places: list[tuple[float, float, float]], size: int) -> Body:
    """A bar or a pebble that lies on one of the objects, or just beside it."""
    form = bar if dice.between(0.0, 1.0) < 0.6 else pebble
    x, y, radius = places[dice.whole(0, len(places))]
    angle, out = dice.turn(), dice.between(0.2, 1.1) * radius
    return form(dice, x + out * math.cos(angle), y + out * math.sin(angle), size)


def _visible(objects: list[Body], occluders: list[Body], size: int) -> list[NDArray[np.bool_]]:
    hidden = np.zeros((size, size), dtype=np.bool_)
    masks = []
    for body in reversed([*objects, *occluders]):
        mask = np.zeros_like(hidden)
        inside, window = overlap(size, body.top, body.left, body.distance.shape)
        mask[inside] = body.distance[window] <= 0.0
        masks.append(mask & ~hidden)
        hidden |= mask
    return masks[: -len(objects) - 1 : -1]


def _seen_well(layout: _Layout, least: float) -> bool:
    return all(
        np.count_nonzero(mask) >= least * np.count_nonzero(body.distance <= 0.0)
        for mask, body in zip(layout.visible, layout.objects, strict=True)
    )


def overlap(size: int, top: int, left: int, shape: tuple[int, ...]) -> tuple[tuple[slice, slice], tuple[slice, slice]]:
    """The part of a window that lies in the image: as a slice of the image, and as a slice of the window."""
    y0, x0 = max(top, 0), max(left, 0)
    y1, x1 = max(min(top + shape[0], size), y0), max(min(left + shape[1], size), x0)
    return (slice(y0, y1), slice(x0, x1)), (slice(y0 - top, y1 - top), slice(x0 - left, x1 - left))
