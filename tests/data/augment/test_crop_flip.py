import io
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from vernier.config import Augment, Data
from vernier.data.augment.crop_flip import (
    DRAWS,
    FLIP,
    EvalTransform,
    TrainTransform,
    _reduction,
    augment_rows,
    mirror,
    pad_crop_flip_many,
    random_crop_box,
    resize,
    resize_into,
)
from vernier.data.decoding.decode import decode, lazy_image
from vernier.randomness import uniform


def _image(height: int, width: int, channels: int = 3) -> np.ndarray:
    return np.random.default_rng(1).integers(0, 256, (height, width, channels), dtype=np.uint8)


@given(st.integers(1, 900), st.integers(1, 900), st.integers(0, 10_000))
def test_crops_lie_inside_the_image(width: int, height: int, index: int) -> None:
    left, top, w, h = random_crop_box(width, height, Augment(), uniform(1, [index], DRAWS)[0])
    assert 0 <= left <= left + w <= width
    assert 0 <= top <= top + h <= height
    assert w > 0
    assert h > 0


def test_crop_areas_and_ratios_follow_the_recipe() -> None:
    rows = uniform(5, np.arange(4000), DRAWS)
    boxes = np.array([random_crop_box(500, 500, Augment(), r) for r in rows])
    area = boxes[:, 2] * boxes[:, 3] / (500 * 500)
    ratio = boxes[:, 2] / boxes[:, 3]
    assert 0.07 < area.min() < 0.1
    assert area.max() > 0.9
    assert ratio.min() > 0.73
    assert ratio.max() < 1.36
    assert np.median(np.log(ratio)) == pytest.approx(0, abs=0.03)


def test_resize_agrees_with_pillow() -> None:
    image = np.asarray(Image.fromarray(_image(30, 40)).resize((400, 300), Image.Resampling.BICUBIC))
    pillow = np.asarray(Image.fromarray(image).resize((224, 224), Image.Resampling.BILINEAR)).astype(int)
    assert np.abs(resize(image, 224, 224).astype(int) - pillow).mean() < 0.1


def test_evaluation_takes_the_centre_of_the_short_side() -> None:
    image = np.zeros((100, 300, 3), dtype=np.uint8)
    image[:, 100:200] = 255
    out = np.empty((40, 40, 3), dtype=np.uint8)
    EvalTransform(Data(eval_px=40, eval_short_side_px=50))(image, out)
    assert out.min() == 255
    EvalTransform(Data(eval_px=40, eval_short_side_px=50))(image.transpose(1, 0, 2).copy(), out)
    assert out.min() == 255


@settings(max_examples=30, deadline=None)
@given(st.sampled_from(["pad", "none"]), st.integers(0, 4), st.sampled_from([1, 3]), st.integers(0, 1000))
def test_many_at_once_is_the_same_as_one_by_one(crop: str, pad: int, channels: int, key: int) -> None:
    images = np.random.default_rng(key).integers(0, 256, (7, 12, 12, channels), dtype=np.uint8)
    augment = Augment(crop=crop, pad_px=pad)  # type: ignore[arg-type]
    rows = uniform(key, np.arange(7), DRAWS)
    together, alone = np.empty_like(images), np.empty_like(images)
    pad_crop_flip_many(images, rows, augment, together)
    for i in range(7):
        TrainTransform(Data(image_px=12), augment)(images[i], rows[i], alone[i])
    assert np.array_equal(together, alone)


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(["bilinear", "bicubic"]), st.sampled_from([1, 3]), st.integers(8, 64), st.integers(0, 1000))
def test_crops_resized_together_are_those_resized_one_by_one(mode: str, channels: int, size: int, key: int) -> None:
    dice = np.random.default_rng(key)
    sizes = [(size, size), *dice.integers(1, 120, (5, 2)).tolist()]
    images = [dice.integers(0, 256, (h + 6, w + 4, channels), dtype=np.uint8) for h, w in sizes]
    images[1].flags.writeable = False
    transform = TrainTransform(Data(interpolation=mode), Augment())  # type: ignore[arg-type]
    rows = uniform(key, np.arange(6), DRAWS)
    cuts = [image[2:-4, 3:-1] for image in images]
    together, alone = (np.empty((6, size, size, channels), np.uint8) for _ in range(2))
    transform.finish_many(cuts, rows, together)
    for i in range(6):
        transform.finish(cuts[i], rows[i], alone[i])
    assert np.array_equal(together, alone)


