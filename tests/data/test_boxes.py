"""Detection sets: COCO, Pascal VOC, YOLO."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from vernier.data.decode import size_of
from vernier.data.shapes import ShapesSpec, make
from vernier.data.sources import open_boxes, open_split
from vernier.errors import ConfigError


def _inside(source: object) -> bool:
    for i in range(len(source)):  # type: ignore[arg-type]
        width, height = size_of(source.read(i))  # type: ignore[attr-defined]
        ltrb = source.boxes(i).ltrb  # type: ignore[attr-defined]
        limits = np.array([width, height, width, height]) + 1
        if not ((ltrb >= 0).all() and (ltrb <= limits).all()):
            return False
    return True


def test_real_coco(real_data: Callable[[str], Path]) -> None:
    root = real_data("coco")
    train, val = open_boxes(str(root), "train"), open_boxes(str(root), "val")
    tree = json.loads((root / "annotations/instances_val2017.json").read_text())
    assert (len(train), train.without_boxes, len(val)) == (149, 1, 100)
    assert len(train.classes) == 80
    assert sum(len(val.boxes(i).ltrb) for i in range(100)) == len(tree["annotations"])
    assert sum(val.boxes(i).crowd.sum() for i in range(100)) == sum(a["iscrowd"] for a in tree["annotations"])
    x, y, w, h = tree["annotations"][0]["bbox"]
    place = next(i for i in range(100) if val.image_id(i) == tree["annotations"][0]["image_id"])
    assert np.isclose(val.boxes(place).ltrb, [x, y, x + w, y + h], atol=1e-3).all(axis=1).any()
    assert _inside(val)


def test_real_voc(real_data: Callable[[str], Path]) -> None:
    root = str(real_data("bccd"))
    train, val = open_boxes(root, "train"), open_boxes(root, "val")
    assert (len(train), len(val)) == (205, 87)
    assert train.classes == val.classes == ("Platelets", "RBC", "WBC")
    assert _inside(train)


def test_the_embedded_detection_set_is_read_as_coco(tmp_path: Path) -> None:
    root = make(tmp_path / "set", ShapesSpec(kind="detect", train=6, val=4, size_px=64))
    source = open_boxes(str(root), "val")
    assert len(source) == 4
    assert _inside(source)
    with pytest.raises(ConfigError, match=r"detection set|holds no images"):
        open_split(str(root), "train")


def test_yolo_both_layouts_and_names(tmp_path: Path) -> None:
    for images, labels in (("images/train", "labels/train"), ("val/images", "val/labels")):
        for folder in (images, labels):
            (tmp_path / folder).mkdir(parents=True)
        for name in ("a", "b"):
            Image.new("RGB", (200, 100)).save(tmp_path / images / f"{name}.jpg")
        (tmp_path / labels / "a.txt").write_text("1 0.5 0.5 0.5 0.2\n0 0.1 0.1 0 0.1\n")
    (tmp_path / "data.yaml").write_text("path: .\nnames:\n  0: cat  # small\n  1: 'dog'\nnc: 2\n")
    train, val = open_boxes(str(tmp_path), "train"), open_boxes(str(tmp_path), "val")
    assert train.classes == ("cat", "dog")
    assert (len(train), len(val)) == (1, 2)
    assert train.boxes(0).ltrb.tolist() == [[50.0, 40.0, 150.0, 60.0]]
    assert train.boxes(0).classes.tolist() == [1]
    assert train.dropped_boxes == 1
    assert len(val.boxes(1).ltrb) == 0
    (tmp_path / "data.yaml").write_text("names: [cat]\n")
    with pytest.raises(ConfigError, match="class 1, but there are 1"):
        open_boxes(str(tmp_path), "train")


def test_annotations_cannot_lead_out_of_their_folder(tmp_path: Path) -> None:
    (tmp_path / "annotations").mkdir()
    (tmp_path / "train").mkdir()
    tree = {"images": [{"id": 1, "file_name": "../../etc/passwd"}], "annotations": [], "categories": []}
    (tmp_path / "annotations/instances_train.json").write_text(json.dumps(tree))
    with pytest.raises(ConfigError, match="outside its folder"):
        open_boxes(str(tmp_path), "train")
    (tmp_path / "annotations/instances_train.json").write_text("[]")
    with pytest.raises(ConfigError, match="not a file of COCO"):
        open_boxes(str(tmp_path), "train")


def test_a_folder_without_boxes_says_what_would_work(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"instances_val\.json.*It holds: nothing"):
        open_boxes(str(tmp_path), "val")
