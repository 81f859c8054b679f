"""Colour jitter beside Pillow's and colorsys' arithmetic, on photographs."""

import colorsys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from PIL import Image, ImageEnhance

from vernier.data.augment.colour import BRIGHTNESS, CONTRAST, HUE, SATURATION, jitter_mlperf, jitter_tf, turn_hue
from vernier.data.decoding.decode import decode

Pixels = npt.NDArray[Any]


@pytest.fixture
def photograph(real_data: Callable[[str], Path]) -> Pixels:
    path = sorted(real_data("coco").rglob("*.jpg"))[3]
    return np.ascontiguousarray(decode(path.read_bytes())[::4, ::4])


def _each(image: Pixels, change: Callable[[float, float, float], tuple[float, float, float]]) -> Pixels:
    """Pixel by pixel through HSV, in 0..1."""
    out = [colorsys.hsv_to_rgb(*change(*colorsys.rgb_to_hsv(*(p / 255)))) for p in image.reshape(-1, 3)]
    return np.array(out).reshape(image.shape) * 255


def _apart(a: Pixels, b: Pixels) -> float:
    return float(np.abs(a.astype(np.float64) - b).max())


@pytest.mark.parametrize("share", [-0.5, -0.05, -0.013, 0.0, 0.02, 0.05, 0.31])
def test_the_hue_is_turned_as_colorsys_does(photograph: Pixels, share: float) -> None:
    ours = photograph.copy()
    turn_hue(ours, share)
    assert _apart(ours, _each(photograph, lambda h, s, v: ((h + share) % 1, s, v))) <= 0.51
    assert (share == 0) == np.array_equal(ours, photograph)


def test_every_colour_keeps_its_largest_and_smallest_channel() -> None:
    image = np.random.default_rng(0).integers(0, 256, (64, 64, 3), dtype=np.uint8)
    image[0, 0], image[0, 1], image[0, 2] = 0, 255, 77
    before = image.copy()
    turn_hue(image, 0.21)
    assert np.array_equal(image.max(axis=2), before.max(axis=2))
    assert np.array_equal(image.min(axis=2), before.min(axis=2))
    assert np.array_equal(image[0, :3], before[0, :3]), "grey has no hue"


def _pillow(image: Pixels, order: tuple[int, ...], factors: tuple[float, ...], share: float) -> Pixels:
    """As torchvision's ColorJitter applies them to a Pillow image, but for the rounding of hue."""
    out = image
    for change in order:
        if change == 3:
            out = np.rint(_each(out, lambda h, s, v: ((h + share) % 1, s, v))).astype(np.uint8)
        else:
            kind = (ImageEnhance.Brightness, ImageEnhance.Contrast, ImageEnhance.Color)[change]
            out = np.asarray(kind(Image.fromarray(out)).enhance(factors[change]))
    return out


@pytest.mark.parametrize(
    ("number", "order"), [(0.0, (0, 1, 2, 3)), (0.999, (3, 2, 1, 0)), (0.27, (1, 0, 2, 3)), (0.76, (3, 0, 1, 2))]
)
def test_mlperfs_jitter_is_torchvisions(photograph: Pixels, number: float, order: tuple[int, ...]) -> None:
    row = np.array([number, 0.1, 0.9, 0.8, 0.3])
    ours = photograph.copy()
    jitter_mlperf(ours, row)
    factors = (1 - 0.8 * BRIGHTNESS, 1 + 0.8 * CONTRAST, 1 + 0.6 * SATURATION)
    expected = _pillow(photograph, order, factors, -0.4 * HUE)
    assert _apart(ours, expected) <= 2
    assert np.abs(ours.astype(int) - expected).mean() < 0.2
    assert np.abs(ours.astype(int) - photograph).mean() > 3


@pytest.mark.parametrize("row", [[0, 0.9, 0.2, 0.8, 0.1], [0, 0.1, 0.9, 0.1, 0.9], [0, 0.5, 0.5, 0.5, 0.5]])
def test_tensorflows_jitter_adds_brightness_and_keeps_its_order(photograph: Pixels, row: list[float]) -> None:
    ours = photograph.copy()
    jitter_tf(ours, np.array(row))
    added, contrast, saturation, turn = (
        (2 * u - 1) * m for u, m in zip(row[1:], (BRIGHTNESS, CONTRAST, SATURATION, HUE), strict=True)
    )
    expected = photograph / 255 + added
    mean = expected.mean(axis=(0, 1))
    expected = np.clip((expected - mean) * (1 + contrast) + mean, 0, 1) * 255
    expected = _each(expected, lambda h, s, v: ((h + turn) % 1, min(1.0, s * (1 + saturation)), v))
    assert _apart(ours, expected) <= 1.01
    if row[1:] == [0.5] * 4:
        assert np.array_equal(ours, photograph)