def test_alternating_flips_show_every_image_both_ways_in_two_epochs() -> None:
    indices = np.arange(1000)
    random, alternate = ([augment_rows(1, e, indices, rule) for e in range(4)] for rule in ("random", "alternate"))
    flips = [rows[:, FLIP] < 0.5 for rows in alternate]
    assert 430 < flips[0].sum() < 570
    assert all(np.array_equal(flips[e + 1], ~flips[e]) for e in range(3))
    for rows, plain in zip(alternate, random, strict=True):
        assert np.array_equal(rows[:, :FLIP], plain[:, :FLIP])  # crops are drawn as ever


def test_alternating_flips_depend_on_the_sample_and_not_on_the_batch() -> None:
    whole = augment_rows(1, 3, np.arange(100), "alternate")
    assert np.array_equal(augment_rows(1, 3, np.array([7, 93]), "alternate"), whole[[7, 93]])


def test_a_reflected_border_continues_the_image() -> None:
    image = np.arange(25, dtype=np.uint8).reshape(1, 5, 5, 1)
    corner = np.zeros((1, DRAWS))  # shifted by the whole border
    corner[:, FLIP] = 0.9
    out = np.empty_like(image)
    pad_crop_flip_many(image, corner, Augment(crop="pad", pad_px=2, border="reflect"), out)
    assert out[0, :, :, 0].tolist() == np.pad(image[0, :, :, 0], 2, "reflect")[:5, :5].tolist()
    pad_crop_flip_many(image, corner, Augment(crop="pad", pad_px=2), out)
    assert not out[0, :2].any()


def test_flips_happen_half_of_the_time() -> None:
    image = np.zeros((8, 8, 3), dtype=np.uint8)
    image[:, 0] = 255
    transform = TrainTransform(Data(image_px=8), Augment(crop="none", flip=0.5))
    out = np.empty_like(image)
    flipped = 0
    for row in uniform(3, np.arange(1000), DRAWS):
        transform(image, row, out)
        flipped += int(out[0, -1, 0] == 255)
    assert 430 < flipped < 570


@pytest.mark.parametrize("channels", [1, 3])
def test_resizing_into_a_buffer_is_torchs_interpolate(channels: int) -> None:
    dice = np.random.default_rng(0)
    for height, width, size in ((40, 60, 24), (10, 12, 24), (24, 24, 24), (100, 24, 24)):
        image = dice.integers(0, 256, (height + 4, width + 4, channels), dtype=np.uint8)[2:-2, 2:-2]
        out = np.zeros((size, size, channels), dtype=np.uint8)
        resize_into(image, out)
        pixels = torch.from_numpy(np.ascontiguousarray(image)).permute(2, 0, 1)[None]
        expected = torch.nn.functional.interpolate(pixels, size=(size, size), mode="bilinear", antialias=True)
        assert np.array_equal(out, expected[0].permute(1, 2, 0).numpy())
        mirrored = out.copy()
        mirror(mirrored)
        assert np.array_equal(mirrored, out[:, ::-1])


@given(st.integers(1, 400), st.integers(1, 400), st.integers(8, 256), st.integers(0, 1000))
@settings(max_examples=200, deadline=None)
def test_flipping_before_or_after_resizing_gives_the_same_pixels(height: int, width: int, size: int, seed: int) -> None:
    image = np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)
    once, after = (np.empty((size, size, 3), np.uint8) for _ in range(2))
    resize_into(image, once, flipped=True)
    resize_into(image, after)
    assert np.array_equal(once, after[:, ::-1])


def test_the_decoder_reduces_only_crops_of_at_least_twice_the_size() -> None:
    sizes = ((447, 900), (448, 448), (895, 2000), (896, 896), (5000, 1792))
    assert [_reduction(w, h, 224) for w, h in sizes] == [1, 2, 2, 4, 8]


def test_scaled_decoding_changes_large_crops_a_little_and_small_ones_not_at_all(shapes: Path) -> None:
    photograph = resize(decode(min((shapes / "train").rglob("*.jpg")).read_bytes()), 640, 480, "bicubic")
    encoded = io.BytesIO()
    Image.fromarray(photograph).save(encoded, "JPEG", quality=95)
    row = np.full(DRAWS, 0.5)
    out = np.empty((2, 2, 64, 64, 3), np.uint8)
    for i, scaled in enumerate((False, True)):
        for j, area in enumerate((0.5, 0.01)):
            transform = TrainTransform(Data(scaled_decode=scaled), Augment(area=(area, area)))
            transform(lazy_image(encoded.getvalue()), row, out[i, j])
    large, small = np.abs(out[0].astype(int) - out[1]).mean(axis=(1, 2, 3))
    assert 0 < large < 3
    assert small == 0
