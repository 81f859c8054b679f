"""From an image with boxes to the square a detector is trained on, as uint8: SSD's crop, flip, resize, colour jitter.

Boxes move with the pixels: a window is rounded to whole pixels before it is checked, so the conditions hold for the
pixels that are cut out. Boxes are left, top, right, bottom as shares of the image, in float64.

Every decision is a function of (seed, epoch, sample). A crop may need many draws: each pass over a sample has its own
row of random numbers, so that they do not depend on how many were needed elsewhere. After PASSES passes without a
window the whole image is taken, which happens to fewer than one image in a hundred million, because each pass takes
the whole image with probability 1/7 anyway.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from vernier.config import Augment, Data
from vernier.data.decoding.decode import Croppable, Image
from vernier.randomness import Stream, key, uniform

from .colour import DRAWS as JITTER_DRAWS
from .colour import jitter_mlperf, jitter_tf
from .crop_flip import mirror, resize_into

Shares = npt.NDArray[np.float64]
Window = tuple[int, int, int, int]  # left, top, right, bottom in pixels

PASSES = 128
TF_TRIALS = 50
_TF_LEAST_IOU = (0.0, 0.1, 0.3, 0.5, 0.7, 0.9)
SMALLEST = 0.3  # smallest side of a window as a fraction of the image's, as in the MLPerf reference
MODES = 7  # a pass draws one of these: 0 is the whole image, the others are overlaps
_AT_ONCE = 16  # windows checked together: numpy's overhead is larger than their arithmetic


@dataclass(frozen=True)
class CropRule:
    """The conditions for a window. A pass draws the whole image or one of the overlaps, then tries its windows."""

    least_iou: tuple[float, ...]
    """Every box must overlap the window by more than the overlap that was drawn; -1: no condition."""
    trials: int
    ratio: tuple[float, float]
    """Width over height of the window as shares of the image; both ends are allowed."""
    last: bool
    """Take the last valid window of a pass instead of the first."""


def crop_rule(augment: Augment) -> CropRule | None:
    """The rule of `augment.crop`: MLPerf's PyTorch reference (ssd), TensorFlow's (ssd-tf), or None: no crop.

    TensorFlow's has no mode without a condition: its 0 still requires that every box is touched. Both sides are less
    than twice the other in all releases of Habana's (0.13.0 to 1.14.0) and in Google's MLPerf v0.6 submissions. Up to
    0.2 Vernier tested one side only: ssd-tf-tall, for runs that began with it.
    """
    if augment.crop == "ssd":
        return CropRule((0.1, 0.3, 0.5, 0.7, 0.9, -1.0), augment.crop_trials, (0.5, 2.0), last=False)
    # The TensorFlow code excludes ratios of exactly 0.5 and 2; `ratio` includes its ends, so they move by one float.
    if augment.crop == "ssd-tf":
        return CropRule(_TF_LEAST_IOU, TF_TRIALS, (float(np.nextafter(0.5, 1)), float(np.nextafter(2, 0))), last=True)
    if augment.crop == "ssd-tf-tall":
        return CropRule(_TF_LEAST_IOU, TF_TRIALS, (0.0, float(np.nextafter(2, 0))), last=True)
    assert augment.crop == "none", f"config.checks lets a detector have no crop {augment.crop}"
    return None


def choose_window(ltrb: Shares, width: int, height: int, rule: CropRule, stream: int, index: int) -> Window:
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


def _windows(
    numbers: Shares, width: int, height: int, rule: CropRule
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.bool_]]:
    """Windows on whole pixels, as shares, from [..., 4] uniform numbers; and which of them have an allowed shape."""
    sizes = SMALLEST + (1 - SMALLEST) * numbers[..., :2]
    corner = numbers[..., 2:] * (1 - sizes)
    image = np.array([width, height, width, height])
    ltrb = np.rint(np.concatenate([corner, corner + sizes], axis=-1) * image) / image
    ratio = sizes[..., 0] / sizes[..., 1]
    usable = (ratio >= rule.ratio[0]) & (ratio <= rule.ratio[1]) & (ltrb[..., 2:] > ltrb[..., :2]).all(axis=-1)
    return ltrb, usable


def _fits(windows: Shares, ltrb: Shares, least_iou: Shares) -> npt.NDArray[np.bool_]:
    """Whether every box overlaps a window by more than its pass requires, and at least one has its centre inside."""
    # [passes, trials, boxes]: every window against every box.
    corner = np.maximum(windows[..., None, :2], ltrb[:, :2])
    shared = np.clip(np.minimum(windows[..., None, 2:], ltrb[:, 2:]) - corner, 0, None).prod(axis=-1)
    areas, box_areas = (windows[..., 2:] - windows[..., :2]).prod(axis=-1), (ltrb[:, 2:] - ltrb[:, :2]).prod(axis=-1)
    iou = shared / np.maximum(areas[..., None] + box_areas - shared, 1e-12)
    fits: npt.NDArray[np.bool_] = (iou > least_iou[:, None, None]).all(axis=-1) & _centred(windows, ltrb).any(axis=-1)
    return fits


def _centred(windows: Shares, ltrb: Shares) -> npt.NDArray[np.bool_]:
    """Whether the centre of each box lies in each window."""
    centre = (ltrb[:, :2] + ltrb[:, 2:]) / 2
    inside: npt.NDArray[np.bool_] = np.all(
        (centre > windows[..., None, :2]) & (centre < windows[..., None, 2:]), axis=-1
    )
    return inside


def clip_to_window(ltrb: Shares, window: Window, width: int, height: int) -> tuple[Shares, npt.NDArray[np.bool_]]:
    """Boxes as shares of a window, clipped at its edges, and a mask of the boxes that have their centre in it."""
    left, top, right, bottom = window
    # Without the arithmetic below, the boxes of a whole image keep every bit, and none is dropped.
    if window == (0, 0, width, height):
        return ltrb, np.ones(len(ltrb), np.bool_)
    edges = np.array([left / width, top / height, right / width, bottom / height])
    inside = _centred(edges, ltrb)
    size = np.tile(edges[2:] - edges[:2], 2)
    return np.clip((ltrb[inside] - np.tile(edges[:2], 2)) / size, 0, 1), inside


def flip_boxes(ltrb: Shares) -> Shares:
    """Boxes of the mirrored image."""
    return np.stack([1 - ltrb[:, 2], ltrb[:, 1], 1 - ltrb[:, 0], ltrb[:, 3]], axis=1)


class BoxAugment:
    """A recipe's augmentation for images with boxes."""

    def __init__(self, data: Data, augment: Augment, seed: int) -> None:
        self._rule = crop_rule(augment)
        self._seed, self._flip = seed, augment.flip
        self._jitter = {"none": None, "mlperf": jitter_mlperf, "tf": jitter_tf}[augment.jitter]
        self._mode = data.interpolation

    def __call__(
        self, epoch: int, index: int, image: Croppable, ltrb: Shares, out: Image
    ) -> tuple[Shares, npt.NDArray[np.bool_]]:
        """Fill `out`, decoding only the window. Returns the boxes that remain, as shares of `out`, and a mask of
        them."""
        height, width = image.shape[:2]
        window = (0, 0, width, height)
        if self._rule is not None:
            stream = key(Stream.BOX_CROP, self._seed, epoch)
            window = choose_window(ltrb, width, height, self._rule, stream, index)
        left, top, right, bottom = window
        resize_into(image[top:bottom, left:right], out, self._mode)
        ltrb, inside = clip_to_window(ltrb, window, width, height)
        row = uniform(key(Stream.BOX_COLOUR, self._seed, epoch), [index], 1 + JITTER_DRAWS)[0]
        if row[0] < self._flip:
            mirror(out)
            ltrb = flip_boxes(ltrb)
        if self._jitter is not None:
            self._jitter(out, row[1:])
        return ltrb, inside
