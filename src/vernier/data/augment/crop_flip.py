"""From a decoded image to the square the network gets, as uint8: crop, resize, flip.

A random transform is a function of a row of uniform numbers, which `randomness.uniform` makes from (seed, epoch,
sample). Resizing is torch's antialiased uint8 kernel, which agrees with Pillow's. Further changes of pixels are in
`policies`.
"""

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
import torch

from vernier.config import Augment, Data
from vernier.data.decoding.decode import Croppable, Image, LazyJpeg
from vernier.randomness import Stream, key, uniform
from vernier.torch_private import resize_antialiased, resize_each_antialiased

Row = npt.NDArray[np.float64]
DRAWS = 42  # uniform numbers per training image: 10 crop attempts of 4, flip, one spare
BOX_ATTEMPTS = 10


FLIP = -2  # column of the uniform numbers: an image is mirrored where it is below augment.flip


def augment_rows(seed: int, epoch: int, indices: npt.NDArray[np.int64], rule: str = "random") -> Row:
    """One row of uniform numbers per sample, so that every backend crops and flips alike.

    `rule` is augment.flip_rule. Alternating, the number that decides about a flip is that of epoch 0, and in odd epochs
    its complement: two epochs in a row show every image both ways.
    """
    rows = uniform(key(Stream.CROP_FLIP, seed, epoch), indices, DRAWS)
    if rule == "alternate":
        # Epoch 0 decides, so a run that resumes in any epoch needs no state to continue the alternation.
        first = rows if epoch == 0 else uniform(key(Stream.CROP_FLIP, seed, 0), indices, DRAWS)
        rows[:, FLIP] = 1 - first[:, FLIP] if epoch % 2 else first[:, FLIP]
    return rows


def resize(image: Image, width: int, height: int, mode: str = "bilinear") -> Image:
    """Resize with antialiasing; `mode` is bilinear or bicubic."""
    if image.shape[:2] == (height, width):
        return image
    out = np.empty((height, width, image.shape[2]), dtype=np.uint8)
    resize_into(image, out, mode)
    return out


def resize_into(image: Image, out: Image, mode: str = "bilinear", *, flipped: bool = False) -> None:
    """Resize to the size of `out`, which must be contiguous; with `flipped`, mirror left to right.

    Mirrors before or after the resizing, wherever there are fewer pixels.
    Every call of torch hands the interpreter's lock to another thread, which is why the views are numpy's.
    """
    flip_first = flipped and image.size <= out.size
    if image.shape == out.shape:
        out[...] = image
        flip_first = False
    else:
        if not image.flags.writeable:  # torch warns about memory it could write to but must not
            image = np.array(image)
        # Views [1, channels, height, width] whose memory stays channels-last: the kernel writes `out` without a copy.
        pixels = torch.from_numpy(image.transpose(2, 0, 1)[None])
        if flip_first:
            pixels = pixels.flip(3)
        resize_antialiased(pixels, mode, torch.from_numpy(out.transpose(2, 0, 1)[None]))
    if flipped and not flip_first:
        mirror(out)


def _resize_many_into(images: list[Image], out: Image, mode: str, flipped: list[bool]) -> None:
    """`resize_into` for every row of `out` in one call, without the interpreter's lock until all are done.

    Small decoded images take so little time each that threads would otherwise wait for the lock.
    """
    views = [(i if i.flags.writeable else np.array(i)).transpose(2, 0, 1)[None] for i in images]
    pixels = torch.from_numpy(out.transpose(0, 3, 1, 2))
    resize_each_antialiased([torch.from_numpy(v) for v in views], flipped, mode, pixels)


def mirror(image: Image) -> None:
    """Flip left to right in place; ten times faster than numpy's reversed slice."""
    pixels = torch.from_numpy(image.transpose(2, 0, 1)[None])  # torch's flip is fastest for four dimensions
    pixels.copy_(pixels.flip(3))


def draw_box(
    width: int, height: int, area: tuple[float, float], ratio: tuple[float, float], row: Row, *, whole: bool = True
) -> tuple[int, int, int, int] | None:
    """Left, top, width, height of a box of random area and ratio; None when none of ten draws fits.

    `whole`: it may be as wide or as high as the image.
    """
    log_low, log_high = map(math.log, ratio)
    for attempt in range(BOX_ATTEMPTS):
        a, r, x, y = row[4 * attempt : 4 * attempt + 4].tolist()
        pixels = width * height * (area[0] + a * (area[1] - area[0]))
        # Uniform in the logarithm, as in torchvision: 3/4 is as likely as 4/3.
        shape = math.exp(log_low + r * (log_high - log_low))
        w, h = round(math.sqrt(pixels * shape)), round(math.sqrt(pixels / shape))
        # torchvision's RandomResizedCrop may take a whole side, its RandomErasing must not.
        if 0 < w < width + whole and 0 < h < height + whole:
            return int(x * (width - w + 1)), int(y * (height - h + 1)), w, h
    return None


