"""Images in class folders: order, labels, fingerprints, division by name and the cached listing."""

import os
from pathlib import Path

import numpy as np
import pytest

from tests.data.sources.small_sets import write_image
from vernier.data.sources import FolderSource, open_split
from vernier.data.sources import folder as folder_module
from vernier.errors import ConfigError


def test_an_image_folder_is_sorted_labelled_and_named(tmp_path: Path) -> None:
    for name in ("train/b/2.jpg", "train/b/1.PNG", "train/a/x.jpeg", "train/a/deep/y.jpg", "train/.cache/no.jpg"):
        write_image(tmp_path / name)
    (tmp_path / "train/a/notes.txt").write_text("not an image")
    source = open_split(str(tmp_path), "train")
    assert source.classes == ("a", "b")
    assert [Path(source.describe(i)).name for i in range(len(source))] == ["y.jpg", "x.jpeg", "1.PNG", "2.jpg"]
    assert source.labels.tolist() == [0, 0, 1, 1]
    assert isinstance(source, FolderSource)
    assert source.read(1) == (tmp_path / "train/a/x.jpeg").read_bytes()


def test_the_fingerprint_sees_added_and_moved_files(tmp_path: Path) -> None:
    write_image(tmp_path / "train/a/1.jpg")
    write_image(tmp_path / "train/b/1.jpg")
    before = open_split(str(tmp_path), "train").fingerprint()
    assert open_split(str(tmp_path), "train").fingerprint() == before
    write_image(tmp_path / "train/b/2.jpg")
    assert open_split(str(tmp_path), "train").fingerprint() != before


def test_one_folder_is_divided_by_name_the_same_way_every_time(tmp_path: Path) -> None:
    for i in range(40):
        write_image(tmp_path / "ab"[i % 2] / f"{i}.png")
    train, val = open_split(str(tmp_path), "train"), open_split(str(tmp_path), "val")
    names = [{s.describe(i) for i in range(len(s))} for s in (train, val)]
    assert (len(train), len(val)) == (36, 4)
    assert not names[0] & names[1]
    assert np.bincount(val.all_labels()).tolist() == [2, 2]
    before = {val.describe(i) for i in range(4)}
    assert {open_split(str(tmp_path), "val").describe(i) for i in range(4)} == before
    assert len(open_split(str(tmp_path), "val", val_share=0.5)) == 20
    (tmp_path / "c").mkdir()
    write_image(tmp_path / "c/only.png")
    with pytest.raises(ConfigError, match="two are needed"):
        open_split(str(tmp_path), "train")


def test_the_listing_of_a_large_folder_is_cached_until_the_folder_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folder_module, "CACHED_FROM", 3)
    for name in ("train/a/1.jpg", "train/a/deep/2.jpg", "train/b/1.jpg"):
        write_image(tmp_path / name)
    hour_ns = 3_600_000_000_000
    for folder in (tmp_path / "train", *(tmp_path / "train").rglob("*/")):
        times = folder.stat().st_mtime_ns - hour_ns
        os.utime(folder, ns=(times, times))
    first = open_split(str(tmp_path), "train")
    monkeypatch.setattr(folder_module, "_list_folder", lambda root: pytest.fail("listed again"))
    again = open_split(str(tmp_path), "train")
    assert again.fingerprint() == first.fingerprint()
    monkeypatch.undo()
    write_image(tmp_path / "train/a/deep/3.jpg")
    assert len(open_split(str(tmp_path), "train")) == 4


def test_class_folders_that_are_numbers_are_sorted_as_numbers(tmp_path: Path) -> None:
    for name in ("0", "1", "2", "10", "100"):
        write_image(tmp_path / name / "x.jpg")
    source = FolderSource(tmp_path)
    assert source.classes == ("0", "1", "2", "10", "100")
    assert [source.name(i) for i in range(5)] == [f"{name}/x.jpg" for name in source.classes]
    assert source.notes == (
        f"{tmp_path}: the class folders are numbers and are sorted as numbers (0, 1, 2, ...), not as text",
    )


@pytest.mark.parametrize("names", [("00", "01", "10"), ("1", "10", "a"), ("-1", "10", "2"), ("1", "10", "²")])
def test_other_names_stay_in_the_order_of_text_and_need_no_note(names: tuple[str, ...], tmp_path: Path) -> None:
    for name in names:
        write_image(tmp_path / name / "x.jpg")
    source = FolderSource(tmp_path)
    assert source.classes == tuple(sorted(names))
    assert source.notes == ()


