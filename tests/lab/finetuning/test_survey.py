"""What `vernier finetune` finds in a folder."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from vernier.data.shapes import ShapesSpec, make_shapes
from vernier.errors import ConfigError
from vernier.lab.finetuning.survey import survey
from vernier.references import use


def test_class_folders_with_splits(shapes: Path) -> None:
    found = survey(str(shapes))
    assert (found.boxes, found.layout, found.splits) == (False, "class folders", ("train", "val"))
    assert (found.images, len(found.classes)) == (160, 10)
    assert (found.width_px, found.height_px, found.box_sides) == (32, 32, None)
    assert "160 images of 10 classes (class folders)" in found.describe()
    assert f"It has boxes too: {use('task', 'boxes')}" in found.describe()
    assert survey(str(shapes), boxes=True).layout == "COCO"
    with pytest.raises(ConfigError, match="has no boxes: it was recognized as class folders") as error:
        survey(str(shapes / "train"), boxes=True)
    assert error.value.given == {"task": "boxes"}


def test_class_folders_without_splits_and_with_a_train_folder_alone(shapes: Path, tmp_path: Path) -> None:
    whole = survey(str(shapes / "train"))
    assert (whole.images, whole.splits) == (160, ())
    shutil.copytree(shapes / "train", tmp_path / "only" / "train")
    shutil.copytree(shapes / "val", tmp_path / "only" / "test")
    assert survey(str(tmp_path / "only")).splits == ("train", "test")


def test_boxes_and_their_sizes(tmp_path: Path) -> None:
    root = make_shapes(tmp_path / "boxes", ShapesSpec(kind="detect", train=12, val=4, size_px=96, seed=3))
    found = survey(str(root))
    assert (found.boxes, found.layout, found.splits, found.images) == (True, "COCO", ("train", "val"), 12)
    assert found.box_sides is not None
    assert 0.05 < found.box_sides.small < found.box_sides.middle < found.box_sides.large < 1


def test_pascal_voc_without_lists(real_data: Callable[[str], Path], tmp_path: Path) -> None:
    cells = real_data("bccd")
    for folder, suffix in (("Annotations", ".xml"), ("JPEGImages", ".jpg")):
        (tmp_path / folder).mkdir()
        for file in sorted((cells / folder).glob(f"*{suffix}"))[:6]:
            shutil.copyfile(file, tmp_path / folder / file.name)
    found = survey(str(tmp_path))
    assert (found.layout, found.splits, found.images) == ("Pascal VOC", (), 6)
    assert (found.width_px, found.height_px) == (640, 480)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda root: (root / "a.jpg").write_bytes(b"x"), "neither class folders nor boxes. It contains: a.jpg"),
        (lambda root: None, "neither class folders nor boxes. It contains: nothing"),
        (lambda root: (root / "images").mkdir(), "neither class folders nor boxes. It contains: images"),
    ],
)
def test_a_folder_without_photographs_is_refused(tmp_path: Path, make: Callable[[Path], object], message: str) -> None:
    make(tmp_path)
    with pytest.raises(ConfigError, match=message):
        survey(str(tmp_path))


def test_too_little_to_learn_from_is_refused(shapes: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="does not exist"):
        survey(str(tmp_path / "nowhere"))
    first, second = sorted((shapes / "train").iterdir())[:2]
    shutil.copytree(first, tmp_path / "one" / first.name)
    with pytest.raises(ConfigError, match=f"has one class \\({first.name}\\). A classifier needs at least two"):
        survey(str(tmp_path / "one"))
    for folder in (first, second):
        (tmp_path / "few" / folder.name).mkdir(parents=True)
        image = next(folder.iterdir())
        shutil.copyfile(image, tmp_path / "few" / folder.name / image.name)
    with pytest.raises(ConfigError, match=r"has 2 training images\. Fine-tuning needs at least 4"):
        survey(str(tmp_path / "few"))
