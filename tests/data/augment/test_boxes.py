"""Crops, flips and the boxes that go with them."""

import colorsys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageEnhance

from vernier.config import Augment, Data
from vernier.data.augment.boxes import (
    BRIGHTNESS,
    CONTRAST,
    HUE,
    MODES,
    PASSES,
    SATURATION,
    BoxAugment,
    _choose_window,
    _clip_to_window,
    _crop_rule,
    _flip_boxes,
    _jitter_mlperf,
    _jitter_tf,
    _turn_hue,
)
from vernier.data.decoding.decode import decode
from vernier.randomness import uniform

Shares = npt.NDArray[np.float64]
RULES = [Augment(crop="ssd"), Augment(crop="ssd", crop_trials=50), Augment(crop="ssd-tf"), Augment(crop="ssd-tf-tall")]
SIZES = st.tuples(st.integers(1, 900), st.integers(1, 900))


@st.composite
def boxes(draw: st.DrawFn, most: int = 5) -> Shares:
    count = draw(st.integers(1, most))
    number = st.floats(0, 1, allow_subnormal=False)
    out = []
    for _ in range(count):
        w, h = 0.01 + 0.98 * draw(number), 0.01 + 0.98 * draw(number)
        left, top = draw(number) * (1 - w), draw(number) * (1 - h)
        out.append((left, top, min(1.0, left + w), min(1.0, top + h)))
    return np.array(out)


def _iou(a: tuple[float, ...], b: tuple[float, ...]) -> float:
    """Written out, to check what is vectorised."""
    wide = min(a[2], b[2]) - max(a[0], b[0])
    high = min(a[3], b[3]) - max(a[1], b[1])
    shared = max(wide, 0.0) * max(high, 0.0)
    return shared / ((a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1]) - shared)


def _inside(window: tuple[float, ...], box: tuple[float, ...]) -> bool:
    x, y = (box[0] + box[2]) / 2, (box[1] + box[3]) / 2
    return window[0] < x < window[2] and window[1] < y < window[3]


@pytest.mark.parametrize("augment", RULES)
@given(ltrb=boxes(), size=SIZES, index=st.integers(0, 10**9), at=st.integers(0, 2**63))
@settings(deadline=None, max_examples=150)
def test_a_window_satisfies_the_conditions_of_its_pass(
    augment: Augment, ltrb: Shares, size: tuple[int, int], index: int, at: int
) -> None:
    """The passes are gone through one by one, with arithmetic of their own, until one ends the search."""
    rule = _crop_rule(augment)
    assert rule is not None
    width, height = size
    window = _choose_window(ltrb, width, height, rule, at, index)
    assert window == _slow(ltrb, width, height, augment, at, index)
    assert 0 <= window[0] < window[2] <= width
    assert 0 <= window[1] < window[3] <= height


def _slow(ltrb: Shares, width: int, height: int, augment: Augment, at: int, index: int) -> tuple[int, ...]:
    tensorflow = augment.crop in ("ssd-tf", "ssd-tf-tall")
    trials = 50 if tensorflow else augment.crop_trials
    for number in range(PASSES):
        row = uniform(at, [index * PASSES + number], 1 + 4 * trials)[0].tolist()
        mode = int(row[0] * MODES)
        if mode == 0:
            break
        demanded = ((0.0, 0.1, 0.3, 0.5, 0.7, 0.9) if tensorflow else (0.1, 0.3, 0.5, 0.7, 0.9, -1.0))[mode - 1]
        good = []
        for trial in range(trials):
            a, b, c, d = row[1 + 4 * trial : 5 + 4 * trial]
            w, h = 0.3 + 0.7 * a, 0.3 + 0.7 * b
            left, top = c * (1 - w), d * (1 - h)
            px = tuple(round(v) for v in (left * width, top * height, (left + w) * width, (top + h) * height))
            if px[2] <= px[0] or px[3] <= px[1] or w / h >= 2:
                continue
            if (h / w >= 2 and augment.crop == "ssd-tf") or (w / h < 0.5 and augment.crop == "ssd"):
                continue
            shares = (px[0] / width, px[1] / height, px[2] / width, px[3] / height)
            overlaps = [_iou(shares, tuple(box)) for box in ltrb.tolist()]
            if all(o > demanded for o in overlaps) and any(_inside(shares, tuple(box)) for box in ltrb.tolist()):
                good.append(px)
        if good:
            return good[-1] if tensorflow else good[0]
    return 0, 0, width, height


def test_the_modes_are_equally_likely_and_most_windows_are_crops() -> None:
    """A box that fills the image: the whole image one time in seven for each pass, more often where passes fail."""
    rule = _crop_rule(Augment(crop="ssd", crop_trials=50))
    assert rule is not None
    ltrb = np.array([[0.0, 0.0, 1.0, 1.0]])
    whole = sum(_choose_window(ltrb, 1000, 1000, rule, 7, i) == (0, 0, 1000, 1000) for i in range(700))
    assert 100 < whole < 200, "1/7, and a little more for windows of more than 0.9, which 50 trials do not always find"


def test_an_image_without_boxes_stays_whole() -> None:
    rule = _crop_rule(Augment(crop="ssd"))
    assert rule is not None
    assert {_choose_window(np.zeros((0, 4)), 64, 48, rule, 1, i) for i in range(50)} == {(0, 0, 64, 48)}


