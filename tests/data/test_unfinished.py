"""What an interrupted command leaves is refused until it is complete. /dev/full plays a full disk."""

import os
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import Done, command
from tests.data.archives import fill_disk_at, prepare_imagenet
from vernier.compat.preparing.unfinished import mark_unfinished
from vernier.data.sources import open_boxes, open_split
from vernier.data.unfinished import LOCK, MARK, locked_folder
from vernier.errors import ConfigError


def test_a_marked_folder_is_no_data_set(shapes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VERNIER_HOME", str(tmp_path))
    (tmp_path / "set").mkdir()
    for name in ("train", "val", "annotations"):
        (tmp_path / "set" / name).symlink_to(shapes / name)
    for name in ("cifar10", "imagenette/imagenette2-320", "coco/annotations"):
        (tmp_path / "data" / name).mkdir(parents=True)
    folders = [tmp_path / "set", *(tmp_path / "data" / name for name in ("cifar10", "imagenette", "coco"))]
    for folder in folders:
        (folder / MARK).write_text("vernier data get x\n")
    for opens, data in (
        (open_split, str(tmp_path / "set")),
        (open_boxes, str(tmp_path / "set")),
        (open_split, "cifar10"),
        (open_split, "imagenette"),
        (open_boxes, "coco"),
    ):
        with pytest.raises(ConfigError, match="incomplete: `vernier data get x` did not finish"):
            opens(data, "train")
    (tmp_path / "set" / MARK).unlink()
    assert len(open_split(str(tmp_path / "set"), "train")) == len(open_boxes(str(tmp_path / "set"), "train")) == 160


@pytest.mark.parametrize(
    ("layout", "written"), [("raw", ".train.raw.tmp-{pid}"), ("shards", ".train-000000.tar.writing")]
)
def test_a_full_disk_is_one_message_and_the_same_command_finishes(
    vernier_here: Callable[..., Done],
    ilsvrc: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    layout: str,
    written: str,
) -> None:
    out, written = tmp_path / "out", written.format(pid=os.getpid())
    out.mkdir()
    with monkeypatch.context() as patch:
        if layout == "raw":
            fill_disk_at(patch, written)
        else:
            (out / written).symlink_to("/dev/full")
        full = prepare_imagenet(vernier_here, ilsvrc, out, "--format", layout, "--no-restarts")
    assert full.code == 1
    assert "No space left on device" in full.err
    assert "same command" in full.err
    assert "Traceback" not in full.err
    refused = vernier_here("data", "verify", str(out))
    assert refused.code == 2
    assert "is incomplete" in refused.err
    (out / written).unlink(missing_ok=True)
    assert prepare_imagenet(vernier_here, ilsvrc, out, "--format", layout, "--no-restarts").code == 0
    assert vernier_here("data", "verify", str(out), "--json").json()["images"] == {"train": 6, "val": 2}
    assert not list(out.glob(".*"))


def test_a_full_disk_elsewhere_is_one_message_too(vernier_here: Callable[..., Done], shapes: Path) -> None:
    done = vernier_here("data", "inspect", str(shapes), "--sheet", "/dev/full")
    assert done.code == 1
    assert done.err.splitlines()[-1].startswith("vernier: No space left on device")
    assert "Traceback" not in done.err


def test_a_folder_has_one_writer_and_the_second_is_told_who_it_is(tmp_path: Path) -> None:
    folder = tmp_path / "set"
    with locked_folder(folder, "vernier data prepare folder"):
        with (
            pytest.raises(
                ConfigError, match=rf"being written by `vernier data prepare folder` \(process {os.getpid()} on"
            ),
            locked_folder(folder, "x"),
        ):
            pytest.fail("two writers")
        assert (folder / LOCK).is_file()
    assert not folder.exists(), "nothing was written"
    folder.mkdir()
    (folder / LOCK).write_text("left by a killed process")
    with locked_folder(folder, "x"), mark_unfinished(folder, "x"):
        (folder / "train").touch()
    assert [path.name for path in folder.iterdir()] == ["train"]
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="Cannot write into"), locked_folder(tmp_path / "file" / "x", "x"):
        pass


def _arguments(ilsvrc: list[str], out: Path) -> list[str]:
    form = ["--format", "shards", "--no-restarts"]
    return ["data", "prepare", "imagenet", *ilsvrc[:2], str(out), *ilsvrc[2:], *form]


def test_two_commands_into_one_folder_lose_nothing(
    vernier_here: Callable[..., Done], ilsvrc: list[str], tmp_path: Path
) -> None:
    """The first is stopped in the middle, so that the second always meets it."""
    out, fifo = tmp_path / "out", tmp_path / "wait"
    arguments = _arguments(ilsvrc, out)
    os.mkfifo(fifo)
    out.mkdir()
    (out / ".train-000000.tar.writing").symlink_to(fifo)  # the first waits here until somebody reads
    first = subprocess.Popen(command(*arguments), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    try:
        while not (out / LOCK).exists() or not (out / LOCK).read_text():
            assert first.poll() is None
            threading.Event().wait(0.01)
        second = vernier_here(*arguments)
        assert (second.code, f"(process {first.pid} on" in second.err) == (2, True), second.err
        got = vernier_here("data", "get", "cifar10", "--out", str(out))
        assert (got.code, f"(process {first.pid} on" in got.err) == (2, True), got.err
    finally:
        first.kill()
        first.wait()
    (out / ".train-000000.tar.writing").unlink()
    assert vernier_here(*arguments).code == 0
    assert vernier_here("data", "verify", str(out), "--json").json()["bad"] == []
    assert not list(out.glob(".*"))


def test_a_limit_of_the_size_of_files_is_one_message(ilsvrc: list[str], tmp_path: Path) -> None:
    limited = ["bash", "-c", 'ulimit -f 4; exec "$@"', "bash", *command(*_arguments(ilsvrc, tmp_path / "out"))]
    done = subprocess.run(limited, capture_output=True, text=True, check=False)
    assert (done.returncode, "Traceback" in done.stderr) == (1, False), done.stderr
    assert "File too large" in done.stderr
    assert "is incomplete" in done.stderr
