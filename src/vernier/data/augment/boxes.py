"""From an image with boxes to the square a detector is trained on, as uint8: SSD's crop, flip, resize, color jitter.

Boxes move with the pixels: a window is rounded to whole pixels before it is checked, so the conditions hold for the
pixels that are cut out. Boxes are left, top, right, bottom as fractions of the image, in float64.

Every decision is a function of (seed, epoch, sample). A crop may need many draws: each pass over a sample has its own
row of random numbers, so that they do not depend on how many were needed elsewhere. After PASSES passes without a
window the whole image is taken, which happens to fewer than one image in a hundred million, because each pass takes
the whole image with probability 1/7 anyway.

Brightness, contrast, saturation and hue are changed on uint8. `mlperf` is torchvision's ColorJitter(0.125, 0.5, 0.5,
0.05): four changes in random order, with Pillow's operations. Only the hue is exact here, where torchvision goes
through 8-bit HSV. `tf` is TensorFlow's: brightness is added, contrast is around each channel's own mean, saturation is
HSV's, and the order is fixed.
"""

import itertools
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from PIL import Image as Pillow
from PIL import ImageEnhance

from vernier.config import Augment, Data
from vernier.data.decoding.decode import Croppable, Image
from vernier.randomness import Stream, key, uniform

from .crop_flip import Row, mirror, resize_into

Planes = npt.NDArray[np.int16]  # [3, pixels]

DRAWS = 5  # of the color jitter: the order, then one strength per change
_LARGEST_CHANGES = BRIGHTNESS, CONTRAST, SATURATION, HUE = 0.125, 0.5, 0.5, 0.05
_ENHANCERS = (ImageEnhance.Brightness, ImageEnhance.Contrast, ImageEnhance.Color)
_FINE = 8  # steps per level, so that three roundings in a row do not show; 13 x 8 x 255 still fits into 16 bits
_ORDERS = tuple(itertools.permutations(range(4)))


def _jitter_mlperf(image: Image, row: Row) -> None:
    """Change `image` in place. The first number of the row gives the order, the others the strengths."""
    changes = _draw_changes(row)
    for number in _ORDERS[int(row[0] * len(_ORDERS))]:
        if number < len(_ENHANCERS):
            enhancer = _ENHANCERS[number](Pillow.fromarray(image))
            image[...] = np.asarray(enhancer.enhance(1 + changes[number]))
        else:
            _turn_hue(image, changes[number])


def _draw_changes(row: Row) -> list[float]:
    """The changes of brightness, contrast, saturation and hue."""
    return [(2 * float(u) - 1) * most for u, most in zip(row[1:], _LARGEST_CHANGES, strict=True)]


def _jitter_tf(image: Image, row: Row) -> None:
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


def _turn_hue(image: Image, share: float) -> None:
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


Shares = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]
Window = tuple[int, int, int, int]  # left, top, right, bottom in pixels

PASSES = 128
TF_TRIALS = 50
_TF_LEAST_IOU = (0.0, 0.1, 0.3, 0.5, 0.7, 0.9)
SMALLEST = 0.3  # smallest side of a window as a fraction of the image's, as in the MLPerf reference
MODES = 7  # a pass draws one of these: 0 is the whole image, the others are overlaps
_AT_ONCE = 16  # windows checked together: numpy's overhead is larger than their arithmetic


@dataclass(frozen=True)
class _CropRule:
    """The conditions for a window. A pass draws the whole image or one of the overlaps, then tries its windows."""

    least_iou: tuple[float, ...]
    """Every box must overlap the window by more than the overlap that was drawn; -1: no condition."""
    trials: int
    ratio: tuple[float, float]
    """Width over height of the window as shares of the image; both ends are allowed."""
    last: bool
    """Take the last valid window of a pass instead of the first."""


def _crop_rule(augment: Augment) -> _CropRule | None:
    """The rule of `augment.crop`: MLPerf's PyTorch reference (ssd), TensorFlow's (ssd-tf), or None: no crop.

    TensorFlow's has no mode without a condition: its 0 still requires that every box is touched. Both sides are less
    than twice the other in all releases of Habana's (0.13.0 to 1.14.0) and in Google's MLPerf v0.6 submissions. Up to
    0.2 Vernier tested one side only: ssd-tf-tall, for runs that began with it.
    """
    if augment.crop == "ssd":
        return _CropRule((0.1, 0.3, 0.5, 0.7, 0.9, -1.0), augment.crop_trials, (0.5, 2.0), last=False)
    # The TensorFlow code excludes ratios of exactly 0.5 and 2; `ratio` includes its ends, so they move by one float.
    if augment.crop == "ssd-tf":
        return _CropRule(_TF_LEAST_IOU, TF_TRIALS, (float(np.nextafter(0.5, 1)), float(np.nextafter(2, 0))), last=True)
    if augment.crop == "ssd-tf-tall":
        return _CropRule(_TF_LEAST_IOU, TF_TRIALS, (0.0, float(np.nextafter(2, 0))), last=True)
    assert augment.crop == "none", f"config.checks lets a detector have no crop {augment.crop}"
    return None


