"""Packed splits: the order of samples, tar shards and raw files."""

import io
import json
import os
import shutil
import signal
import subprocess
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.conftest import Done, command
from tests.data.archives import fill_disk_at, prepare_imagenet
from tests.kernels.built import needs_library
from vernier.compat.preparing import restarts
from vernier.compat.preparing.packing import PackedSplit, forget_progress, make_room, pack_order, pack_shards
from vernier.data.sources import EncodedSource, open_split
from vernier.errors import ConfigError


def test_training_samples_are_shuffled_once_and_for_all_and_others_are_not(shapes: Path) -> None:
    source = open_split(str(shapes), "train")
    order = pack_order(source, "train")
    assert sorted(order) == list(range(len(source)))
    assert order != sorted(order)
    assert order == pack_order(source, "train")
    assert pack_order(source, "val") == sorted(order)


def test_only_hidden_files_are_forgotten_and_whole_ones_are_not_overwritten(tmp_path: Path) -> None:
    for name in ("train.raw", ".train.raw.progress", ".val.raw.tmp-77", ".train-000001.tar.writing"):
        (tmp_path / name).touch()
    forget_progress(tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == ["train.raw"]
    with pytest.raises(ConfigError, match="exists already"):
        make_room(tmp_path, "train.raw")


@pytest.fixture
def photographs(tmp_path: Path) -> Path:
    """Files that are large enough for several shards of 1 MiB, and slow enough to rewrite to be interrupted."""
    dice = np.random.default_rng(3)
    for split, count in (("train", 30), ("val", 2)):
        folder = tmp_path / "set" / split / "a"
        folder.mkdir(parents=True)
        for number in range(count):
            pixels = dice.integers(0, 256, (400, 500, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(folder / f"{number:03d}.jpg", quality=80)
    return tmp_path / "set"


def _arguments(source: Path, out: Path) -> list[str]:
    return [
        "data",
        "prepare",
        "folder",
        str(source),
        str(out),
        *["--format", "shards", "--shard-mb", "1", "--workers", "1"],
    ]


def _content(folder: Path) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in sorted(folder.iterdir())}


def _kill_once_there(arguments: list[str], awaited: Path) -> None:
    """Run a command and kill it as soon as a file exists."""
    process = subprocess.Popen(command(*arguments), stdout=subprocess.DEVNULL)
    try:
        while process.poll() is None and not awaited.exists():
            threading.Event().wait(0.002)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert process.returncode == -signal.SIGKILL


@needs_library
def test_a_killed_run_resumes_and_ends_in_the_same_bytes(
    vernier_here: Callable[..., Done], photographs: Path, tmp_path: Path
) -> None:
    whole, out = tmp_path / "whole", tmp_path / "out"
    assert vernier_here(*_arguments(photographs, whole)).code == 0
    assert len(list(whole.glob("train-*.tar"))) > 3
    _kill_once_there(_arguments(photographs, out), out / "train-000001.tar.table")
    assert not (out / "train.shards.json").exists()
    half = vernier_here("data", "verify", str(out))
    assert half.code == 2
    assert "is incomplete" in half.err
    other = vernier_here(*_arguments(photographs, out), "--no-restarts")
    assert other.code == 2
    assert "other settings" in other.err
    first = (out / "train-000000.tar").stat().st_mtime_ns
    again = vernier_here(*_arguments(photographs, out))
    assert again.code == 0, again.err
    assert "of an earlier run were kept" in again.out
    assert (out / "train-000000.tar").stat().st_mtime_ns == first
    assert _content(out) == _content(whole)


def test_a_split_that_was_whole_is_not_written_again(
    vernier_here: Callable[..., Done], photographs: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    _kill_once_there(_arguments(photographs, out), out / "train.shards.json")
    before = (out / "train-000000.tar").stat().st_mtime_ns
    assert vernier_here(*_arguments(photographs, out)).code == 0
    assert (out / "train-000000.tar").stat().st_mtime_ns == before
    assert (out / "val.shards.json").is_file()
    complete = vernier_here(*_arguments(photographs, out))
    assert complete.code == 2
    assert "exists already" in complete.err


@pytest.mark.parametrize("noise", ["", "[]", '{"made_of": {}}', '{"made_of": {}, "entries": [{"name": "../x"}]}'])
def test_damaged_notes_are_ignored(vernier_here: Callable[..., Done], shapes: Path, tmp_path: Path, noise: str) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / ".train.shards.progress").write_text(noise)
    done = vernier_here(
        "data", "prepare", "folder", str(shapes), str(tmp_path / "out"), "--format", "shards", "--no-restarts"
    )
    assert done.code == 0, done.err
    assert not list((tmp_path / "out").glob(".*"))


class _StoppedError(Exception):
    pass


def test_an_interrupted_run_resumes_after_its_whole_shards(shapes: Path, tmp_path: Path) -> None:
    source = open_split(str(shapes), "train")
    assert isinstance(source, EncodedSource)

    def stop_late(done: int, total: int) -> None:
        if done == 150:
            raise _StoppedError

    def pack(out: Path, progress: Callable[[int, int], None] | None = None) -> PackedSplit:
        return pack_shards(source, out, "train", shard_bytes=40_000, restarts=False, workers=1, progress=progress)

    whole = pack(tmp_path / "whole")
    assert whole.shards > 3
    with pytest.raises(_StoppedError):
        pack(tmp_path / "out", stop_late)
    assert not (tmp_path / "out" / "train.shards.json").exists()
    resumed = pack(tmp_path / "out")
    assert 0 < resumed.continued_after < 150
    assert replace(resumed, continued_after=0) == whole
    forget_progress(tmp_path / "out")
    forget_progress(tmp_path / "whole")
    assert _content(tmp_path / "out") == _content(tmp_path / "whole")


@needs_library
@pytest.mark.skipif(shutil.which("cjpeg") is None, reason="cjpeg is not installed")
def test_an_unusual_sampling_of_chroma_is_stored_unchanged_and_gives_the_pixels_of_the_file(tmp_path: Path) -> None:
    folder = tmp_path / "set" / "train" / "a"
    folder.mkdir(parents=True)
    ppm = io.BytesIO()
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (150, 200, 3), dtype=np.uint8)).save(ppm, "PPM")
    for name, factors in (("0", "2x2"), ("1", "1x4"), ("2", "4x2"), ("3", "2x1,1x1,2x1")):
        cjpeg = ["cjpeg", "-sample", factors]
        encoded = subprocess.run(cjpeg, input=ppm.getvalue(), capture_output=True, check=True).stdout
        (folder / f"{name}.jpg").write_bytes(encoded)
    files = open_split(str(tmp_path / "set"), "train")
    assert isinstance(files, EncodedSource)
    packed = pack_shards(files, tmp_path / "out", "train", shard_bytes=1 << 20, restarts=True, workers=1)
    assert (packed.restart_indexed, packed.kept_as_they_are) == (2, 2)
    shards = open_split(str(tmp_path / "out"), "train")
    by_name = {shards.describe(i).rpartition(":")[2]: i for i in range(4)}
    window = slice(20, 90), slice(33, 170)
    for i in range(4):
        packed_image = shards.lazy_image(by_name[files.name(i)])
        assert np.array_equal(packed_image[window], files.image(i)[window])
        assert np.array_equal(files.lazy_image(i)[window], files.image(i)[window])


