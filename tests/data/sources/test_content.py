"""What the files of a set contain: seen for every kind of source, in small sets and in sampled ones."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from vernier.data.shapes import ShapesSpec, make_shapes
from vernier.data.sources import content
from vernier.data.sources.content import content_of, describe_change
from vernier.data.sources.opening import open_split
from vernier.records.run import DataContent


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return make_shapes(tmp_path / "shapes", ShapesSpec(train=64, val=32, size_px=32))


@pytest.fixture
def sampled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every set counts as large, and no file is read."""
    monkeypatch.setattr(content, "WHOLE_BYTES", 1)
    monkeypatch.setattr(content, "SAMPLED_FILES", 0)


def look(folder: Path) -> DataContent:
    return content_of(open_split(str(folder), "train"))


def images(folder: Path) -> list[Path]:
    return sorted((folder / "train").rglob("*.jpg"))


def flip_last_byte(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1] + b"\0")


def set_time(path: Path, ns: int) -> None:
    os.utime(path, ns=(ns, ns))


def test_one_byte_of_a_small_set_is_seen_even_if_size_and_time_stay(folder: Path) -> None:
    before, victim = look(folder), images(folder)[40]
    time_ns = victim.stat().st_mtime_ns
    flip_last_byte(victim)
    set_time(victim, time_ns)
    assert describe_change(before, look(folder)) != ""


def test_a_copy_of_a_small_set_is_the_same_set(folder: Path, tmp_path: Path) -> None:
    before = look(folder)
    shutil.copytree(folder, tmp_path / "copy", copy_function=shutil.copyfile)
    assert look(tmp_path / "copy") == before


def test_a_file_of_another_size_is_seen_in_a_large_set(folder: Path, sampled: None) -> None:
    before, victim = look(folder), images(folder)[40]
    time_ns = victim.stat().st_mtime_ns
    victim.write_bytes(victim.read_bytes() + b"\0")
    set_time(victim, time_ns)
    assert describe_change(before, look(folder)) != ""


def test_a_file_that_was_written_again_is_seen_in_a_large_set(folder: Path, sampled: None) -> None:
    before = look(folder)
    flip_last_byte(images(folder)[40])
    assert describe_change(before, look(folder)) == "some files were written again"


def test_a_copy_of_a_large_set_is_the_same_set(folder: Path, sampled: None) -> None:
    before = look(folder)
    for image in images(folder):
        set_time(image, image.stat().st_mtime_ns + 10**9)
    after = look(folder)
    assert after != before
    assert describe_change(before, after) == ""


def test_a_vanished_file_is_no_error_but_a_change(folder: Path) -> None:
    source = open_split(str(folder), "train")
    before = content_of(source)
    images(folder)[3].unlink()
    assert describe_change(before, content_of(source)) != ""


@pytest.mark.parametrize(
    ("arguments", "file"),
    [
        (("--format", "shards", "--no-restarts"), "*.tar"),
        (("--format", "raw"), "train*.raw"),
        (("--format", "tfrecord"), "train-*-of-*"),
    ],
)
def test_packed_sets_are_looked_at_too(
    folder: Path, tmp_path: Path, vernier_here: Callable[..., object], arguments: tuple[str, ...], file: str
) -> None:
    packed = tmp_path / "packed"
    vernier_here("data", "prepare", "folder", str(folder), str(packed), *arguments)
    source = open_split(str(packed), "train")
    before, victim = content_of(source), sorted(packed.rglob(file))[0]
    data = bytearray(victim.read_bytes())
    data[len(data) // 2] ^= 1
    time_ns = victim.stat().st_mtime_ns
    victim.write_bytes(data)
    set_time(victim, time_ns)
    assert describe_change(before, content_of(source)) != ""
