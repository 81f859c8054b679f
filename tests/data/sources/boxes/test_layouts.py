"""Which layout of a detection set is recognised, and what is said where none is."""

from pathlib import Path

import pytest

from tests.data.sources.small_sets import write_unsplit
from vernier.data.sources import open_boxes
from vernier.errors import ConfigError


def _both(root: Path) -> tuple[list[str], list[str]]:
    train, val = (open_boxes(str(root), split, val_share=0.25) for split in ("train", "val"))
    assert train.classes == val.classes
    return [train.name(i) for i in range(len(train))], [val.name(i) for i in range(len(val))]


@pytest.mark.parametrize("kind", ["coco", "voc", "yolo"])
def test_a_set_without_splits_is_divided_by_name(tmp_path: Path, kind: str) -> None:
    write_unsplit(tmp_path, kind, 20)
    train, val = _both(tmp_path)
    assert (len(train), len(val)) == (15, 5)
    assert set(train) | set(val) == {f"{i}.jpg" for i in range(20)}
    assert (train, val) == _both(tmp_path)
    assert sum(Path(n).stem < "5" for n in val) < 5, "not simply the first ones"
    with pytest.raises(ConfigError, match="no test split"):
        open_boxes(str(tmp_path), "test")


@pytest.mark.parametrize("kind", ["coco", "voc", "yolo"])
def test_one_image_cannot_be_divided(tmp_path: Path, kind: str) -> None:
    write_unsplit(tmp_path, kind, 1)
    with pytest.raises(ConfigError, match="two are needed"):
        open_boxes(str(tmp_path), "train")


def test_a_folder_without_boxes_says_what_would_work(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"instances_val\.json.*It contains: nothing"):
        open_boxes(str(tmp_path), "val")


def test_a_classification_folder_is_named_as_one(shapes: Path, tmp_path: Path) -> None:
    (tmp_path / "train").symlink_to(shapes / "train")
    (tmp_path / "val").symlink_to(shapes / "val")
    with pytest.raises(ConfigError, match="is a classification set"):
        open_boxes(str(tmp_path), "train")
    with pytest.raises(ConfigError, match="is a classification set"):
        open_boxes(str(tmp_path / "train"), "train")


@pytest.mark.parametrize("kind", ["coco", "voc", "yolo"])
def test_a_set_without_splits_says_how_many_are_held_out_or_that_all_are_used(tmp_path: Path, kind: str) -> None:
    write_unsplit(tmp_path, kind, 20)
    for split in ("train", "val"):
        assert "5 of its 20 images are held out" in open_boxes(str(tmp_path), split, val_share=0.25).notes[-1]
    whole = open_boxes(str(tmp_path), "val", whole=True)
    assert (len(whole), whole.undivided) == (20, True)
    assert "all of its 20 images are used" in whole.notes[-1]


def test_a_test_split_that_is_used_for_validation_is_noted(tmp_path: Path) -> None:
    for split in ("train", "test"):
        write_unsplit(tmp_path / split, "yolo", 2)
    (tmp_path / "classes.txt").write_text("cat\n")
    val, test = open_boxes(str(tmp_path), "val"), open_boxes(str(tmp_path), "test")
    assert "no independent test" in val.notes[0]
    assert test.notes == ()
    assert val.fingerprint() == test.fingerprint()
