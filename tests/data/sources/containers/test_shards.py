"""Tar shards and decoded images: the same samples and pixels as the folder they were made from."""

import io
import json
import shutil
import tarfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from vernier.config import Augment, Data
from vernier.data.loading.readers import TrainReader
from vernier.data.preparing.pack import Packed, pack_raw, pack_shards
from vernier.data.sources import EncodedSource, FolderSource, RawSource, ShardSource, Source, open_split
from vernier.data.sources.containers.tables import table_path
from vernier.errors import ConfigError

needs_jpegtran = pytest.mark.skipif(shutil.which("jpegtran") is None, reason="jpegtran is not installed")


def _packed(shapes: Path, out: Path, *, restarts: bool, shard_bytes: int = 60_000) -> list[Packed]:
    done = []
    for split in ("train", "val"):
        source = open_split(str(shapes), split)
        assert isinstance(source, EncodedSource)
        done.append(pack_shards(source, out, split, shard_bytes=shard_bytes, restarts=restarts, workers=2))
    return done


def _by_name(source: Source) -> dict[str, int]:
    if isinstance(source, FolderSource):
        return {source.name(i): i for i in range(len(source))}
    return {source.describe(i).rpartition(":")[2].rpartition("(")[2].rstrip(")"): i for i in range(len(source))}


@pytest.mark.parametrize("restarts", [False, pytest.param(True, marks=needs_jpegtran)])
def test_shards_hold_the_folder(shapes: Path, tmp_path: Path, restarts: bool) -> None:
    train, val = _packed(shapes, tmp_path, restarts=restarts)
    assert (train.samples, val.samples, train.restart_indexed) == (160, 50, 160 * restarts)
    assert train.shards > 1
    folder, shards = open_split(str(shapes), "train"), open_split(str(tmp_path), "train")
    assert isinstance(shards, ShardSource)
    assert shards.classes == folder.classes
    theirs, ours = _by_name(folder), _by_name(shards)
    assert theirs.keys() == ours.keys()
    for name, i in theirs.items():
        assert np.array_equal(folder.image(i), shards.image(ours[name]))
        assert folder.labels[i] == shards.labels[ours[name]]
    assert shards.labels[np.array([3, 150, 3])].tolist() == [shards.labels[i] for i in (3, 150, 3)]
    assert not any(shards.verify_shard(i) for i in range(len(shards.shards)))


@needs_jpegtran
def test_training_pixels_from_restart_shards_equal_those_of_plain_shards(shapes: Path, tmp_path: Path) -> None:
    _packed(shapes, tmp_path / "cut", restarts=True)
    _packed(shapes, tmp_path / "plain", restarts=False)
    batches = []
    for name in ("cut", "plain"):
        source = open_split(str(tmp_path / name), "train")
        out = np.empty((160, 24, 24, 3), np.uint8)
        TrainReader(source, Data(image_px=24), Augment(), 7).fill(2, np.arange(160), out)
        batches.append(out)
    assert np.array_equal(*batches)


def test_the_tars_are_what_webdataset_reads(shapes: Path, tmp_path: Path) -> None:
    _packed(shapes, tmp_path, restarts=False)
    first = min(tmp_path.glob("val-*.tar"))
    with tarfile.open(first) as tar:
        names = tar.getnames()
    assert names[:4] == ["000000.jpg", "000000.cls", "000001.jpg", "000001.cls"]


def test_a_damaged_shard_is_noticed(shapes: Path, tmp_path: Path) -> None:
    _packed(shapes, tmp_path, restarts=False)
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


def _foreign(path: Path, samples: list[tuple[str, bytes]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w") as tar:
        for name, content in samples:
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))


def _picture(shade: int) -> bytes:
    out = io.BytesIO()
    Image.new("RGB", (20, 16), (shade, 0, 0)).save(out, "PNG")
    return out.getvalue()


def test_shards_of_other_origin_are_indexed_on_first_use(tmp_path: Path) -> None:
    members = [("a/x.y.png", _picture(10)), ("a/x.cls", b"2"), ("a/z.json", b'{"label": 0}'), ("a/z.png", _picture(99))]
    _foreign(tmp_path / "train" / "data-0.tar", members)
    (tmp_path / "classes.txt").write_text("ant\nbee\ncow\n")
    for _ in range(2):
        source = open_split(str(tmp_path), "train")
        assert source.classes == ("ant", "bee", "cow")
        assert source.all_labels().tolist() == [2, 0]
        assert source.image(1)[0, 0, 0] == 99
        assert table_path(tmp_path / "train" / "data-0.tar").is_file()
    _foreign(tmp_path / "train" / "data-0.tar", members * 8)  # another size: the table is made again
    assert len(open_split(str(tmp_path), "train")) == 16


def test_both_splits_of_other_origin_have_the_same_classes(tmp_path: Path) -> None:
    for split, label in (("train", b"3"), ("val", b"1")):
        _foreign(tmp_path / f"{split}-0.tar", [("x.png", _picture(10)), ("x.cls", label)])
    train, val = open_split(str(tmp_path), "train"), open_split(str(tmp_path), "val")
    assert train.classes == val.classes == ("0", "1", "2", "3")
    assert (train.all_labels().tolist(), val.all_labels().tolist()) == ([3], [1])


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ([("1.png", _picture(1))], "no .cls or .json"),
        ([("1.png", _picture(1)), ("1.cls", b"cat")], "has no class number"),
        ([("1.txt", b"x")], "no images"),
    ],
)
def test_shards_without_labels_are_a_clear_error(
    tmp_path: Path, members: list[tuple[str, bytes]], message: str
) -> None:
    _foreign(tmp_path / "train-0.tar", members)
    with pytest.raises(ConfigError, match=message):
        open_split(str(tmp_path), "train")


def test_a_manifest_cannot_name_files_elsewhere(tmp_path: Path) -> None:
    shard = {"name": "../x.tar", "samples": 1, "bytes": 1, "sha256": ""}
    tree = {"format": "vernier-shards", "version": 1, "classes": ["a"], "shards": [shard]}
    (tmp_path / "train.shards.json").write_text(json.dumps(tree))
    with pytest.raises(ConfigError, match="outside its folder"):
        open_split(str(tmp_path), "train")


def test_raw_holds_the_decoded_images_within_the_limit(shapes: Path, tmp_path: Path) -> None:
    folder = open_split(str(shapes), "train")
    for limit, size in ((64, 32), (20, 20)):
        out = tmp_path / str(limit)
        assert pack_raw(folder, out, "train", short_side_px=limit, workers=2).samples == 160
        raw = open_split(str(out), "train")
        assert isinstance(raw, RawSource)
        theirs, ours = _by_name(folder), _by_name(raw)
        for name, i in theirs.items():
            assert raw.image(ours[name]).shape == (size, size, 3)
            assert raw.labels[ours[name]] == folder.labels[i]
            assert limit < 64 or np.array_equal(raw.image(ours[name]), folder.image(i))


def test_a_truncated_raw_file_is_refused(shapes: Path, tmp_path: Path) -> None:
    pack_raw(open_split(str(shapes), "val"), tmp_path, "val", short_side_px=16, workers=1)
    path = tmp_path / "val.raw"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(ConfigError, match="Prepare it again"):
        open_split(str(tmp_path), "val")
