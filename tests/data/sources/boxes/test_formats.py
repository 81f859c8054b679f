"""Detection sets: COCO, Pascal VOC, YOLO, built-in ones, and sets without splits."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from vernier.data.decoding.decode import size_of
from vernier.data.preparing.verify import open_splits
from vernier.data.shapes.files import ShapesSpec, make
from vernier.data.sources import BoxSource, EncodedSource, open_boxes, open_split, opening
from vernier.errors import ConfigError
from vernier.folders import data_home


def _inside(source: BoxSource) -> bool:
    assert isinstance(source, EncodedSource)
    for i in range(len(source)):
        width, height = size_of(source.read(i))
        ltrb = source.boxes(i).ltrb
        limits = np.array([width, height, width, height]) + 1
        if not ((ltrb >= 0).all() and (ltrb <= limits).all()):
            return False
    return True


def test_real_coco(real_data: Callable[[str], Path]) -> None:
    root = real_data("coco")
    train, val = open_boxes(str(root), "train"), open_boxes(str(root), "val")
    tree = json.loads((root / "annotations/instances_val2017.json").read_text())
    assert (len(train), train.notes, len(val)) == (149, ("1 image(s) without boxes are left out of training",), 100)
    assert len(train.classes) == 80
    assert (train.category_ids[:2], train.category_ids[-1]) == ((1, 2), 90)
    assert train.classes[train.category_ids.index(17)] == "cat"
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
    test = open_boxes(root, "test")
    assert (len(test), test.classes, test.category_ids) == (72, train.classes, (1, 2, 3))
    names = [{Path(s.describe(i)).name for i in range(len(s))} for s in (train, val, test)]
    assert len(set.union(*names)) == 364
    assert isinstance(test, EncodedSource)
    assert test.size(0) == size_of(test.read(0))


def test_the_embedded_detection_set_is_read_as_coco(tmp_path: Path) -> None:
    root = make(tmp_path / "set", ShapesSpec(kind="detect", train=6, val=4, size_px=64))
    source = open_boxes(str(root), "val")
    assert len(source) == 4
    assert _inside(source)
    with pytest.raises(ConfigError, match=r"detection set|has no images"):
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
    assert "1 box(es) without area inside their image were left out" in train.notes
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
    with pytest.raises(ConfigError, match=r"instances_val\.json.*It contains: nothing"):
        open_boxes(str(tmp_path), "val")


def _tree(count: int, *, file_name: str = "{}.jpg", box: tuple[float, ...] = (2, 3, 10, 5)) -> dict[str, Any]:
    """COCO instances with one box an image, of categories 7 and 3 in turn."""
    return {
        "images": [{"id": 100 + i, "file_name": file_name.format(i), "width": 40, "height": 30} for i in range(count)],
        "annotations": [
            {"id": i, "image_id": 100 + i, "category_id": (7, 3)[i % 2], "bbox": list(box), "area": 11.5, "iscrowd": 0}
            for i in range(count)
        ],
        "categories": [{"id": 7, "name": "dog"}, {"id": 3, "name": "cat"}],
    }


def _images(folder: Path, count: int) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for i in range(count):
        Image.new("RGB", (40, 30), (12 * i, 0, 0)).save(folder / f"{i}.jpg")


def _both(root: Path) -> tuple[list[str], list[str]]:
    train, val = (open_boxes(str(root), split, val_share=0.25) for split in ("train", "val"))
    assert train.classes == val.classes
    return [train.name(i) for i in range(len(train))], [val.name(i) for i in range(len(val))]


def _voc_xml(box: tuple[int, ...] = (5, 5, 20, 20), size: bool = True) -> str:
    edges = "".join(f"<{k}>{v}</{k}>" for k, v in zip(("xmin", "ymin", "xmax", "ymax"), box, strict=True))
    about = "<size><width>40</width><height>30</height><depth>3</depth></size>" if size else ""
    return f"<annotation>{about}<object><name>cat</name><bndbox>{edges}</bndbox></object></annotation>"


def _undivided(root: Path, kind: str, count: int) -> None:
    if kind == "coco":
        _images(root / "images", count)
        (root / "annotations.json").write_text(json.dumps(_tree(count)))
    elif kind == "voc":
        _images(root / "JPEGImages", count)
        (root / "Annotations").mkdir()
        for i in range(count):
            (root / f"Annotations/{i}.xml").write_text(_voc_xml())
    else:
        _images(root / "images", count)
        (root / "labels").mkdir()
        (root / "classes.txt").write_text("cat\n")
        for i in range(count):
            (root / f"labels/{i}.txt").write_text("0 0.5 0.5 0.2 0.2\n")


@pytest.mark.parametrize("kind", ["coco", "voc", "yolo"])
def test_a_set_without_splits_is_divided_by_name(tmp_path: Path, kind: str) -> None:
    _undivided(tmp_path, kind, 20)
    train, val = _both(tmp_path)
    assert (len(train), len(val)) == (15, 5)
    assert set(train) | set(val) == {f"{i}.jpg" for i in range(20)}
    assert (train, val) == _both(tmp_path)
    assert sum(Path(n).stem < "5" for n in val) < 5, "not simply the first ones"
    with pytest.raises(ConfigError, match="no test split"):
        open_boxes(str(tmp_path), "test")


@pytest.mark.parametrize("kind", ["coco", "voc", "yolo"])
def test_a_classifier_is_told_what_it_was_given(tmp_path: Path, kind: str) -> None:
    _undivided(tmp_path, kind, 4)
    with pytest.raises(ConfigError, match="detection set"):
        open_split(str(tmp_path), "train")
    assert set(open_splits(str(tmp_path), 0.3)[0]) == {"train", "val"}
    _spoil(tmp_path, kind)
    with pytest.raises(ConfigError, match=r"labels/.*class 3|category 99|Cannot read the annotation"):
        open_splits(str(tmp_path), 0.3)


def _spoil(root: Path, kind: str) -> None:
    if kind == "coco":
        tree = _tree(4)
        tree["annotations"][0]["category_id"] = 99
        (root / "annotations.json").write_text(json.dumps(tree))
    elif kind == "voc":
        (root / "Annotations/1.xml").write_text("<annotation>")
    else:
        (root / "labels/1.txt").write_text("3 0.5 0.5 0.1 0.1")


@pytest.mark.parametrize("kind", ["coco", "voc", "yolo"])
def test_one_image_cannot_be_divided(tmp_path: Path, kind: str) -> None:
    _undivided(tmp_path, kind, 1)
    with pytest.raises(ConfigError, match="two are needed"):
        open_boxes(str(tmp_path), "train")


def test_xml_files_beside_the_images_of_each_split(tmp_path: Path) -> None:
    for split, count in (("train", 3), ("valid", 2)):
        _images(tmp_path / split, count)
        for i in range(count):
            (tmp_path / split / f"{i}.xml").write_text(_voc_xml(size=False))
    train, val = open_boxes(str(tmp_path), "train"), open_boxes(str(tmp_path), "val")
    assert (len(train), len(val), train.classes, train.size(0)) == (3, 2, ("cat",), None)
    assert abs(int(train.image(1)[0, 0, 0]) - 12) < 4


def test_original_ids_and_areas_are_kept(tmp_path: Path) -> None:
    _images(tmp_path / "train", 2)
    (tmp_path / "annotations").mkdir()
    (tmp_path / "annotations/instances_train.json").write_text(json.dumps(_tree(2)))
    source = open_boxes(str(tmp_path), "train")
    assert (source.classes, source.category_ids) == (("cat", "dog"), (3, 7))
    assert [source.image_id(i) for i in range(2)] == [100, 101]
    assert [source.boxes(i).classes.tolist() for i in range(2)] == [[1], [0]]
    assert source.boxes(0).areas.tolist() == [11.5]
    assert source.boxes(0).ltrb.tolist() == [[2, 3, 12, 8]]


def test_boxes_outside_are_cut_dropped_and_counted(tmp_path: Path) -> None:
    tree = _tree(5)
    given = [(30, 20, 30, 5), (50, 1, 5, 5), (-0.5, 0, 40.9, 30), (1, 1, 5, 5), (1, 1, float("nan"), 5)]
    for a, box in zip(tree["annotations"], given, strict=True):
        a["bbox"] = list(box)
    _images(tmp_path / "images", 5)
    (tmp_path / "val.json").write_text(json.dumps(tree))
    source = open_boxes(str(tmp_path), "val")
    assert [source.boxes(i).ltrb.tolist() for i in range(5)] == [
        [[30, 20, 40, 25]], [], [[-0.5, 0, 40.4, 30]], [[1, 1, 6, 6]], []
    ]  # fmt: skip
    assert source.boxes(0).areas.tolist() == [50], "its own area is no longer true"
    assert source.notes == (
        "2 box(es) reached out of their image and were cut at its edge",
        "2 box(es) without area inside their image were left out",
    )


def test_yolo_outlines_become_boxes_and_odd_lines_are_refused(tmp_path: Path) -> None:
    _undivided(tmp_path, "yolo", 2)
    (tmp_path / "labels/0.txt").write_text("0 0.25 0.5 0.5 0.1 0.75 0.9\n")
    (tmp_path / "labels/1.txt").write_text("0 0.25 0.5 0.5 0.2 0.99\n")
    sources = [open_boxes(str(tmp_path), s) for s in ("train", "val")]
    found = {s.name(0): s.boxes(0).ltrb.round(6).tolist() for s in sources}
    assert found == {"0.jpg": [[10, 3, 30, 27]], "1.jpg": [[0, 12, 20, 18]]}
    (tmp_path / "labels/1.txt").write_text("0 0.25 0.5 0.5\n")
    with pytest.raises(ConfigError, match=r"1\.txt: a line is not 'class x y width height': 4 values"):
        open_boxes(str(tmp_path), "train")


def test_a_classification_folder_is_named_as_one(shapes: Path, tmp_path: Path) -> None:
    (tmp_path / "train").symlink_to(shapes / "train")
    (tmp_path / "val").symlink_to(shapes / "val")
    with pytest.raises(ConfigError, match="is a classification set"):
        open_boxes(str(tmp_path), "train")
    with pytest.raises(ConfigError, match="is a classification set"):
        open_boxes(str(tmp_path / "train"), "train")


def test_wrong_annotations_say_what_is_wrong(tmp_path: Path) -> None:
    _images(tmp_path / "images/train", 2)
    with pytest.raises(ConfigError, match=r"has images, but no annotations were found"):
        open_boxes(str(tmp_path), "train")
    (tmp_path / "annotations").mkdir()
    path = tmp_path / "annotations/instances_train.json"

    def refused(tree: object, says: str) -> None:
        path.write_text(json.dumps(tree))
        with pytest.raises(ConfigError, match=says):
            open_boxes(str(tmp_path), "train")

    tree = _tree(2)
    tree["annotations"][1]["category_id"] = 99
    refused(tree, "category 99, which is not among its 2 categories")
    tree = _tree(2)
    tree["annotations"][1]["image_id"] = 999
    refused(tree, "image 999, which is not among its images")
    refused({**_tree(0)}, "there are no images with boxes")
    refused({**_tree(2), "annotations": []}, "there are no images with boxes")
    refused({"images": [], "annotations": [], "categories": []}, "name no class")
    refused({"images": [{}], "annotations": [], "categories": []}, "not a file of COCO instances")
    refused("text", "not a file of COCO instances")
    path.write_text(json.dumps(_tree(2)))
    assert len(open_boxes(str(tmp_path), "train")) == 2
    with pytest.raises(ConfigError, match=r"has no val split.*--train-only"):
        open_boxes(str(tmp_path), "val")


@pytest.mark.parametrize(
    ("source", "split", "says"),
    [
        ("", "train", "--data PATH"),
        ("coco", "train", "vernier data get coco"),
        ("sahpes", "train", "shapes"),
        ("shapes", "test", "no test split"),
        ("synthetic", "trian", "train"),
        ("https://example.org/set", "train", "must be a local folder"),
        (__file__, "train", "is a file"),
    ],
)
def test_names_that_cannot_be_opened(source: str, split: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        open_boxes(source, split)


def test_coco_is_found_where_it_was_fetched_to(real_data: Callable[[str], Path]) -> None:
    data_home().mkdir(parents=True, exist_ok=True)
    link = data_home() / "coco"
    link.symlink_to(real_data("coco"))
    try:
        assert len(open_boxes("coco", "val")) == 100
    finally:
        link.unlink()


def test_the_built_in_shapes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opening, "SHAPES_TRAIN", 6)
    monkeypatch.setattr(opening, "SHAPES_VAL", 4)
    train, val = open_boxes("shapes", "train"), open_boxes("shapes", "val")
    assert (len(train), len(val), len(train.classes)) == (6, 4, 10)
    assert train.image(0).shape == (160, 160, 3)
    assert train.describe(0).startswith(str(data_home()))


def test_synthetic_boxes_are_made_once_and_lie_inside() -> None:
    source, again = open_boxes("synthetic", "train"), open_boxes("static", "train")
    assert len(source.classes) == 80
    for i in range(300):
        found = source.boxes(i)
        assert 1 <= len(found.ltrb) <= 15
        assert ((found.ltrb >= 0) & (found.ltrb <= 224)).all()
        assert (found.ltrb[:, 2:] > found.ltrb[:, :2]).all()
        assert np.array_equal(found.ltrb, again.boxes(i).ltrb)
    assert source.fingerprint() != again.fingerprint()
