"""A quick look at a data set: sizes, classes and boxes."""

from pathlib import Path

import numpy as np

from vernier.data.overview import count_classes, glance_at_some, outline_boxes
from vernier.data.sources import open_boxes, open_split


def test_sizes_are_read_from_headers_and_classes_are_counted(shapes: Path) -> None:
    source = open_split(str(shapes), "train")
    assert {each.size for each in glance_at_some(source, 5)} == {(32, 32)}
    assert not any(each.turned or each.problem for each in glance_at_some(source, 5))
    assert sum(count_classes(source)) == len(source)
    boxes = open_boxes(str(shapes), "train")
    assert sum(count_classes(boxes)) == sum(len(boxes.boxes(i).classes) for i in range(len(boxes)))


def test_boxes_are_drawn_inside_the_image_and_padding_is_not() -> None:
    images = np.zeros((1, 8, 8, 3), np.uint8)
    boxes = np.array([[[0.25, 0.25, 0.75, 0.75], [0.9, 0.9, 1.2, 1.2], [0, 0, 1, 1]]], np.float32)
    outline_boxes(images, boxes, np.array([[1, 2, 0]]))
    drawn = images[0].any(axis=2)
    assert drawn[2, 2:6].all()
    assert drawn[7, 7]
    assert not drawn[0].any(), "the last box is padding"
