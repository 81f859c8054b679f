import gzip
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from vernier.data.sources import FolderSource, SyntheticSource, open_split
from vernier.data.sources import folder as folder_module
from vernier.data.sources.arrays import read_idx
from vernier.errors import ConfigError


def _picture(path: Path, color: tuple[int, int, int] = (200, 10, 10)) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (10, 8), color).save(path)


def test_an_image_folder_is_sorted_labelled_and_named(tmp_path: Path) -> None:
    for name in ("train/b/2.jpg", "train/b/1.PNG", "train/a/x.jpeg", "train/a/deep/y.jpg", "train/.cache/no.jpg"):
        _picture(tmp_path / name)
    (tmp_path / "train/a/notes.txt").write_text("not an image")
    source = open_split(str(tmp_path), "train")
    assert source.classes == ("a", "b")
    assert [Path(source.describe(i)).name for i in range(len(source))] == ["y.jpg", "x.jpeg", "1.PNG", "2.jpg"]
    assert source.labels.tolist() == [0, 0, 1, 1]
    assert isinstance(source, FolderSource)
    assert source.read(1) == (tmp_path / "train/a/x.jpeg").read_bytes()


def test_the_fingerprint_sees_added_and_moved_files(tmp_path: Path) -> None:
    _picture(tmp_path / "train/a/1.jpg")
    _picture(tmp_path / "train/b/1.jpg")
    before = open_split(str(tmp_path), "train").fingerprint()
    assert open_split(str(tmp_path), "train").fingerprint() == before
    _picture(tmp_path / "train/b/2.jpg")
    assert open_split(str(tmp_path), "train").fingerprint() != before


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda root: None, "no train/ folder"),
        (lambda root: (root / "train").mkdir(), "has no images"),
        (lambda root: [_picture(root / "train/a/1.jpg"), (root / "train/empty").mkdir()], "empty have no images"),
    ],
)
def test_a_folder_without_data_is_a_clear_error(tmp_path: Path, make: Callable[[Path], object], message: str) -> None:
    make(tmp_path)
    with pytest.raises(ConfigError, match=message):
        open_split(str(tmp_path), "train")


def test_wrong_names_and_paths_suggest_what_works(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="--data PATH"):
        open_split("", "train")
    with pytest.raises(ConfigError, match="Did you mean shapes"):
        open_split("shape", "train")
    with pytest.raises(ConfigError, match="does not exist"):
        open_split(str(tmp_path / "no"), "train")
    with pytest.raises(ConfigError, match="is not in"):
        open_split("cifar10", "train")
    file = tmp_path / "file.tar"
    file.write_text("")
    with pytest.raises(ConfigError, match="is a file"):
        open_split(str(file), "train")


def test_damaged_idx_files_are_refused(tmp_path: Path) -> None:
    short = tmp_path / "a-images-idx3-ubyte"
    short.write_bytes(b"\0\0\x08\x03" + (2).to_bytes(4, "big") * 3 + b"1234")
    with pytest.raises(ConfigError, match="says 8 bytes, but it has 4"):
        read_idx(short)
    short.write_bytes(b"hello")
    with pytest.raises(ConfigError, match="not an IDX file"):
        read_idx(short)
    torn = tmp_path / "b-images-idx3-ubyte.gz"
    torn.write_bytes(gzip.compress(b"x" * 1000)[:20])
    with pytest.raises(ConfigError, match="Cannot read"):
        read_idx(torn)


def test_cifar10_binary_layout(tmp_path: Path) -> None:
    record = bytes([7]) + bytes(range(256)) * 12
    (tmp_path / "test_batch.bin").write_bytes(record * 2)
    source = open_split(str(tmp_path), "val")
    assert len(source) == 2
    assert source.classes[int(source.labels[0])] == "horse"
    assert source.images[0, 0, :3].tolist() == [[0, 0, 0], [1, 1, 1], [2, 2, 2]]  # type: ignore[union-attr]
    (tmp_path / "test_batch.bin").write_bytes(record[:-1])
    with pytest.raises(ConfigError, match="3,073-byte"):
        open_split(str(tmp_path), "val")


def test_real_fashion_mnist(real_data: Callable[[str], Path]) -> None:
    root = real_data("fashion-mnist")
    train, val = open_split(str(root), "train"), open_split(str(root), "val")
    assert (len(train), len(val), train.channels) == (60_000, 10_000, 1)
    assert np.bincount(val.labels).tolist() == [1000] * 10


def test_real_cifar10_test_batch(real_data: Callable[[str], Path]) -> None:
    source = open_split(str(real_data("cifar10")), "val")
    assert (len(source), source.channels) == (10_000, 3)
    assert np.bincount(source.labels).tolist() == [1000] * 10


def test_one_folder_is_divided_by_name_the_same_way_every_time(tmp_path: Path) -> None:
    for i in range(40):
        _picture(tmp_path / "ab"[i % 2] / f"{i}.png")
    train, val = open_split(str(tmp_path), "train"), open_split(str(tmp_path), "val")
    names = [{s.describe(i) for i in range(len(s))} for s in (train, val)]
    assert (len(train), len(val)) == (36, 4)
    assert not names[0] & names[1]
    assert np.bincount(val.all_labels()).tolist() == [2, 2]
    before = {val.describe(i) for i in range(4)}
    assert {open_split(str(tmp_path), "val").describe(i) for i in range(4)} == before
    assert len(open_split(str(tmp_path), "val", val_share=0.5)) == 20
    (tmp_path / "c").mkdir()
    _picture(tmp_path / "c/only.png")
    with pytest.raises(ConfigError, match="two are needed"):
        open_split(str(tmp_path), "train")


def test_the_list_of_a_large_folder_is_kept_until_the_folder_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folder_module, "CACHED_FROM", 3)
    for name in ("train/a/1.jpg", "train/a/deep/2.jpg", "train/b/1.jpg"):
        _picture(tmp_path / name)
    hour_ago = 3_600_000_000_000
    for folder in (tmp_path / "train", *(tmp_path / "train").rglob("*/")):
        times = folder.stat().st_mtime_ns - hour_ago
        os.utime(folder, ns=(times, times))
    first = open_split(str(tmp_path), "train")
    monkeypatch.setattr(folder_module, "_list_folder", lambda root: pytest.fail("listed again"))
    again = open_split(str(tmp_path), "train")
    assert again.fingerprint() == first.fingerprint()
    monkeypatch.undo()
    _picture(tmp_path / "train/a/deep/3.jpg")
    assert len(open_split(str(tmp_path), "train")) == 4


@pytest.mark.parametrize("name", ["synthetic", "static"])
def test_made_up_pixels_are_the_same_each_time_and_static_ones_in_every_batch(name: str) -> None:
    source, again = open_split(name, "train"), open_split(name, "train")
    assert isinstance(source, SyntheticSource)
    assert isinstance(again, SyntheticSource)
    batches = [np.empty((4, 6, 6, 3), np.uint8) for _ in range(3)]
    source.copy_ready_images(np.array([0, 1, 2, 3]), batches[0])
    source.copy_ready_images(np.array([4, 5, 6, 7]), batches[1])
    again.copy_ready_images(np.array([4, 5, 6, 7]), batches[2])
    assert np.array_equal(batches[1], batches[2])
    assert np.array_equal(batches[0], batches[1]) == (name == "static")
    assert len(np.unique(batches[0].reshape(4, -1), axis=0)) == 4
    assert len(source.classes) == 1000
