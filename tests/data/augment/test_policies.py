"""Policies and erasing: pure functions of their row, every operation reachable, strengths as published."""

import numpy as np
import pytest
from PIL import Image, ImageOps

from vernier.config import Augment, Data, train_px
from vernier.data.augment.policies import RAND_OPS, TRIVIAL_OPS, PixelAugment, _erased_box, _rand_op, _trivial_wide
from vernier.randomness import key, uniform


def _photo(side: int = 40, channels: int = 3) -> np.ndarray:
    return np.random.default_rng(0).integers(20, 220, (side, side, channels), dtype=np.uint8)


def _row(name: str, names: tuple[str, ...], *rest: float) -> np.ndarray:
    return np.array([(names.index(name) + 0.5) / len(names), *rest, 0.0, 0.0, 0.0, 0.0])[:5]


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("name", TRIVIAL_OPS)
def test_every_trivial_operation_changes_an_image_or_is_the_identity(name: str, channels: int) -> None:
    array = _photo(channels=channels)
    picture = Image.fromarray(array[:, :, 0] if channels == 1 else array)
    changed = np.asarray(_trivial_wide(picture, _row(name, TRIVIAL_OPS, 0.99, 0.0)))
    assert changed.shape == np.asarray(picture).shape
    if name != "identity" and not (name == "color" and channels == 1):
        assert not np.array_equal(changed, np.asarray(picture))


def test_trivial_strengths_are_torchvisions() -> None:
    picture = Image.fromarray(_photo())
    full = 0.999
    assert (
        _trivial_wide(picture, _row("posterize", TRIVIAL_OPS, full)).tobytes()
        == ImageOps.posterize(picture, 2).tobytes()
    )
    assert (
        _trivial_wide(picture, _row("solarize", TRIVIAL_OPS, full)).tobytes() == ImageOps.solarize(picture, 0).tobytes()
    )
    turned = picture.rotate(-135.0, Image.Resampling.BILINEAR, fillcolor=(0, 0, 0))
    assert _trivial_wide(picture, _row("rotate", TRIVIAL_OPS, full, 0.9)).tobytes() == turned.tobytes()
    still = _trivial_wide(picture, _row("rotate", TRIVIAL_OPS, 0.0, 0.9))
    assert still.tobytes() == picture.tobytes()
    right = np.asarray(_trivial_wide(picture, _row("translate-x", TRIVIAL_OPS, full, 0.0)))
    assert np.array_equal(right[:, 33:], np.asarray(picture)[:, 1:8])


@pytest.mark.parametrize("name", RAND_OPS)
def test_rand_operations_are_skipped_half_of_the_time(name: str) -> None:
    picture = Image.fromarray(_photo())
    skipped = _rand_op(picture, _row(name, RAND_OPS, 0.6, 0.5), 7, 0.5, (124, 116, 104))
    assert skipped is picture
    done = _rand_op(picture, _row(name, RAND_OPS, 0.4, 0.5), 7, 0.5, (124, 116, 104))
    assert done.tobytes() != picture.tobytes()


def test_rand_strengths_are_timms_increasing_ones() -> None:
    picture, fill = Image.fromarray(_photo()), (124, 116, 104)
    turned = picture.rotate(21.0, Image.Resampling.BILINEAR, fillcolor=fill)
    assert _rand_op(picture, _row("rotate", RAND_OPS, 0.0, 0.5, 0.0), 7, 0.5, fill).tobytes() == turned.tobytes()
    assert (
        _rand_op(picture, _row("posterize", RAND_OPS, 0.0, 0.5), 7, 0.0, fill).tobytes()
        == ImageOps.posterize(picture, 2).tobytes()
    )
    black = _rand_op(picture, _row("posterize", RAND_OPS, 0.0, 0.5), 10, 0.0, fill)
    assert not any(black.tobytes()), "no bit is left"
    assert (
        _rand_op(picture, _row("solarize", RAND_OPS, 0.0, 0.5), 7, 0.0, fill).tobytes()
        == ImageOps.solarize(picture, 256 - 179).tobytes()
    )


@pytest.mark.parametrize("policy", ["trivial-wide", "rand"])
def test_a_policy_is_a_function_of_seed_epoch_and_sample(policy: str) -> None:
    pixels = PixelAugment(Data(), Augment(policy=policy, erase=0.5))  # type: ignore[arg-type]
    rows = uniform(key(5, 1, 0), np.arange(30), pixels.draws)
    first, again = [_photo() for _ in range(30)], [_photo() for _ in range(30)]
    for i in range(30):
        pixels(first[i], rows[i])
    for i in reversed(range(30)):
        pixels(again[i], rows[i])
    assert all(np.array_equal(a, b) for a, b in zip(first, again, strict=True))
    assert len({a.tobytes() for a in first}) > 12


def test_erasing_happens_as_often_as_set_and_fills_with_the_mean() -> None:
    pixels = PixelAugment(Data(), Augment(erase=0.3))
    rows = uniform(key(5, 1, 0), np.arange(400), pixels.draws)
    shares = []
    for row in rows:
        image = np.zeros((32, 32, 3), dtype=np.uint8)
        pixels(image, row)
        erased = (image == (124, 116, 104)).all(axis=2)
        assert erased.sum() * 3 == (image != 0).sum()
        shares.append(erased.mean())
    hit = [s for s in shares if s > 0]
    assert len(hit) / 400 == pytest.approx(0.3, abs=0.07)
    assert min(hit) > 0.01
    assert max(hit) < 0.37


def test_an_image_too_small_to_erase_is_left_alone() -> None:
    assert _erased_box(1, 1, np.full(40, 0.5)) is None


def test_without_policy_and_erasing_no_numbers_are_drawn() -> None:
    assert PixelAugment(Data(), Augment()).draws == 0


@pytest.mark.parametrize(
    ("epochs", "ramp", "sizes"),
    [
        (16, (11, 13), {0: 160, 11: 160, 12: 192, 13: 192, 15: 192}),
        (88, (65, 76), {65: 160, 70: 160, 71: 192, 76: 192}),
    ],
)
def test_images_grow_as_in_ffcvs_schedule(epochs: int, ramp: tuple[float, float], sizes: dict[int, int]) -> None:
    data, augment = Data(image_px=192), Augment(start_px=160, ramp_epochs=ramp)
    assert {epoch: train_px(data, augment, epoch) for epoch in sizes} == sizes
    assert train_px(data, Augment(), 0) == 192


def test_images_grow_in_phases() -> None:
    """128, 224 and 288 pixels, as in fast.ai's recipe."""
    augment = Augment(start_px=128, phase_px=(224,), phase_epochs=(14, 32))
    sizes = {0: 128, 13: 128, 14: 224, 31: 224, 32: 288, 39: 288}
    assert {epoch: train_px(Data(image_px=288), augment, epoch) for epoch in sizes} == sizes