def test_a_listing_that_an_older_version_cached_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It had numbers in the order of text, and no GIF files."""
    monkeypatch.setattr(folder_module, "CACHED_FROM", 3)
    for name in ("train/2/1.jpg", "train/2/2.jpg", "train/10/1.jpg"):
        write_image(tmp_path / name)
    for folder in (tmp_path / "train", *(tmp_path / "train").rglob("*/")):
        os.utime(folder, (1e9, 1e9))
    with monkeypatch.context() as older:
        older.setattr(folder_module, "_sort_classes", sorted)
        older.setattr(folder_module, "_SUFFIXES", [".jpg"])
        assert FolderSource(tmp_path / "train").classes == ("10", "2")
    assert FolderSource(tmp_path / "train").classes == ("2", "10")


def test_every_format_that_can_be_decoded_is_listed_and_other_files_are_counted(tmp_path: Path) -> None:
    for name in ("a.gif", "b.avif", "c.jp2", "d.tif", "e.ppm"):
        write_image(tmp_path / "cat" / name)
    for name in ("notes.txt", "more.txt", "README", ".hidden", "f.heic"):
        (tmp_path / "cat" / name).write_text("")
    source = FolderSource(tmp_path)
    assert len(source) == 5
    assert all(source.image(i).shape == (8, 10, 3) for i in range(5))
    assert "4 files skipped, not images by their names: 2 .txt, 1" in source.notes[0]
    assert "1 .heic" in source.notes[0]
    assert "1 without an ending" in source.notes[0]


def test_a_folder_without_splits_is_divided_or_opened_whole_and_says_which(tmp_path: Path) -> None:
    for i in range(40):
        write_image(tmp_path / "ab"[i % 2] / f"{i}.png")
    train, val, whole = (open_split(str(tmp_path), s, whole=w) for s, w in (("train", 0), ("val", 0), ("val", 1)))
    assert train.notes == val.notes
    assert "has no splits: 4 of its 40 images are held out for validation (data.val_share)" in val.notes[0]
    assert (len(whole), whole.undivided, val.undivided) == (40, True, False)
    assert "has no splits: all of its 40 images are used" in whole.notes[0]


def test_hidden_images_and_folders_are_left_out_and_hidden_images_are_counted(tmp_path: Path) -> None:
    for name in ("cat/1.jpg", "cat/._1.jpg", "cat/.ipynb_checkpoints/1-checkpoint.jpg", "cat/sub/2.jpg"):
        write_image(tmp_path / name)
    source = FolderSource(tmp_path)
    assert [source.name(i) for i in range(len(source))] == ["cat/1.jpg", "cat/sub/2.jpg"]
    assert "1 file skipped, not images by their names: 1 .jpg (hidden)" in source.notes[0]


def test_links_to_folders_inside_a_class_are_counted_and_a_class_may_be_one(tmp_path: Path) -> None:
    write_image(tmp_path / "elsewhere/1.jpg")
    write_image(tmp_path / "set/cat/2.jpg")
    (tmp_path / "set/cat/more").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "set/dog").symlink_to(tmp_path / "elsewhere")
    source = FolderSource(tmp_path / "set")
    assert [source.name(i) for i in range(len(source))] == ["cat/2.jpg", "dog/1.jpg"]
    assert "1 symbolic link to folders skipped inside class folders" in source.notes[0]


def test_a_listing_is_read_again_when_a_folder_was_replaced_with_its_time_stamp(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As `rsync -a` and `tar -x` do: they set the time of a folder back to that of the original."""
    monkeypatch.setattr(folder_module, "CACHED_FROM", 3)
    for name in ("a/1.jpg", "a/2.jpg", "b/1.jpg"):
        write_image(tmp_path / name)
    for folder in (tmp_path, *tmp_path.rglob("*/")):
        os.utime(folder, (1e9, 1e9))
    assert len(FolderSource(tmp_path)) == 3
    write_image(tmp_path / "a/3.jpg")
    os.utime(tmp_path / "a", (1e9, 1e9))
    assert len(FolderSource(tmp_path)) == 4


@pytest.mark.parametrize(("name", "kind"), [("boxes/1.xml", ".xml"), ("marks/1.txt", ".txt")])
def test_a_folder_of_annotations_is_not_called_an_empty_class(tmp_path: Path, name: str, kind: str) -> None:
    write_image(tmp_path / "photos/1.jpg")
    (tmp_path / name).parent.mkdir()
    (tmp_path / name).write_text("")
    with pytest.raises(ConfigError, match=rf"no images but {kind} files.*Pascal VOC.*every folder is a class"):
        FolderSource(tmp_path)
