"""What the model of a disk says about the classical mistakes."""

import os
import random
from pathlib import Path

import pytest

from .disk_model import Disk, Tree, crash_states
from .tracing import Record


def _record(operation: str, path: str, other: str = "", *, flags: int = 0, content: bytes = b"") -> Record:
    return Record(operation, 1, 0, 0, flags, path, other, content)


def _states(root: Path, *records: Record) -> list[Tree]:
    """All states after the last of some operations."""
    disk = Disk(root)
    for record in records:
        disk.replay(record)
    return [tree for seed in range(8) for tree in crash_states(disk, random.Random(seed))]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "file").write_bytes(b"old")
    return tmp_path


def _replacing(root: Path, *, sync_file: bool, sync_folder: bool) -> list[Record]:
    new = str(root / "new")
    return [
        _record("open-write", new, flags=os.O_CREAT | os.O_TRUNC),
        _record("write", new, content=b"n" * 2000),
        *([_record("sync", new)] if sync_file else []),
        _record("rename", new, str(root / "file")),
        *([_record("sync", str(root))] if sync_folder else []),
    ]


def test_a_replaced_file_is_old_or_new_when_it_was_synced_before_the_rename(root: Path) -> None:
    states = _states(root, *_replacing(root, sync_file=True, sync_folder=False))
    assert {state["file"] for state in states} == {b"old", b"n" * 2000}


def test_without_the_sync_it_may_be_empty_torn_or_zeros(root: Path) -> None:
    contents = {state["file"] for state in _states(root, *_replacing(root, sync_file=False, sync_folder=False))}
    assert {b"old", b"", bytes(2000), b"n" * 2000} <= contents
    assert contents & {b"n" * sectors * 512 for sectors in (1, 2, 3)}


def test_after_the_sync_of_its_folder_it_is_new(root: Path) -> None:
    states = _states(root, *_replacing(root, sync_file=True, sync_folder=True))
    assert {state["file"] for state in states} == {b"n" * 2000}
    assert all("new" not in state for state in states)


def test_a_later_change_may_be_kept_where_an_earlier_one_is_lost(root: Path) -> None:
    made = [_record("mkdir", str(root / name)) for name in ("a", "b")]
    states = _states(root, *made, _record("unlink", str(root / "file")))
    assert {frozenset(state) for state in states} == {
        frozenset(names)
        for names in ([], ["a"], ["b"], ["a", "b"], ["file"], ["a", "file"], ["b", "file"], ["a", "b", "file"])
    }


def test_syncing_a_new_folder_says_nothing_about_its_own_entry(root: Path) -> None:
    inside = str(root / "folder" / "inside")
    records = [_record("mkdir", str(root / "folder")), _record("open-write", inside, flags=os.O_CREAT)]
    states = _states(root, *records, _record("sync", str(root / "folder")))
    assert {frozenset(state) for state in states} == {
        frozenset(["file"]),
        frozenset(["file", "folder", "folder/inside"]),
    }
    assert {frozenset(state) for state in _states(root, *records, _record("sync", str(root)))} == {
        frozenset(["file", "folder"]),
        frozenset(["file", "folder", "folder/inside"]),
    }
