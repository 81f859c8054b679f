"""Changes of a training image after cropping and resizing: TrivialAugmentWide, RandAugment, random erasing.

Works on uint8 images, with Pillow's operations. Each change is a function of a row of uniform numbers, which
`randomness.uniform` makes from (seed, epoch, sample). Cropping and flipping are in `crop_flip`.
"""

from collections.abc import Callable
from statistics import NormalDist

import numpy as np
from PIL import Image as Pillow
from PIL import ImageEnhance, ImageOps

from vernier.config import Augment, Data
from vernier.data.decoding.decode import Image

from .crop_flip import BOX_ATTEMPTS, Row, draw_box

Picture = Pillow.Image
Colour = tuple[int, ...] | int

_ERASE_AREA = (0.02, 0.33)  # this and the ratio are those of torchvision's RandomErasing
_ERASE_RATIO = (0.3, 3.3)
_ERASE_DRAWS = 1 + 4 * BOX_ATTEMPTS  # whether to erase, then the attempts at a rectangle
_DRAWS_PER_OP = 5  # of which RandAugment uses four, TrivialAugment three
_TRIVIAL_BINS = 31
_RAND_CHANCE = 0.5  # timm's RandAugment skips each chosen operation half of the time
_RAND_TOP = 10.0  # timm's magnitudes go from 0 to 10
_FULL_TURN = 135.0  # degrees; torchvision's largest rotation in TrivialAugmentWide


class PixelAugment:
    """A recipe's policy and erasing for one image. Takes `draws` uniform numbers per image; 0 when both are off."""

    def __init__(self, data: Data, augment: Augment) -> None:
        self._augment = augment
        mean = tuple(round(255 * m) for m in data.mean)
        self._mean: Colour = mean[0] if len(mean) == 1 else mean
        self._policy_draws = _DRAWS_PER_OP * {"none": 0, "trivial-wide": 1, "rand": augment.rand_ops}[augment.policy]
        self.draws = self._policy_draws + (_ERASE_DRAWS if augment.erase > 0 else 0)

    def __call__(self, image: Image, row: Row) -> None:
        """Change `image` in place."""
        if self._augment.policy != "none":
            # Pillow has no gray images of shape [height, width, 1].
            picture = Pillow.fromarray(image[:, :, 0] if image.shape[2] == 1 else image)
            picture = self._apply_policy(picture, row[: self._policy_draws].reshape(-1, _DRAWS_PER_OP))
            image[...] = np.asarray(picture).reshape(image.shape)
        if self._augment.erase > 0:
            _erase(image, row[self._policy_draws :], self._augment.erase, self._mean)

    def _apply_policy(self, picture: Picture, rows: Row) -> Picture:
        if self._augment.policy == "trivial-wide":
            return _trivial_wide(picture, rows[0])
        for row in rows:
            picture = _rand_op(picture, row, self._augment.rand_magnitude, self._augment.rand_std, self._mean)
        return picture


# ------------------------------------------------------------------------------------------------ single operations


_ENHANCERS: dict[str, Callable[[Picture], ImageEnhance._Enhance]] = {
    "brightness": ImageEnhance.Brightness,
    "color": ImageEnhance.Color,
    "contrast": ImageEnhance.Contrast,
    "sharpness": ImageEnhance.Sharpness,
}
_PLAIN_OPS: dict[str, Callable[[Picture], Picture]] = {
    "autocontrast": ImageOps.autocontrast,
    "equalize": ImageOps.equalize,
    "invert": ImageOps.invert,
}
"""Operations without a strength."""


def _change(
    picture: Picture,
    name: str,
    *,
    shear: float,
    shift_px: tuple[float, float],
    degrees: float,
    bits: int,
    solarize_from: int,
    added: int = 0,
    enhancement: float,
    fill: Colour,
) -> Picture:
    """One operation, with the strength that it would have. Pixels from outside the image get the color `fill`."""
    if name in _PLAIN_OPS:
        return _PLAIN_OPS[name](picture)
    if name in _ENHANCERS:
        return _ENHANCERS[name](picture).enhance(enhancement)
    match name:
        case "identity":
            return picture
        case "rotate":
            return picture.rotate(degrees, Pillow.Resampling.BILINEAR, fillcolor=fill)
        case "posterize":
            # At the greatest magnitude no bit is left: black, which Pillow refuses to make.
            return ImageOps.posterize(picture, bits) if bits else Pillow.new(picture.mode, picture.size)
        case "solarize":
            return ImageOps.solarize(picture, solarize_from)
        case "solarize-add":
            table = [min(255, value + added) if value < 128 else value for value in range(256)]
            return picture.point(table * len(picture.getbands()))
    # Pillow's matrix maps a pixel of the result to its place in the input: hence the minus for a shift to the right.
    matrix = {
        "shear-x": (1, shear, 0, 0, 1, 0),
        "shear-y": (1, 0, 0, shear, 1, 0),
        "translate-x": (1, 0, -shift_px[0], 0, 1, 0),
        "translate-y": (1, 0, 0, 0, 1, -shift_px[1]),
    }[name]
    return picture.transform(picture.size, Pillow.Transform.AFFINE, matrix, Pillow.Resampling.BILINEAR, fillcolor=fill)


