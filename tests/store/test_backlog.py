"""Files that refuse: /dev/full, and a limit on the size of files, which takes a part of a line as a full disk does."""

import os
from io import FileIO
from pathlib import Path

import pytest

from tests.full_disk import largest_file
from vernier.store import backlog
from vernier.store.backlog import Backlog


def _opened(path: Path, *, sole_writer: bool = True) -> Backlog:
    return Backlog(lambda: FileIO(path, "ab"), sole_writer=sole_writer)


def test_a_line_is_never_torn_and_what_waits_is_written_in_order(tmp_path: Path) -> None:
    path = tmp_path / "log"
    log = _opened(path)
    log.append(b"first\n")
    with largest_file(10):
        log.append(b"second\n")
        assert path.read_bytes() == b"first\n", "a line that the disk took in part is taken out again"
        log.append(b"third\n")
    assert log.problem == os.strerror(27)
    log.append(b"fourth\n")
    log.close()
    assert path.read_bytes() == b"first\nsecond\nthird\nfourth\n"
    assert log.lost == 0


def test_with_other_writers_the_rest_of_a_line_follows_later(tmp_path: Path) -> None:
    path = tmp_path / "log"
    log = _opened(path, sole_writer=False)
    with largest_file(4):
        log.append(b"first\n")
    assert path.read_bytes() == b"firs"
    log.append(b"second\n")
    assert path.read_bytes() == b"first\nsecond\n"


def test_a_file_that_cannot_be_opened_is_opened_later(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "log"
    log = _opened(path)
    log.append(b"first\n")
    path.parent.mkdir()
    log.append(b"second\n")
    assert path.read_bytes() == b"first\nsecond\n"


def test_what_waits_is_bounded_and_the_first_and_the_last_lines_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backlog, "WAITING_CHUNKS", 6)
    monkeypatch.setattr(backlog, "FIRST_CHUNKS", 2)
    path = tmp_path / "missing" / "log"
    log = _opened(path)
    for number in range(10):
        log.append(f"{number}\n".encode())
    assert log.lost == 4
    path.parent.mkdir()
    log.close()
    assert path.read_text().split() == ["0", "1", "6", "7", "8", "9"]


def test_what_is_left_at_the_end_is_counted() -> None:
    log = Backlog(lambda: FileIO("/dev/full", "ab"), sole_writer=True)
    log.append(b"first\n")
    log.append(b"second\n")
    log.close()
    log.close()
    log.append(b"nobody reads this\n")
    assert (log.lost, log.problem) == (2, os.strerror(28))
