"""COCO's instances: real, small and wrong ones."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.data.sources.small_sets import all_boxes_inside, coco_tree, write_images
from vernier.data.shapes import ShapesSpec, make_shapes
from vernier.data.sources import open_boxes, open_split
from vernier.errors import ConfigError


def test_real_coco(real_data: Callable[[str], Path]) -> None:
    root = real_data("coco")
    train, val = open_boxes(str(root), "train"), open_boxes(str(root), "val")
    tree = json.loads((root / "annotations/instances_val2017.json").read_text())
    assert (len(train), train.notes, len(val)) == (149, ("1 image without boxes left out of training",), 100)
    assert len(train.classes) == 80
    assert (train.category_ids[:2], train.category_ids[-1]) == ((1, 2), 90)
    assert train.classes[train.category_ids.index(17)] == "cat"
    assert sum(len(val.boxes(i).ltrb) for i in range(100)) == len(tree["annotations"])
    assert sum(val.boxes(i).crowd.sum() for i in range(100)) == sum(a["iscrowd"] for a in tree["annotations"])
    x, y, w, h = tree["annotations"][0]["bbox"]
    sample = next(i for i in range(100) if val.image_id(i) == tree["annotations"][0]["image_id"])
    assert np.isclose(val.boxes(sample).ltrb, [x, y, x + w, y + h], atol=1e-3).all(axis=1).any()
    assert all_boxes_inside(val)


def test_the_built_in_detection_set_is_read_as_coco(tmp_path: Path) -> None:
    root = make_shapes(tmp_path / "set", ShapesSpec(kind="detect", train=6, val=4, size_px=64))
    source = open_boxes(str(root), "val")
    assert len(source) == 4
    assert all_boxes_inside(source)
    with pytest.raises(ConfigError, match=r"detection set|has no images"):
        open_split(str(root), "train")


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


def test_ids_and_areas_are_those_of_the_annotations(tmp_path: Path) -> None:
    write_images(tmp_path / "train", 2)
    (tmp_path / "annotations").mkdir()
    (tmp_path / "annotations/instances_train.json").write_text(json.dumps(coco_tree(2)))
    source = open_boxes(str(tmp_path), "train")
    assert (source.classes, source.category_ids) == (("cat", "dog"), (3, 7))
    assert [source.image_id(i) for i in range(2)] == [100, 101]
    assert [source.boxes(i).classes.tolist() for i in range(2)] == [[1], [0]]
    assert source.boxes(0).areas.tolist() == [11.5]
    assert source.boxes(0).ltrb.tolist() == [[2, 3, 12, 8]]


def test_wrong_annotations_say_what_is_wrong(tmp_path: Path) -> None:
    write_images(tmp_path / "images/train", 2)
    with pytest.raises(ConfigError, match=r"has images, but no annotations were found"):
        open_boxes(str(tmp_path), "train")
    (tmp_path / "annotations").mkdir()
    path = tmp_path / "annotations/instances_train.json"

    def check_refused(tree: object, message: str) -> None:
        path.write_text(json.dumps(tree))
        with pytest.raises(ConfigError, match=message):
            open_boxes(str(tmp_path), "train")

    tree = coco_tree(2)
    tree["annotations"][1]["category_id"] = 99
    check_refused(tree, "category 99, which is not among its 2 categories")
    tree = coco_tree(2)
    tree["annotations"][1]["image_id"] = 999
    check_refused(tree, "image 999, which is not among its images")
    check_refused(coco_tree(0), "there are no images with boxes")
    check_refused({**coco_tree(2), "annotations": []}, "there are no images with boxes")
    check_refused({"images": [], "annotations": [], "categories": []}, "name no class")
    check_refused({"images": [{}], "annotations": [], "categories": []}, "not a file of COCO instances")
    check_refused("text", "not a file of COCO instances")
    path.write_text(json.dumps(coco_tree(2)))
    assert len(open_boxes(str(tmp_path), "train")) == 2
    with pytest.raises(ConfigError, match="has no val split"):
        open_boxes(str(tmp_path), "val")


def _write(tmp_path: Path, text: str | bytes) -> Path:
    write_images(tmp_path / "train", 2)
    (tmp_path / "annotations").mkdir(exist_ok=True)
    path = tmp_path / "annotations/instances_train.json"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


WRONG_VALUES: list[tuple[str, str, object, str]] = [
    ("images", "id", 1e999, "not a whole number"),
    ("images", "id", 1.5, "1.5 is not a whole number"),
    ("images", "id", 1e30, "out of range"),
    ("images", "id", 101, "two of its images have the id 101"),
    ("images", "width", 1e999, "not a whole number"),
    ("images", "width", 10**30, "out of range"),
    ("images", "width", "wide", "'wide' is not a whole number"),
    ("images", "file_name", "a\0.jpg", "names a file that cannot exist"),
    ("images", "file_name", "\ud800.jpg", "names a file that cannot exist"),
    ("images", "file_name", 7, "not a file of COCO instances"),
    ("annotations", "image_id", None, "None is not a whole number"),
    ("annotations", "category_id", 1e30, "out of range"),
    ("annotations", "bbox", [1, 2, 10**400, 4], "too large"),
    ("annotations", "bbox", [1, 2, 3], "not enough values"),
    ("annotations", "iscrowd", "2", "iscrowd is 2, not 0 or 1"),
    ("annotations", "iscrowd", "no", "'no' is not a whole number"),
    ("categories", "id", 1e30, "out of range"),
    ("categories", "id", 3, "two of its categories have the id 3"),
    ("categories", "name", "\ud800", "name that cannot be written"),
]


@pytest.mark.parametrize(("part", "key", "value", "message"), WRONG_VALUES)
def test_a_wrong_value_is_one_sentence_with_the_file(
    tmp_path: Path, part: str, key: str, value: object, message: str
) -> None:
    tree = coco_tree(2)
    tree[part][0][key] = value
    _write(tmp_path, json.dumps(tree))
    with pytest.raises(ConfigError, match=message) as error:
        open_boxes(str(tmp_path), "train")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("text", ["[" * 200_000, b'{"images": "\xe9"}', '{"images": [', "null", "[1, 2]"])
def test_a_file_that_is_no_json_or_no_instances_is_one_sentence(tmp_path: Path, text: str | bytes) -> None:
    path = _write(tmp_path, text)
    with pytest.raises(ConfigError, match=f"{path.name} is not a file of COCO instances"):
        open_boxes(str(tmp_path), "train")


def test_a_crowd_may_be_a_number_a_truth_value_or_text(tmp_path: Path) -> None:
    tree = coco_tree(4)
    for item, value in zip(tree["annotations"], ("0", "1", True, None), strict=True):
        item["iscrowd"] = value
    _write(tmp_path, json.dumps(tree))
    source = open_boxes(str(tmp_path), "train")
    assert [source.boxes(i).crowd.tolist() for i in range(4)] == [[False], [True], [True], [False]]
