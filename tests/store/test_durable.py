import errno
import json
import os
import re
import stat
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

import vernier
from tests.conftest import Done, only_run
from tests.store.small_runs import make_run
from vernier.records.run import RunStatus
from vernier.store import (
    DamagedFile,
    read_json,
    read_object,
    read_record,
    replaced_atomically,
    usual_mode,
    write_atomically,
    write_json,
)
from vernier.store.durable import entries, sync_to_disk


def test_a_listing_that_a_signal_interrupts_is_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "b").touch()
    (tmp_path / "a").touch()
    list_folder, interruptions = os.listdir, [InterruptedError(errno.EINTR, "Interrupted system call")]

    def interrupted(path: Path) -> list[str]:
        if interruptions:
            raise interruptions.pop()
        return list_folder(path)

    monkeypatch.setattr(os, "listdir", interrupted)
    assert [path.name for path in entries(tmp_path)] == ["a", "b"]


def test_json_is_replaced_whole_or_not_at_all(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    run.write_status("running", note="x" * 10_000)
    with pytest.raises(ValueError, match="Out of range float"):
        run.write_status("finished", bad=float("nan"))
    assert read_json(run.path / "run.json")["status"] == "running"
    assert json.loads((run.path / "run.json").read_text())["note"] == "x" * 10_000


@pytest.mark.parametrize(
    "content", [b"{", b"[1, 2]", b"", b"\xff\xfe\x00", b"[" * 200_000, b'{"a":' * 70 + b"0" + b"}" * 70, b"9" * 5000]
)
def test_every_damaged_json_file_is_one_kind_of_error_that_names_it(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "small.json"
    path.write_bytes(content)
    with pytest.raises(DamagedFile, match=r"small\.json"):
        read_object(path)
    with pytest.raises(DamagedFile, match=r"small\.json"):
        read_record(RunStatus, path)


def test_an_absent_file_is_not_called_damaged(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read_json(tmp_path / "absent.json")


def test_an_error_while_writing_leaves_the_old_file_and_no_litter(tmp_path: Path) -> None:
    path = tmp_path / "file.bin"
    write_atomically(path, b"old")

    def fail_half_way() -> None:
        with replaced_atomically(path) as temporary:
            temporary.write_bytes(b"half")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail_half_way()
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_link_under_the_temporary_name_is_not_written_through(tmp_path: Path) -> None:
    """In a folder that others can write to, the name of the temporary file can be guessed."""
    victim, page = tmp_path / "victim", tmp_path / "page.html"
    victim.write_text("precious")
    with replaced_atomically(page) as temporary:
        name = temporary.name
    page.unlink()
    page.with_name(name).symlink_to(victim)
    write_atomically(page, "content")
    assert victim.read_text() == "precious"
    assert page.read_text() == "content"
    assert not page.is_symlink()


@pytest.mark.parametrize("umask", [0o002, 0o027, 0o077])
def test_the_umask_decides_who_may_read_a_file(tmp_path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        write_atomically(tmp_path / "ours.json", "{}")
        with usual_mode(tmp_path / "theirs.safetensors"):
            save_file({"x": torch.zeros(3)}, tmp_path / "theirs.safetensors")
    finally:
        os.umask(before)
    assert {stat.S_IMODE(p.stat().st_mode) for p in tmp_path.iterdir()} == {0o666 & ~umask}
    assert load_file(tmp_path / "theirs.safetensors")["x"].tolist() == [0, 0, 0]


@pytest.mark.slow
def test_everything_a_run_writes_follows_the_umask(
    vernier_here: Callable[..., Done], tiny: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is writable for everybody, and a group that shares the folder can read all of it."""
    monkeypatch.setenv("VERNIER_HOME", str(tmp_path / "home"))
    before = os.umask(0o027)
    try:
        profiled = ["--profile-steps", "1:1", "--set", "ema.decay=0.9", "--raport", str(tmp_path / "raport.json")]
        assert vernier_here("train", *tiny, "--max-steps", "1", *profiled).code == 0
        run = only_run(tmp_path / "runs")
        for words in (["eval"], ["report"], ["export", "--out", str(tmp_path / "m.safetensors")]):
            assert vernier_here(words[0], str(run), *words[1:]).code == 0
    finally:
        os.umask(before)
    files = [p for p in tmp_path.rglob("*") if p.is_file()]
    assert len([p for p in files if p.suffix == ".safetensors"]) == 4
    assert {stat.S_IMODE(p.stat().st_mode) for p in files} == {0o640}
    assert {stat.S_IMODE(p.stat().st_mode) for p in run.rglob("*") if p.is_dir()} == {0o750}


def test_temporary_folders_are_for_their_owner_alone() -> None:
    """Logs and requests of other processes: every temporary folder is one of `tempfile`, whose mode is 0700.

    A `TemporaryFile` has no name, by which others could open it.
    """
    source = Path(vernier.__file__).parent
    uses = [line for p in source.rglob("*.py") for line in p.read_text().splitlines() if "tempfile." in line]
    assert uses
    assert [line for line in uses if not re.search(r"tempfile\.Temporary(Directory|File)\(", line)] == []
    assert not [p for p in source.rglob("*.py") if re.search(r"[\"']/(var/)?tmp\b", p.read_text())]
    with tempfile.TemporaryDirectory(prefix="vernier-logs-") as folder:
        assert stat.S_IMODE(Path(folder).stat().st_mode) == 0o700


def test_a_refused_write_names_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(OSError, match="No space left on device") as refusal:
        write_atomically(tmp_path / "small.json", b"{}")
    assert refusal.value.filename == str(tmp_path / "small.json")


def test_a_password_that_is_an_ordinary_word_does_not_change_a_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VERNIER_ADDRESSES", "https://me:resnet50@host/set")
    record = {"model": "resnet50", "data": "https://host/set", "old": "https://me:resnet50@host/set"}
    write_json(tmp_path / "config.json", record)
    assert read_json(tmp_path / "config.json") == {**record, "old": "https://host/set"}


def test_a_sync_that_is_refused_names_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(handle: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="Input/output error") as refusal:
        sync_to_disk(tmp_path)
    assert refusal.value.filename == str(tmp_path)
