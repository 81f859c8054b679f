"""Locks of files: one process at a time, or several that share."""

import os
from pathlib import Path

import pytest

from vernier.store.locks import is_locked, lock


def test_a_lock_keeps_others_out_until_its_file_is_closed(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with path.open("w") as mine, path.open() as other:
        assert lock(mine)
        assert not lock(other)
        assert not lock(other, shared=True)
        assert is_locked(path)
    assert not is_locked(path)


def test_shared_locks_keep_out_only_those_that_want_it_alone(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with path.open("w") as first, path.open() as second, path.open() as third:
        assert lock(first, shared=True)
        assert lock(second, shared=True)
        assert not lock(third)
        assert not is_locked(path)  # nobody has it alone


def test_a_file_that_is_absent_is_not_locked_and_one_that_cannot_be_locked_is_an_error(tmp_path: Path) -> None:
    assert not is_locked(tmp_path / "nothing")
    handle = os.open(tmp_path, os.O_RDONLY)
    os.close(handle)
    with pytest.raises(OSError, match="Bad file descriptor"):
        lock(handle)
