"""Decoded images in one file. A full disk here is /dev/full."""

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import Done
from tests.data.archives import fill_disk_at, prepare_imagenet


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
