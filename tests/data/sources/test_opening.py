"""What `--data` may name, and what the messages say where it cannot be opened."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.data.sources.small_sets import coco_tree, write_image, write_unsplit
from vernier.compat.preparing.verify import open_splits
from vernier.data.shapes import ShapesSpec, make_shapes
from vernier.data.sources import open_boxes, open_split, opening
from vernier.data.sources.opening import check_source, recognise_folder
from vernier.errors import ConfigError, NoSuchSplit
from vernier.folders import data_home


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda root: None, "no train/ folder"),
        (lambda root: (root / "train").mkdir(), "has no images"),
        (
            lambda root: [write_image(root / "train/a/1.jpg"), (root / "train/empty").mkdir()],
            "without images: empty",
        ),
    ],
)
def test_a_folder_without_data_is_a_clear_error(tmp_path: Path, make: Callable[[Path], object], message: str) -> None:
    make(tmp_path)
    with pytest.raises(ConfigError, match=message):
        open_split(str(tmp_path), "train")


def test_wrong_names_and_paths_suggest_what_works(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no data of its own") as error:
        open_split("", "train")
    assert error.value.works == [("data.source", "PATH")]
    with pytest.raises(ConfigError, match="Did you mean shapes"):
        open_split("shape", "train")
    with pytest.raises(ConfigError, match="does not exist"):
        open_split(str(tmp_path / "no"), "train")
    with pytest.raises(ConfigError, match=r"vernier data prepare imagenet .* ImageNet-1k"):
        open_split("ImageNet-1k", "train")
    with pytest.raises(ConfigError, match="is not in"):
        open_split("cifar10", "train")
    file = tmp_path / "file.tar"
    file.write_text("")
    with pytest.raises(ConfigError, match="is a file") as error:
        open_split(str(file), "train")
    assert error.value.given == {"data.source": str(file)}
    with pytest.raises(ConfigError, match="is a file") as error:
        recognise_folder(str(file))
    assert error.value.given == {"folder": str(file)}


@pytest.mark.parametrize(
    ("source", "split", "message"),
    [
        ("", "train", "data.source=PATH"),
        ("coco", "train", "vernier data get coco"),
        ("sahpes", "train", "shapes"),
        ("shapes", "test", "no test split"),
        ("synthetic", "trian", "train"),
        ("https://example.org/set", "train", "must be a local folder"),
        (__file__, "train", "is a file"),
    ],
)
def test_names_that_no_detection_set_has(source: str, split: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        open_boxes(source, split)


def test_coco_is_opened_where_data_get_puts_it(real_data: Callable[[str], Path]) -> None:
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


def _damage(root: Path, kind: str) -> None:
    if kind == "coco":
        tree = coco_tree(4)
        tree["annotations"][0]["category_id"] = 99
        (root / "annotations.json").write_text(json.dumps(tree))
    elif kind == "voc":
        (root / "Annotations/1.xml").write_text("<annotation>")
    else:
        (root / "labels/1.txt").write_text("3 0.5 0.5 0.1 0.1")


@pytest.mark.parametrize("kind", ["coco", "voc", "yolo"])
def test_a_detection_set_is_refused_for_a_classifier_and_opened_by_verify(tmp_path: Path, kind: str) -> None:
    write_unsplit(tmp_path, kind, 4)
    with pytest.raises(ConfigError, match="detection set"):
        open_split(str(tmp_path), "train")
    assert set(open_splits(str(tmp_path), 0.3)[0]) == {"train", "val"}
    _damage(tmp_path, kind)
    with pytest.raises(ConfigError, match=r"labels/.*class 3|category 99|Cannot read the annotation"):
        open_splits(str(tmp_path), 0.3)


@pytest.mark.parametrize("source", ["shapes", "synthetic", "static"])
def test_generated_sets_have_no_test_split(source: str) -> None:
    with pytest.raises(NoSuchSplit, match=r"has no test split\. Use train or val"):
        open_split(source, "test")


def test_a_folder_names_the_split_that_it_lacks(tmp_path: Path) -> None:
    write_image(tmp_path / "train/a/1.jpg")
    for split in ("val", "test"):
        with pytest.raises(NoSuchSplit, match=f"has no {split} split. It contains: train"):
            open_split(str(tmp_path), split)
    with pytest.raises(ConfigError, match=r"There is no split .vall.\. Did you mean val"):
        open_split(str(tmp_path), "vall")


def test_a_folder_without_splits_has_no_test_split(tmp_path: Path) -> None:
    for name in ("a/1.jpg", "a/2.jpg", "b/1.jpg", "b/2.jpg"):
        write_image(tmp_path / name)
    with pytest.raises(NoSuchSplit, match="is not divided into splits"):
        open_split(str(tmp_path), "test")


def test_a_test_split_that_is_used_for_validation_is_noted(tmp_path: Path) -> None:
    write_image(tmp_path / "train/a/1.jpg")
    write_image(tmp_path / "test/a/1.jpg")
    assert "no independent test" in open_split(str(tmp_path), "val").notes[0]
    assert open_split(str(tmp_path), "test").notes == ()
    write_image(tmp_path / "val/a/1.jpg")
    assert open_split(str(tmp_path), "val").notes == ()


def test_a_part_of_the_training_split_can_be_held_out_whatever_other_splits_there_are(tmp_path: Path) -> None:
    for name in [f"train/{kind}/{i}.jpg" for kind in "ab" for i in range(10)] + ["test/a/t.jpg", "val/b/v.jpg"]:
        write_image(tmp_path / name)
    parts = {split: open_split(str(tmp_path), split, val_share=0.2, hold_out=True) for split in ("train", "val")}
    names = {split: {part.name(i) for i in range(len(part))} for split, part in parts.items()}
    assert (len(names["train"]), len(names["val"])) == (16, 4)
    assert not names["train"] & names["val"]
    assert (parts["train"].held_out, parts["val"].held_out) == (False, True)
    assert any("4 of its 20 training images are held out" in note for note in parts["val"].notes)
    assert open_split(str(tmp_path), "test", hold_out=True).name(0) == "a/t.jpg"
    assert open_split(str(tmp_path), "val").name(0) == "b/v.jpg"
    write_image(tmp_path / "flat" / "train" / "1.jpg")
    with pytest.raises(ConfigError, match=r"data.hold_out takes the validation images from one folder per class"):
        open_split(str(tmp_path / "flat"), "val", hold_out=True)


def test_a_part_of_the_annotated_training_images_can_be_held_out(tmp_path: Path) -> None:
    root = make_shapes(tmp_path / "boxes", ShapesSpec(kind="detect", train=20, val=4, size_px=96, seed=3))
    parts = {split: open_boxes(str(root), split, val_share=0.2, hold_out=True) for split in ("train", "val")}
    names = {split: {part.name(i) for i in range(len(part))} for split, part in parts.items()}
    assert len(names["val"]) == 4
    assert len(names["train"] | names["val"]) == 20
    assert any("4 of its 20 training images are held out" in note for note in parts["val"].notes)
    (root / "annotations" / "instances_train.json").unlink()
    with pytest.raises(NoSuchSplit, match="has no train split"):
        open_boxes(str(root), "val", hold_out=True)


def test_folders_called_valid_are_validation_splits(tmp_path: Path) -> None:
    """Roboflow writes them so."""
    write_image(tmp_path / "train/a/1.jpg")
    write_image(tmp_path / "valid/a/2.jpg")
    assert open_split(str(tmp_path), "val").name(0) == "a/2.jpg"


def test_data_that_is_not_there_is_refused_without_reading_anything(tmp_path: Path) -> None:
    for source in ("shapes", "synthetic", str(tmp_path)):
        check_source(source, detector=False)
        check_source(source, detector=True)
    for source, message in (("", "no data of"), ("shape", "Did you mean shapes"), (str(tmp_path / "no"), "not exist")):
        for detector in (False, True):
            with pytest.raises(ConfigError, match=message):
                check_source(source, detector=detector)
    with pytest.raises(ConfigError, match="vernier data get cifar10"):
        check_source("cifar10", detector=False)
    with pytest.raises(ConfigError, match="vernier data get coco"):
        check_source("coco", detector=True)
