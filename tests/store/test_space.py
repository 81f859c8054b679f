"""Disk space, with files that have several names."""

import os
from pathlib import Path

from vernier.store.space import freed_bytes, newest_change_s, used_bytes

SIZE = 64 * 1024


def _folder(path: Path, *names: str) -> Path:
    path.mkdir(parents=True)
    for name in names:
        (path / name).write_bytes(os.urandom(SIZE))
    return path


def test_a_file_with_two_names_counts_once_and_is_freed_with_the_last(tmp_path: Path) -> None:
    first, second = _folder(tmp_path / "all/first", "model"), _folder(tmp_path / "all/second", "optimizer")
    os.link(first / "model", second / "model")
    one = used_bytes(first / "model")
    assert SIZE <= one < 2 * SIZE
    assert used_bytes(tmp_path / "all") == used_bytes(first) + used_bytes(second) - one
    assert freed_bytes([first]) == 0
    assert freed_bytes([second]) == used_bytes(second / "optimizer")
    assert freed_bytes([first, second]) == used_bytes(tmp_path / "all")


def test_links_to_elsewhere_are_not_followed(tmp_path: Path) -> None:
    elsewhere = _folder(tmp_path / "elsewhere", "large")
    folder = _folder(tmp_path / "folder")
    (folder / "link").symlink_to(elsewhere)
    assert used_bytes(folder) < SIZE
    assert used_bytes(tmp_path / "not there") == freed_bytes([tmp_path / "not there"]) == 0


def test_the_newest_change_is_that_of_any_file(tmp_path: Path) -> None:
    folder = _folder(tmp_path / "folder/below", "old", "new").parent
    for path in (folder, folder / "below", folder / "below/old"):
        os.utime(path, (1000, 1000))
    os.utime(folder / "below/new", (2000, 2000))
    assert newest_change_s(folder) == 2000
    assert newest_change_s(tmp_path / "not there") == 0