def random_crop_box(width: int, height: int, augment: Augment, row: Row) -> tuple[int, int, int, int]:
    """Left, top, width, height of a crop of random area and ratio; of the centre when none of ten draws fits."""
    if (box := draw_box(width, height, augment.area, augment.ratio, row)) is not None:
        return box
    # torchvision's fallback: the largest centered crop of an allowed ratio.
    w, h = width, height
    if width / height < augment.ratio[0]:
        h = round(width / augment.ratio[0])
    elif width / height > augment.ratio[1]:
        w = round(height * augment.ratio[1])
    return (width - w) // 2, (height - h) // 2, w, h


@dataclass(frozen=True)
class TrainTransform:
    """Crops, resizes and flips one training image."""

    data: Data
    augment: Augment

    def __call__(self, image: Croppable, row: Row, out: Image) -> None:
        self.finish(self.crop(image, row, out.shape[0]), row, out)

    def crop(self, image: Croppable, row: Row, size: int) -> Image:
        """The part of an image that becomes a square of `size`. Decodes a lazy image; raises BadImage where it is
        bad."""
        if self.augment.crop != "random-resized":
            whole: Image = image[:, :]
            return whole
        left, top, w, h = random_crop_box(image.shape[1], image.shape[0], self.augment, row)
        factor = _reduction(w, h, size) if self.data.scaled_decode and isinstance(image, LazyJpeg) else 1
        if factor == 1:
            crop: Image = image[top : top + h, left : left + w]
            return crop
        assert isinstance(image, LazyJpeg)
        top, bottom, left, right = ((2 * at + factor) // (2 * factor) for at in (top, top + h, left, left + w))
        return image.decode_window((slice(top, bottom), slice(left, right)), factor)

    def finish(self, crop: Image, row: Row, out: Image) -> None:
        """Resize a crop into `out`, shift and flip it."""
        mode = self.data.interpolation
        if self.augment.crop == "pad":
            square = resize(crop, out.shape[1], out.shape[0], mode)
            pad_crop_flip_many(square[None], row[None], self.augment, out[None])
        else:
            resize_into(crop, out, mode, flipped=bool(row[FLIP] < self.augment.flip))

    def finish_many(self, crops: list[Image], rows: Row, out: Image) -> None:
        """`finish` for every row of `out` at once; not for crop = pad."""
        assert self.augment.crop != "pad"
        _resize_many_into(crops, out, self.data.interpolation, (rows[:, FLIP] < self.augment.flip).tolist())


def _reduction(width: int, height: int, size: int) -> int:
    """The factor by which the decoder may reduce a crop that becomes a square of `size`: 8, 4, 2 or 1."""
    return next((f for f in (8, 4, 2) if min(width, height) >= f * size), 1)


@dataclass(frozen=True)
class EvalTransform:
    """Resizes the short side of one evaluation image and crops the centre."""

    data: Data

    def __call__(self, image: Image, out: Image) -> None:
        height, width = image.shape[:2]
        short, size = self.data.eval_short_side_px, self.data.eval_px
        # The rounding is torchvision's: Resize truncates the long side, CenterCrop rounds the corner.
        if width <= height:
            w, h = short, int(short * height / width)
        else:
            w, h = int(short * width / height), short
        image = resize(image, w, h, self.data.interpolation)
        top, left = round((h - size) / 2), round((w - size) / 2)
        out[...] = image[top : top + size, left : left + size]


def pad_crop_flip_many(images: Image, rows: Row, augment: Augment, out: Image) -> None:
    """`TrainTransform` with crop = pad or none for many small images of the target size at once.

    Moves each by up to `augment.pad_px` pixels in both directions, with black or its mirror image where it was not, and
    flips it.
    """
    count, size = len(images), images.shape[1]
    pad = augment.pad_px if augment.crop == "pad" else 0
    top, left = (rows[:, :2] * (2 * pad + 1)).astype(np.intp).T
    mode: Literal["constant", "reflect"] = "reflect" if augment.border == "reflect" else "constant"
    framed = np.pad(images, ((0, 0), (pad, pad), (pad, pad), (0, 0)), mode)
    # A view of all shifts, [samples, y, x, channels, size, size]; only the chosen ones are copied.
    windows = np.lib.stride_tricks.sliding_window_view(framed, (size, size), axis=(1, 2))
    out[...] = windows[np.arange(count), top, left].transpose(0, 2, 3, 1)
    flipped = rows[:, FLIP] < augment.flip
    out[flipped] = out[flipped, :, ::-1]
