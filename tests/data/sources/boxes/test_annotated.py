"""Boxes that reach out of their image or have no area."""

import json
from pathlib import Path

from tests.data.sources.small_sets import coco_tree, write_images
from vernier.data.sources import open_boxes


def test_boxes_outside_are_cut_dropped_and_counted(tmp_path: Path) -> None:
    tree = coco_tree(5)
    boxes = [(30, 20, 30, 5), (50, 1, 5, 5), (-0.5, 0, 40.9, 30), (1, 1, 5, 5), (1, 1, float("nan"), 5)]
    for a, box in zip(tree["annotations"], boxes, strict=True):
        a["bbox"] = list(box)
    write_images(tmp_path / "images", 5)
    (tmp_path / "val.json").write_text(json.dumps(tree))
    source = open_boxes(str(tmp_path), "val")
    assert [source.boxes(i).ltrb.tolist() for i in range(5)] == [
        [[30, 20, 40, 25]],
        [],
        [[-0.5, 0, 40.4, 30]],
        [[1, 1, 6, 6]],
        [],
    ]
    assert source.boxes(0).areas.tolist() == [50], "its own area is no longer true"
    assert source.notes == (
        "2 boxes cut at the edge of the image",
        "2 boxes without area inside the image left out",
    )
