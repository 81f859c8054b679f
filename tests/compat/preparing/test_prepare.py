"""Folders, COCO, and what is written from any source, through the command line."""

import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import Done
from tests.data.archives import SYNSETS, jpeg_bytes, tar_bytes
from vernier.data.shapes import ShapesSpec, make_shapes
from vernier.data.sources import open_split


def test_coco_zips(vernier_here: Callable[..., Done], tmp_path: Path) -> None:
    root = make_shapes(tmp_path / "set", ShapesSpec(kind="detect", train=5, val=3, size_px=32))
    for name, folders in (("images.zip", ("train", "val")), ("annotations.zip", ("annotations",))):
        with zipfile.ZipFile(tmp_path / name, "w") as bundle:
            for path in (p for f in folders for p in (root / f).rglob("*") if p.is_file()):
                bundle.write(path, path.relative_to(root))
    zips = [str(tmp_path / n) for n in ("images.zip", "annotations.zip")]
    done = vernier_here("data", "prepare", "coco", *zips, str(tmp_path / "out"), "--expect", "0", "5", "3", "--json")
    assert done.code == 0, done.err
    assert done.json() == {"train": 5, "val": 3}
    (tmp_path / "out" / "val" / "000001.jpg").unlink()
    bad = vernier_here("data", "prepare", "coco", zips[1], str(tmp_path / "out"), "--expect", "0", "5", "3")
    assert bad.code == 1
    assert "000001.jpg" in bad.err


@pytest.mark.parametrize("layout", ["shards", "raw"])
def test_what_is_prepared_can_be_verified_inspected_and_trained_on(
    vernier_here: Callable[..., Done], shapes: Path, tiny: list[str], tmp_path: Path, layout: str
) -> None:
    out = str(tmp_path / "out")
    assert vernier_here("data", "prepare", "folder", str(shapes), out, "--format", layout).code == 0
    assert vernier_here("data", "verify", out, "--json").json()["images"] == {"train": 160, "val": 50}
    seen = vernier_here("data", "inspect", out, "--json").json()["splits"]["train"]
    assert (seen["images"], seen["median_size"]) == (160, "32 x 32")
    trained = vernier_here("train", *tiny, "--data", out, "--max-steps", "2", "--max-eval-steps", "1", "--json")
    assert trained.code == 0, trained.err
    again = vernier_here("data", "prepare", "folder", str(shapes), out, "--format", layout)
    assert again.code == 2
    assert "exists already" in again.err


def test_two_images_of_one_name_are_not_written_over_each_other(
    vernier_here: Callable[..., Done], tmp_path: Path
) -> None:
    inner = tar_bytes([("a/same.JPEG", jpeg_bytes(1)), ("b/same.JPEG", jpeg_bytes(2))])
    (tmp_path / "train.tar").write_bytes(tar_bytes([(f"{SYNSETS[0]}.tar", inner)]))
    arguments = ["imagenet", str(tmp_path / "train.tar"), str(tmp_path / "out"), "--expect", "1", "2", "0"]
    done = vernier_here("data", "prepare", *arguments)
    assert (done.code, "More than one image would be written as" in done.err) == (2, True)
    assert not (tmp_path / "out").exists()
    assert vernier_here("data", "prepare", *arguments, "--format", "shards", "--no-restarts").code == 0
    assert len(open_split(str(tmp_path / "out"), "train")) == 2


def test_coco_may_be_called_coco_and_says_what_it_lacks(
    vernier_here: Callable[..., Done], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The name of a built-in set is a folder here, and COCO has boxes, which shards cannot hold."""
    root = make_shapes(tmp_path / "set", ShapesSpec(kind="detect", train=4, val=2, size_px=48))
    monkeypatch.chdir(tmp_path)
    for name, split in (("train2017", "train"), ("annotations", "annotations"), ("val2017", "val")):
        with zipfile.ZipFile(f"{name}.zip", "w") as bundle:
            for file in sorted((root / split).rglob("*.j*")):
                bundle.write(file, file.relative_to(root))
    few = ["--expect", "0", "4", "2"]
    lacking = vernier_here("data", "prepare", "coco", "train2017.zip", "coco", *few)
    assert (lacking.code, "annotations_trainval2017.zip" in lacking.err) == (1, True)
    zips = ["train2017.zip", "val2017.zip", "annotations.zip"]
    shards = vernier_here("data", "prepare", "coco", *zips, "coco", *few, "--format", "shards")
    assert (shards.code, "--format shards" in shards.err) == (2, True)
    done = vernier_here("data", "prepare", "coco", *zips, "coco", *few)
    assert done.code == 0, done.err
    assert vernier_here("data", "verify", str(tmp_path / "coco"), "--json").json()["images"] == {"train": 4, "val": 2}


def test_whatever_data_takes_can_be_prepared(vernier_here: Callable[..., Done], shapes: Path, tmp_path: Path) -> None:
    """Shards back to files, files to shards; not files to files."""
    shards, files = str(tmp_path / "shards"), str(tmp_path / "files")
    prepare = ["data", "prepare", "folder"]
    assert vernier_here(*prepare, str(shapes), shards, "--format", "shards", "--no-restarts").code == 0
    assert vernier_here(*prepare, shards, files).code == 0
    there, back = open_split(shards, "val"), open_split(files, "val")
    assert back.classes == there.classes
    assert sorted(there.all_labels().tolist()) == back.all_labels().tolist()
    itself = vernier_here(*prepare, files, files, "--format", "raw")
    assert (itself.code, "Choose another folder" in itself.err) == (2, True)
    (tmp_path / "files" / "val" / "empty").mkdir()
    damaged = vernier_here(*prepare, files, str(tmp_path / "raw"), "--format", "raw")
    assert (damaged.code, "without images" in damaged.err) == (2, True), "not simply without its validation split"
    (tmp_path / "files" / "val" / "empty").rmdir()
    same = vernier_here(*prepare, files, str(tmp_path / "again"))
    assert (same.code, "one folder of images per class already" in same.err) == (2, True)


def test_an_image_that_cannot_be_opened_is_named(
    vernier_here: Callable[..., Done], shapes: Path, tmp_path: Path
) -> None:
    copy, out = tmp_path / "copy", str(tmp_path / "out")
    shutil.copytree(shapes, copy)
    gone = min((copy / "train").rglob("*.jpg"))
    gone.unlink()
    gone.symlink_to("/no/such/file")
    done = vernier_here("data", "prepare", "folder", str(copy), out, "--format", "shards", "--no-restarts")
    assert done.code == 1
    assert f"Cannot read {gone}: No such file or directory" in done.err
    shutil.rmtree(copy / "annotations")
    (copy / "shapes.json").unlink()
    inspected = vernier_here("data", "inspect", str(copy), "--json")
    assert inspected.code == 0, inspected.err
