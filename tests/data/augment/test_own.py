"""Transforms of users: their random numbers, their order, and what they must return."""

import numpy as np
import pytest

from vernier.config import Augment
from vernier.data.augment.own import OwnTransforms
from vernier.errors import RunFailed
from vernier.own_code import refer_to


def noise(image, target, rng):  # type: ignore[no-untyped-def]
    return rng.integers(0, 256, image.shape).astype(np.uint8)


def brighter(image, target, rng):  # type: ignore[no-untyped-def]
    image += target  # in place, and returned
    return image


def _image(epoch: int, index: int, seed: int = 1, *transforms: object) -> bytes:
    image = np.zeros((4, 4, 3), np.uint8)
    OwnTransforms(Augment(extra=tuple(map(refer_to, transforms or (noise,)))), seed)(epoch, index, image, 7)
    return image.tobytes()


def test_random_numbers_are_a_function_of_seed_epoch_sample_and_position() -> None:
    assert _image(0, 5) == _image(0, 5)
    assert len({_image(0, 5), _image(1, 5), _image(0, 6), _image(0, 5, 2), _image(0, 5, 1, noise, noise)}) == 5


def test_they_run_in_order_and_know_the_target() -> None:
    assert _image(0, 0, 1, brighter, brighter) == bytes([14] * 48)
    assert not OwnTransforms(Augment(), 1)


def test_another_size_is_refused() -> None:
    with pytest.raises(RunFailed, match=r"test_own\.py, line \d+.*returns the image as it got it"):
        _image(0, 0, 1, lambda image, target, rng: image[:2])
