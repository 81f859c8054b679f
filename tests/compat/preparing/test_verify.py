"""Checking a data set, through the command line."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import Done
from tests.data.archives import jpeg_bytes
from tests.data.sources.small_sets import write_image


def test_verify_finds_what_is_bad_and_what_is_in_both(
    vernier_here: Callable[..., Done], shapes: Path, tmp_path: Path
) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(shapes, copy)
    shutil.rmtree(copy / "annotations")
    (copy / "shapes.json").unlink()
    one, two = sorted((copy / "train").rglob("*.jpg"))[:2]
    one.write_bytes(one.read_bytes()[:-40])
    shutil.copy(two, copy / "val" / two.parent.name / "zz.jpg")
    done = vernier_here("data", "verify", str(copy))
    assert done.code == 1
    assert str(one) in done.out
    assert "1 bad, 1 in more than one split" in done.out


def test_verify_checks_the_hashes_of_raw_images(
    vernier_here: Callable[..., Done], shapes: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    assert vernier_here("data", "prepare", "folder", str(shapes), str(out), "--format", "raw").code == 0
    assert vernier_here("data", "verify", str(out)).code == 0
    content = bytearray((out / "val.raw").read_bytes())
    content[7] ^= 1
    (out / "val.raw").write_bytes(content)
    done = vernier_here("data", "verify", str(out))
    assert done.code == 1
    assert "val.raw: the content of its pixels does not match its hash" in done.out


def test_verify_does_not_pass_over_a_split(vernier_here: Callable[..., Done], shapes: Path, tmp_path: Path) -> None:
    """One that is not there is noted, one that is damaged or of other classes is a failure."""
    out = tmp_path / "out"
    assert (
        vernier_here("data", "prepare", "folder", str(shapes), str(out), "--format", "shards", "--no-restarts").code
        == 0
    )
    shard = out / "val-000000.tar"
    shard.write_bytes(shard.read_bytes()[:-1])
    damaged = vernier_here("data", "verify", str(out))
    assert (damaged.code, str(shard) in damaged.err) == (2, True)
    for path in out.glob("val*"):
        path.unlink()
    alone = vernier_here("data", "verify", str(out))
    assert (alone.code, "has no val/" in alone.err) == (0, True)
    classes = tmp_path / "classes"
    for name in ("train/a", "train/b", "val/a"):
        (classes / name).mkdir(parents=True)
        (classes / name / "1.jpg").write_bytes(jpeg_bytes(len(name) + ord(name[-1])))
    apart = vernier_here("data", "verify", str(classes))
    assert (apart.code, "not in both: b" in apart.out) == (1, True)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may look into every folder")
def test_a_folder_that_cannot_be_looked_into_is_named(
    vernier_here: Callable[..., Done], shapes: Path, tmp_path: Path
) -> None:
    shutil.copytree(shapes / "train", tmp_path / "set")
    closed = min((tmp_path / "set").iterdir()) / "closed"
    closed.mkdir(mode=0)
    done = vernier_here("data", "verify", str(tmp_path / "set"))
    assert (done.code, f"Permission denied: {closed}" in done.err) == (1, True)


def test_verify_looks_for_training_images_in_the_test_split_too(
    vernier_here: Callable[..., Done], tmp_path: Path
) -> None:
    for split, shade in (("train", 10), ("val", 20), ("test", 10)):
        write_image(tmp_path / split / "cat" / "1.png", (shade, 0, 0))
    done = vernier_here("data", "verify", str(tmp_path))
    assert done.code == 1
    assert f"{tmp_path}/test/cat/1.png = {tmp_path}/train/cat/1.png" in done.out
    assert "train 1, val 1, test 1 images; 0 bad, 1 in more than one split" in done.out


def test_a_test_split_in_place_of_a_validation_split_is_verified_once(
    vernier_here: Callable[..., Done], tmp_path: Path
) -> None:
    for split, shade in (("train", 10), ("test", 20)):
        write_image(tmp_path / split / "cat" / "1.png", (shade, 0, 0))
    done = vernier_here("data", "verify", str(tmp_path))
    assert done.code == 0
    assert "train 1, val 1 images; 0 bad" in done.out
    assert "note: " in done.err
    assert "its test split is used instead" in done.err
