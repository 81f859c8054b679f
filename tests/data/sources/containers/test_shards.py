"""Tar shards: the same samples and pixels as the folder they were made from."""

import json
import shutil
import tarfile
from pathlib import Path

import numpy as np
import pytest

from tests.data.sources.small_sets import by_name, encode_png, pack_shapes, write_tar
from vernier.config import Augment, Data
from vernier.data.loading.readers import TrainReader
from vernier.data.preparing.shards import pack_shards
from vernier.data.sources import ShardSource, open_split
from vernier.errors import ConfigError

needs_jpegtran = pytest.mark.skipif(shutil.which("jpegtran") is None, reason="jpegtran is not installed")


@pytest.mark.parametrize("restarts", [False, pytest.param(True, marks=needs_jpegtran)])
def test_shards_hold_the_folder(shapes: Path, tmp_path: Path, restarts: bool) -> None:
    train, val = pack_shapes(shapes, tmp_path, restarts=restarts)
    assert (train.samples, val.samples, train.restart_indexed) == (160, 50, 160 * restarts)
    assert train.shards > 1
    folder, shards = open_split(str(shapes), "train"), open_split(str(tmp_path), "train")
    assert isinstance(shards, ShardSource)
    assert shards.classes == folder.classes
    in_folder, packed = by_name(folder), by_name(shards)
    assert in_folder.keys() == packed.keys()
    for name, i in in_folder.items():
        assert np.array_equal(folder.image(i), shards.image(packed[name]))
        assert folder.labels[i] == shards.labels[packed[name]]
    assert shards.labels[np.array([3, 150, 3])].tolist() == [shards.labels[i] for i in (3, 150, 3)]
    assert not any(shards.verify_shard(i) for i in range(len(shards.shards)))


@needs_jpegtran
def test_training_pixels_from_restart_shards_equal_those_of_plain_shards(shapes: Path, tmp_path: Path) -> None:
    pack_shapes(shapes, tmp_path / "cut", restarts=True)
    pack_shapes(shapes, tmp_path / "plain", restarts=False)
    batches = []
    for name in ("cut", "plain"):
        source = open_split(str(tmp_path / name), "train")
        out = np.empty((160, 24, 24, 3), np.uint8)
        TrainReader(source, Data(image_px=24), Augment(), 7).fill(2, np.arange(160), out)
        batches.append(out)
    assert np.array_equal(*batches)


def test_the_tars_are_what_webdataset_reads(shapes: Path, tmp_path: Path) -> None:
    pack_shapes(shapes, tmp_path, restarts=False)
    first = min(tmp_path.glob("val-*.tar"))
    with tarfile.open(first) as tar:
        names = tar.getnames()
    assert names[:4] == ["000000.jpg", "000000.cls", "000001.jpg", "000001.cls"]


def test_a_damaged_shard_is_noticed(shapes: Path, tmp_path: Path) -> None:
    pack_shapes(shapes, tmp_path, restarts=False)
    victim = min(tmp_path.glob("train-*.tar"))
    content = bytearray(victim.read_bytes())
    content[3000] ^= 1
    victim.write_bytes(content)
    source = open_split(str(tmp_path), "train")
    assert isinstance(source, ShardSource)
    assert "hash" in source.verify_shard(0)
    victim.write_bytes(content[:-512])
    with pytest.raises(ConfigError, match="Copy it again"):
        open_split(str(tmp_path), "train")
    with pytest.raises(ConfigError, match="exists already"):
        pack_shards(source, tmp_path, "train", shard_bytes=1, restarts=False, workers=1)


def test_both_splits_of_other_origin_have_the_same_classes(tmp_path: Path) -> None:
    for split, label in (("train", b"3"), ("val", b"1")):
        write_tar(tmp_path / f"{split}-0.tar", [("x.png", encode_png(10)), ("x.cls", label)])
    train, val = open_split(str(tmp_path), "train"), open_split(str(tmp_path), "val")
    assert train.classes == val.classes == ("0", "1", "2", "3")
    assert (train.all_labels().tolist(), val.all_labels().tolist()) == ([3], [1])


def test_a_manifest_cannot_name_files_elsewhere(tmp_path: Path) -> None:
    shard = {"name": "../x.tar", "samples": 1, "bytes": 1, "sha256": ""}
    tree = {"format": "vernier-shards", "version": 1, "classes": ["a"], "shards": [shard]}
    (tmp_path / "train.shards.json").write_text(json.dumps(tree))
    with pytest.raises(ConfigError, match="outside its folder"):
        open_split(str(tmp_path), "train")