def _choose_window(ltrb: Shares, width: int, height: int, rule: _CropRule, stream: int, index: int) -> Window:
    """Choose the window of an image with these boxes, with random numbers of `stream` for sample `index`."""
    passes = max(1, _AT_ONCE // rule.trials)
    for first in range(0, PASSES if len(ltrb) else 0, passes):
        # [passes, 1 + 4 * trials]: the mode, then width, height, x and y of each window.
        rows = uniform(stream, index * PASSES + np.arange(first, first + passes), 1 + 4 * rule.trials)
        mode = (rows[:, 0] * MODES).astype(np.intp)
        if mode[0] == 0:
            break
        windows, usable = _windows(rows[:, 1:].reshape(passes, rule.trials, 4), width, height, rule)
        least_iou = np.array((0.0, *rule.least_iou))[mode]
        valid = usable & (mode > 0)[:, None] & _fits(windows, ltrb, least_iou)
        # The first pass that took the whole image or has a valid window ends the search. Later ones were checked for
        # speed only: the result is the same as checking pass by pass.
        decided = (mode == 0) | valid.any(axis=1)
        if decided.any():
            number = int(decided.argmax())
            if mode[number] == 0:
                break
            trials = np.flatnonzero(valid[number])
            left, top, right, bottom = windows[number, trials[-1 if rule.last else 0]]
            return round(left * width), round(top * height), round(right * width), round(bottom * height)
    return 0, 0, width, height


def _windows(numbers: Shares, width: int, height: int, rule: _CropRule) -> tuple[Shares, Mask]:
    """Windows on whole pixels, as shares, from [..., 4] uniform numbers; and which of them have an allowed shape."""
    sizes = SMALLEST + (1 - SMALLEST) * numbers[..., :2]
    corner = numbers[..., 2:] * (1 - sizes)
    image = np.array([width, height, width, height])
    ltrb = np.rint(np.concatenate([corner, corner + sizes], axis=-1) * image) / image
    ratio = sizes[..., 0] / sizes[..., 1]
    usable = (ratio >= rule.ratio[0]) & (ratio <= rule.ratio[1]) & (ltrb[..., 2:] > ltrb[..., :2]).all(axis=-1)
    return ltrb, usable


def _fits(windows: Shares, ltrb: Shares, least_iou: Shares) -> Mask:
    """Whether every box overlaps a window by more than its pass requires, and at least one has its centre inside."""
    # [passes, trials, boxes]: every window against every box.
    corner = np.maximum(windows[..., None, :2], ltrb[:, :2])
    shared = np.clip(np.minimum(windows[..., None, 2:], ltrb[:, 2:]) - corner, 0, None).prod(axis=-1)
    areas, box_areas = (windows[..., 2:] - windows[..., :2]).prod(axis=-1), (ltrb[:, 2:] - ltrb[:, :2]).prod(axis=-1)
    iou = shared / np.maximum(areas[..., None] + box_areas - shared, 1e-12)
    fits: Mask = (iou > least_iou[:, None, None]).all(axis=-1) & _centred(windows, ltrb).any(axis=-1)
    return fits


def _centred(windows: Shares, ltrb: Shares) -> Mask:
    """Whether the centre of each box lies in each window."""
    centre = (ltrb[:, :2] + ltrb[:, 2:]) / 2
    inside: Mask = np.all((centre > windows[..., None, :2]) & (centre < windows[..., None, 2:]), axis=-1)
    return inside


def _clip_to_window(ltrb: Shares, window: Window, width: int, height: int) -> tuple[Shares, Mask]:
    """Boxes as shares of a window, clipped at its edges, and a mask of the boxes that have their centre in it."""
    left, top, right, bottom = window
    # Without the arithmetic below, the boxes of a whole image keep every bit, and none is dropped.
    if window == (0, 0, width, height):
        return ltrb, np.ones(len(ltrb), np.bool_)
    edges = np.array([left / width, top / height, right / width, bottom / height])
    inside = _centred(edges, ltrb)
    size = np.tile(edges[2:] - edges[:2], 2)
    return np.clip((ltrb[inside] - np.tile(edges[:2], 2)) / size, 0, 1), inside


def _flip_boxes(ltrb: Shares) -> Shares:
    """Boxes of the mirrored image."""
    return np.stack([1 - ltrb[:, 2], ltrb[:, 1], 1 - ltrb[:, 0], ltrb[:, 3]], axis=1)


class BoxAugment:
    """A recipe's augmentation for images with boxes."""

    def __init__(self, data: Data, augment: Augment, seed: int) -> None:
        self._rule = _crop_rule(augment)
        self._seed, self._flip = seed, augment.flip
        self._jitter = {"none": None, "mlperf": _jitter_mlperf, "tf": _jitter_tf}[augment.jitter]
        self._mode = data.interpolation

    def __call__(self, epoch: int, index: int, image: Croppable, ltrb: Shares, out: Image) -> tuple[Shares, Mask]:
        """Fill `out`, decoding only the window. Returns the boxes that remain, as shares of `out`, and a mask of
        them."""
        height, width = image.shape[:2]
        window = (0, 0, width, height)
        if self._rule is not None:
            stream = key(Stream.BOX_CROP, self._seed, epoch)
            window = _choose_window(ltrb, width, height, self._rule, stream, index)
        left, top, right, bottom = window
        resize_into(image[top:bottom, left:right], out, self._mode)
        ltrb, inside = _clip_to_window(ltrb, window, width, height)
        row = uniform(key(Stream.BOX_COLOUR, self._seed, epoch), [index], 1 + DRAWS)[0]
        if row[0] < self._flip:
            mirror(out)
            ltrb = _flip_boxes(ltrb)
        if self._jitter is not None:
            self._jitter(out, row[1:])
        return ltrb, inside