@given(ltrb=boxes(12), size=st.tuples(st.integers(20, 900), st.integers(20, 900)), data=st.data())
@settings(deadline=None, max_examples=200)
def test_boxes_of_a_window_lie_in_it_and_mean_the_same_pixels(
    ltrb: Shares, size: tuple[int, int], data: st.DataObject
) -> None:
    width, height = size
    left, top = data.draw(st.integers(0, width - 6)), data.draw(st.integers(0, height - 6))
    right, bottom = data.draw(st.integers(left + 6, width)), data.draw(st.integers(top + 6, height))
    inside, mask = _clip_to_window(ltrb, (left, top, right, bottom), width, height)
    assert len(inside) == mask.sum() <= len(ltrb)
    assert ((inside >= 0) & (inside <= 1)).all()
    assert (inside[:, 2:] > inside[:, :2]).all()
    pixels, window = ltrb * [width, height, width, height], np.array([right - left, bottom - top] * 2)
    for box, new in zip(pixels[mask], inside, strict=True):
        x, y = (box[0] + box[2]) / 2, (box[1] + box[3]) / 2
        assert left - 1e-6 < x < right + 1e-6
        assert top - 1e-6 < y < bottom + 1e-6
        back = new * window + [left, top, left, top]
        np.testing.assert_allclose(back, np.clip(box, [left, top] * 2, [right, bottom] * 2), atol=1e-6)
    for box in pixels[~mask]:
        x, y = (box[0] + box[2]) / 2, (box[1] + box[3]) / 2
        assert not (left + 1e-6 < x < right - 1e-6 and top + 1e-6 < y < bottom - 1e-6)


@given(boxes(8))
def test_flipping_twice_changes_nothing(ltrb: Shares) -> None:
    once = _flip_boxes(ltrb)
    assert (once[:, 2:] > once[:, :2]).all()
    np.testing.assert_allclose(_flip_boxes(once), ltrb, atol=1e-12)


def _scene() -> tuple[npt.NDArray[np.uint8], Shares]:
    """A black image with one white rectangle: the box can be read off the pixels."""
    image = np.zeros((120, 200, 3), np.uint8)
    image[30:90, 50:150] = 255
    return image, np.array([[0.25, 0.25, 0.75, 0.75]])


@pytest.mark.parametrize("crop", ["ssd", "ssd-tf", "ssd-tf-tall", "none"])
def test_boxes_are_where_the_pixels_are(crop: str) -> None:
    image, ltrb = _scene()
    augment = BoxAugment(Data(), Augment(crop=crop, flip=0.5), seed=3)  # type: ignore[arg-type]
    out, widths = np.empty((100, 100, 3), np.uint8), set()
    for index in range(60):
        (box,), mask = augment(0, index, image, ltrb, out)
        assert mask.tolist() == [True]
        columns, rows = np.flatnonzero((out[..., 0] > 127).any(axis=0)), np.flatnonzero((out[..., 0] > 127).any(axis=1))
        seen = np.array([columns[0], rows[0], columns[-1] + 1, rows[-1] + 1])
        np.testing.assert_allclose(box * 100, seen, atol=2.0)
        widths.add(round(float(box[2] - box[0]), 3))
    assert len(widths) > 15 or crop == "none"


def test_a_sample_is_the_same_every_time_and_another_in_another_epoch_or_seed() -> None:
    image = np.random.default_rng(0).integers(0, 256, (120, 200, 3), dtype=np.uint8)
    ltrb = _scene()[1]

    def look(seed: int, epoch: int, index: int) -> bytes:
        out = np.empty((64, 64, 3), np.uint8)
        boxes, _ = BoxAugment(Data(), Augment(crop="ssd", jitter="mlperf"), seed)(epoch, index, image, ltrb, out)
        return out.tobytes() + boxes.tobytes()

    assert look(1, 2, 3) == look(1, 2, 3)
    assert len({look(1, 2, 3), look(1, 2, 4), look(1, 3, 3), look(2, 2, 3)}) == 4


def test_flips_come_half_of_the_time() -> None:
    image, ltrb = _scene()
    ltrb = ltrb * [0.5, 1, 0.5, 1]
    out = np.empty((16, 16, 3), np.uint8)
    augment = BoxAugment(Data(), Augment(crop="none"), 0)
    turned = sum(augment(0, i, image, ltrb, out)[0][0, 0] > 0.5 for i in range(400))
    assert 160 < turned < 240


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
    _turn_hue(ours, share)
    assert _apart(ours, _each(photograph, lambda h, s, v: ((h + share) % 1, s, v))) <= 0.51
    assert (share == 0) == np.array_equal(ours, photograph)


def test_every_colour_keeps_its_largest_and_smallest_channel() -> None:
    image = np.random.default_rng(0).integers(0, 256, (64, 64, 3), dtype=np.uint8)
    image[0, 0], image[0, 1], image[0, 2] = 0, 255, 77
    before = image.copy()
    _turn_hue(image, 0.21)
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
    _jitter_mlperf(ours, row)
    factors = (1 - 0.8 * BRIGHTNESS, 1 + 0.8 * CONTRAST, 1 + 0.6 * SATURATION)
    expected = _pillow(photograph, order, factors, -0.4 * HUE)
    assert _apart(ours, expected) <= 2
    assert np.abs(ours.astype(int) - expected).mean() < 0.2
    assert np.abs(ours.astype(int) - photograph).mean() > 3


@pytest.mark.parametrize("row", [[0, 0.9, 0.2, 0.8, 0.1], [0, 0.1, 0.9, 0.1, 0.9], [0, 0.5, 0.5, 0.5, 0.5]])
def test_tensorflows_jitter_adds_brightness_and_keeps_its_order(photograph: Pixels, row: list[float]) -> None:
    ours = photograph.copy()
    _jitter_tf(ours, np.array(row))
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