# --------------------------------------------------------------------------------------------- TrivialAugmentWide

TRIVIAL_OPS = [
    "identity",
    "shear-x",
    "shear-y",
    "translate-x",
    "translate-y",
    "rotate",
    "brightness",
    "color",
    "contrast",
    "sharpness",
    "posterize",
    "solarize",
    "autocontrast",
    "equalize",
]


def _trivial_wide(picture: Picture, row: Row) -> Picture:
    """One of fourteen operations at one of 31 strengths, as in torchvision (Mueller and Hutter 2021)."""
    name = TRIVIAL_OPS[int(row[0] * len(TRIVIAL_OPS))]
    strength = int(row[1] * _TRIVIAL_BINS) / (_TRIVIAL_BINS - 1)
    signed = strength if row[2] < 0.5 else -strength
    return _change(
        picture,
        name,
        fill=0 if picture.mode == "L" else (0, 0, 0),  # torchvision's default; timm's RandAugment fills with the mean
        shear=0.99 * signed,
        shift_px=(int(32 * signed), int(32 * signed)),
        degrees=_FULL_TURN * signed,
        bits=8 - round(6 * strength),
        solarize_from=round(255 * (1 - strength)),
        enhancement=1 + 0.99 * signed,
    )


# ------------------------------------------------------------------------------------------------------ RandAugment

RAND_OPS = [
    "autocontrast",
    "equalize",
    "invert",
    "rotate",
    "posterize",
    "solarize",
    "solarize-add",
    "color",
    "contrast",
    "brightness",
    "sharpness",
    "shear-x",
    "shear-y",
    "translate-x",
    "translate-y",
]


def _rand_op(picture: Picture, row: Row, magnitude: float, std: float, fill: Colour) -> Picture:
    """One of fifteen operations, half of the time, in timm's "increasing" ranges: a larger magnitude changes more."""
    if row[1] >= _RAND_CHANCE:
        return picture
    name = RAND_OPS[int(row[0] * len(RAND_OPS))]
    # timm's gauss(magnitude, std) from a single uniform number; inv_cdf raises an error at exactly 0 and 1.
    drawn = magnitude + std * NormalDist().inv_cdf(min(max(float(row[2]), 1e-12), 1 - 1e-12)) if std > 0 else magnitude
    strength = min(max(drawn, 0.0), _RAND_TOP) / _RAND_TOP
    signed = strength if row[3] < 0.5 else -strength
    return _change(
        picture,
        name,
        fill=fill,
        shear=0.3 * signed,
        shift_px=(0.45 * signed * picture.width, 0.45 * signed * picture.height),
        degrees=30 * signed,
        bits=4 - int(4 * strength),
        solarize_from=256 - min(256, int(256 * strength)),
        added=min(128, int(110 * strength)),
        enhancement=max(0.1, 1 + 0.9 * signed),
    )


# ---------------------------------------------------------------------------------------------------------- erasing


def _erased_box(height: int, width: int, row: Row) -> tuple[int, int, int, int] | None:
    """Top, left, height, width of a rectangle of 2 to 33 % of the area; None when none of ten draws fits."""
    # Height in the place of the width: RandomErasing's ratio is height over width.
    return draw_box(height, width, _ERASE_AREA, _ERASE_RATIO, row, whole=False)


def _erase(image: Image, row: Row, chance: float, fill: Colour) -> None:
    """Erase a random rectangle: it gets the mean color, which is zero after normalization."""
    if row[0] >= chance:
        return
    box = _erased_box(image.shape[0], image.shape[1], row[1:])
    if box is not None:
        top, left, h, w = box
        image[top : top + h, left : left + w] = fill
