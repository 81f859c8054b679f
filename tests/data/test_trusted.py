"""What is loaded from the cache: made by this user alone, by one process at a time, and made again if damaged."""

import multiprocessing
import os
import stat
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from vernier.data.trusted import SealedFolder, cached_file, is_trusted, private_folder
from vernier.errors import ConfigError

NOBODY = 65534
needs_root = pytest.mark.skipif(os.getuid() != 0, reason="only root can give files to another user")


def write(text: str) -> Callable[[Path], None]:
    def make(path: Path) -> None:
        path.write_text(text)

    return make


def fail(path: Path) -> None:
    raise AssertionError("made again")


def test_new_folders_are_private_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        folder = private_folder(tmp_path / "home" / "engines")
    finally:
        os.umask(before)
    modes = {stat.S_IMODE(path.stat().st_mode) for path in (folder, folder.parent)}
    assert modes == {0o700}


@pytest.mark.parametrize("mode", [0o777, 0o770, 0o720])
@pytest.mark.parametrize("below", ["", "engines"])
def test_a_cache_that_others_can_write_is_refused_with_what_would_work(tmp_path: Path, mode: int, below: str) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(mode)
    with pytest.raises(
        ConfigError, match=r"can be written by others. Set VERNIER_HOME to a folder that belongs to you"
    ):
        private_folder(shared / below)


def test_a_folder_in_tmp_is_one_that_nobody_else_can_replace(tmp_path: Path) -> None:
    sticky = tmp_path / "tmp"
    sticky.mkdir()
    sticky.chmod(0o1777)
    assert private_folder(sticky / "mine") == sticky / "mine"


@needs_root
@pytest.mark.parametrize("planted", ["folder", "parent", "file"])
def test_what_another_user_planted_is_not_loaded(tmp_path: Path, planted: str) -> None:
    path = cached_file(tmp_path / "home" / "engines" / "a.onnx", write("ours"))
    victim = {"folder": path.parent, "parent": path.parent.parent, "file": path}[planted]
    os.chown(victim, NOBODY, NOBODY)
    if planted == "file":
        assert not is_trusted(path)
        assert cached_file(path, write("made again")).read_text() == "made again"
        assert path.stat().st_uid == os.getuid()
        return
    with pytest.raises(ConfigError, match=f"{victim} belongs to user {NOBODY}"):
        cached_file(path, fail)


def test_links_are_not_followed(tmp_path: Path) -> None:
    target = tmp_path / "elsewhere"
    target.write_text("theirs")
    path = private_folder(tmp_path / "engines") / "a.onnx"
    path.symlink_to(target)
    assert cached_file(path, write("ours")).read_text() == "ours"
    assert target.read_text() == "theirs"
    (tmp_path / "linked").symlink_to(tmp_path / "engines")
    with pytest.raises(ConfigError, match="is a link"):
        private_folder(tmp_path / "linked")


def test_a_home_that_is_a_link_of_this_user_is_followed(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "home").symlink_to(tmp_path / "disk")
    assert cached_file(tmp_path / "home" / "engines" / "a", write("x")).read_text() == "x"


@pytest.mark.parametrize("damage", ["cut", "emptied", "one bit", "hash lost", "hash damaged"])
def test_a_damaged_file_is_made_again(tmp_path: Path, damage: str) -> None:
    path = cached_file(tmp_path / "cache" / "a.onnx", write("content"))
    assert cached_file(path, fail) == path
    noted = path.with_name("a.onnx.sha256")
    if damage == "hash lost":
        noted.unlink()
    elif damage == "hash damaged":
        noted.write_bytes(b"\xff\0")
    else:
        path.write_text({"cut": "cont", "emptied": "", "one bit": "cnntent"}[damage])
    assert cached_file(path, write("content")).read_text() == "content"
    assert cached_file(path, fail) == path


def test_leftovers_of_killed_processes_are_removed(tmp_path: Path) -> None:
    folder = private_folder(tmp_path / "cache")
    (folder / ".a.onnx.tmp-123").write_text("half")
    cached_file(folder / "b.onnx", write("b"))
    assert {path.name for path in folder.iterdir()} == {"b.onnx", "b.onnx.sha256"}


def _slowly(path: Path) -> None:
    time.sleep(0.2)
    with path.with_name("made").open("a") as f:
        f.write("x")
    path.write_text("content")


def _fetch(path: Path) -> None:
    cached_file(path, _slowly)


def test_of_several_processes_one_makes_the_file(tmp_path: Path) -> None:
    path = private_folder(tmp_path / "cache") / "a.onnx"
    processes = [multiprocessing.get_context("fork").Process(target=_fetch, args=(path,)) for _ in range(4)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
    assert [process.exitcode for process in processes] == [0] * 4
    assert path.with_name("made").read_text() == "x"


def test_a_sealed_folder_keeps_what_was_sealed_and_removes_the_rest(tmp_path: Path) -> None:
    folder = tmp_path / "inductor"
    first = SealedFolder(folder)
    (folder / "ab").mkdir()
    for name in ("sound.so", "damaged.so", "lost.so"):
        (folder / "ab" / name).write_text(name)
    first.seal()
    (folder / "ab" / "unsealed.so").write_text("half")  # a process was killed before it could seal
    (folder / "ab" / "damaged.so").write_text("dama")
    (folder / "link.so").symlink_to(tmp_path / "elsewhere.so")
    SealedFolder(folder)
    assert (folder / "ab" / "unsealed.so").exists(), "somebody is using the folder"
    _close_all(first)
    SealedFolder(folder)
    assert {path.name for path in folder.rglob("*")} == {"ab", "sound.so", "lost.so"}


def _close_all(folder: SealedFolder) -> None:
    """Other objects of this test hold the lock, too."""
    lock = folder.folder.with_name(f".{folder.folder.name}.lock")
    for handle in Path("/proc/self/fd").iterdir():
        if handle.exists() and handle.resolve() == lock:
            os.close(int(handle.name))


def test_a_damaged_list_of_seals_empties_the_folder(tmp_path: Path) -> None:
    folder = tmp_path / "inductor"
    sealed = SealedFolder(folder)
    (folder / "a.so").write_text("a")
    sealed.seal()
    (tmp_path / "inductor.json").write_text("{")
    os.close(sealed._in_use)
    SealedFolder(folder)
    assert list(folder.iterdir()) == []
