"""Random images and boxes are the same every time."""

import numpy as np
import pytest

from vernier.data.sources import open_boxes, open_split
from vernier.data.sources.synthetic import SyntheticSource


@pytest.mark.parametrize("name", ["synthetic", "static"])
def test_pixels_are_the_same_each_time_and_static_ones_in_every_batch(name: str) -> None:
    source, again = open_split(name, "train"), open_split(name, "train")
    assert isinstance(source, SyntheticSource)
    assert isinstance(again, SyntheticSource)
    batches = [np.empty((4, 6, 6, 3), np.uint8) for _ in range(3)]
    source.copy_ready_images(np.array([0, 1, 2, 3]), batches[0])
    source.copy_ready_images(np.array([4, 5, 6, 7]), batches[1])
    again.copy_ready_images(np.array([4, 5, 6, 7]), batches[2])
    assert np.array_equal(batches[1], batches[2])
    assert np.array_equal(batches[0], batches[1]) == (name == "static")
    assert len(np.unique(batches[0].reshape(4, -1), axis=0)) == 4
    assert len(source.classes) == 1000


def test_synthetic_boxes_are_made_once_and_lie_inside() -> None:
    source, again = open_boxes("synthetic", "train"), open_boxes("static", "train")
    assert len(source.classes) == 80
    for i in range(300):
        boxes = source.boxes(i)
        assert 1 <= len(boxes.ltrb) <= 15
        assert ((boxes.ltrb >= 0) & (boxes.ltrb <= 224)).all()
        assert (boxes.ltrb[:, 2:] > boxes.ltrb[:, :2]).all()
        assert np.array_equal(boxes.ltrb, again.boxes(i).ltrb)
    assert source.fingerprint() != again.fingerprint()