def test_without_a_writer_of_restart_markers_files_are_stored_unchanged_with_a_note(
    vernier_here: Callable[..., Done], shapes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(restarts, "load_group", lambda group, kind: {})
    done = vernier_here("data", "prepare", "folder", str(shapes), str(tmp_path / "out"), "--format", "shards")
    assert done.code == 0, done.err
    assert "; 0 restart-indexed, 160 unchanged" in done.out
    assert "note: without restart markers" in done.out
    assert open_split(str(tmp_path / "out"), "train").image(0).ndim == 3


def test_a_raw_split_that_was_finished_is_not_written_again(
    vernier_here: Callable[..., Done],
    ilsvrc: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    out = tmp_path / "out"
    out.mkdir()
    with monkeypatch.context() as patch:
        fill_disk_at(patch, f".val.raw.tmp-{os.getpid()}")
        assert prepare_imagenet(vernier_here, ilsvrc, out, "--format", "raw").code == 1
    before = (out / "train.raw").stat().st_mtime_ns
    other = prepare_imagenet(vernier_here, ilsvrc, out, "--format", "raw", "--short-side-px", "20")
    assert (other.code, "exists already" in other.err) == (2, True)
    again = prepare_imagenet(vernier_here, ilsvrc, out, "--format", "raw", "--json")
    assert again.code == 0, again.err
    assert [d["continued_after"] for d in json.loads(again.out)] == [6, 0]
    assert (out / "train.raw").stat().st_mtime_ns == before
    assert prepare_imagenet(vernier_here, ilsvrc, out, "--format", "raw").code == 2
