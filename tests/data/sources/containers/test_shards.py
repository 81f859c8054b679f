"""Tar shards: the same samples and pixels as the folder they were made from."""

import contextlib
import json
import tarfile
from pathlib import Path

import numpy as np
import pytest

from tests.data.sources.small_sets import by_name, encode_png, pack_shapes, write_tar
from tests.kernels.built import needs_library
from vernier.compat.preparing.packing import pack_shards
from vernier.config import Augment, Data
from vernier.data.decoding.decode import BadImage
from vernier.data.loading.readers import TrainReader
from vernier.data.sources import ShardSource, open_split
from vernier.data.sources.containers.shard_index import _read_samples, load_table
from vernier.data.sources.containers.tables import read_table, table_path, write_table
from vernier.errors import ConfigError, RunFailed


@needs_library
@pytest.mark.parametrize("restarts", [False, True])
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


@needs_library
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


MANIFEST = {"name": "train-000000.tar", "samples": 1, "bytes": 1, "sha256": ""}


@pytest.mark.parametrize(
    "change",
    [
        {"shards": [{**MANIFEST, "samples": -1}]},
        {"shards": [{**MANIFEST, "samples": 10**30}]},
        {"shards": [{**MANIFEST, "samples": "many"}]},
        {"shards": [{**MANIFEST, "name": 7}]},
        {"shards": [MANIFEST, MANIFEST]},
        {"shards": [{"name": "train-000000.tar"}]},
        {"shards": 3},
        {"classes": [1, 2]},
        {"classes": ["\ud800"]},
        {"version": "new"},
    ],
)
def test_a_damaged_manifest_is_one_sentence(tmp_path: Path, change: dict[str, object]) -> None:
    tree = {"format": "vernier-shards", "version": 1, "classes": ["a"], "shards": [MANIFEST], **change}
    (tmp_path / "train.shards.json").write_text(json.dumps(tree))
    with pytest.raises(ConfigError, match=r"train\.shards\.json is not a list of shards"):
        open_split(str(tmp_path), "train")


@pytest.mark.parametrize("content", [b'{"classes": ["caf\xe9"]}', b"[" * 100_000, b"{", b"null"])
def test_a_manifest_that_is_no_json_is_one_sentence(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "train.shards.json").write_bytes(content)
    with pytest.raises(ConfigError, match=r"train\.shards\.json is not (a list of shards|UTF-8 text)"):
        open_split(str(tmp_path), "train")


def _change_table(shard: Path, column: str, values: object) -> None:
    columns, metadata = read_table(table_path(shard))
    columns[column] = np.full_like(columns[column], values)
    write_table(table_path(shard), columns, metadata)


def _without_table_hashes(manifest: Path) -> None:
    """As version 0.2 wrote it."""
    tree = json.loads(manifest.read_text())
    for entry in tree["shards"]:
        del entry["table_sha256"]
    manifest.write_text(json.dumps(tree))


@pytest.mark.parametrize("hashed", [True, False])
def test_changed_labels_are_noticed(shapes: Path, tmp_path: Path, hashed: bool) -> None:
    pack_shapes(shapes, tmp_path, restarts=False)
    before = open_split(str(tmp_path), "train").fingerprint()
    if not hashed:
        _without_table_hashes(tmp_path / "train.shards.json")
    source = open_split(str(tmp_path), "train")
    assert isinstance(source, ShardSource)
    assert source.fingerprint() == before
    assert source.verify_shard(0) == ""
    assert ("covered by no hash" in source.describe_coverage()) is not hashed
    _change_table(min(tmp_path.glob("train-*.tar")), "label", 1)
    source = open_split(str(tmp_path), "train")
    assert isinstance(source, ShardSource)
    assert "labels" in source.verify_shard(0)


def test_a_shard_that_was_replaced_by_one_of_the_same_size_is_indexed_again(shapes: Path, tmp_path: Path) -> None:
    pack_shapes(shapes, tmp_path, restarts=False)
    shard = min(tmp_path.glob("train-*.tar"))
    labels = load_table(shard)["label"].tolist()
    _, members = next(iter(_read_samples(shard)))
    (label,) = [member for member in members if member.name.endswith(".cls")]
    content = bytearray(shard.read_bytes())
    content[label.offset] = ord("7")
    shard.write_bytes(content)
    assert load_table(shard)["label"].tolist() == [7, *labels[1:]]


def test_the_table_of_a_foreign_tar_is_compared_with_the_tar(tmp_path: Path) -> None:
    write_tar(tmp_path / "train-0.tar", [("x.png", encode_png(10)), ("x.cls", b"0")])
    source = open_split(str(tmp_path), "train")
    assert isinstance(source, ShardSource)
    assert source.verify_shard(0) == ""
    content = (tmp_path / "train-0.tar").read_bytes()
    (tmp_path / "train-0.tar").write_bytes(content[:2048])
    assert "is truncated" in source.verify_shard(0)


@pytest.mark.parametrize(("column", "value"), [("label", -1), ("label", 10)])
def test_labels_that_are_no_class_are_refused(shapes: Path, tmp_path: Path, column: str, value: int) -> None:
    pack_shapes(shapes, tmp_path, restarts=False)
    _change_table(min(tmp_path.glob("train-*.tar")), column, value)
    with pytest.raises(RunFailed, match=f"go from {value} to {value}, but there are 10 classes"):
        open_split(str(tmp_path), "train").all_labels()


@needs_library
def test_any_damage_to_positions_in_a_table_is_a_bad_image_or_an_image(shapes: Path, tmp_path: Path) -> None:
    pack_shapes(shapes, tmp_path, restarts=True)
    shard = min(tmp_path.glob("train-*.tar"))
    original = table_path(shard).read_bytes()
    extremes = (0, 1, 7, (1 << 16) - 1, (1 << 32) - 1, (1 << 64) - 1)
    columns = ("offset", "size", "width", "height", "scan_at", "frame_at", "mcu", "interval", "rows_at", "within_at")
    for column in (*columns, "row_starts", "within", "name_ends"):
        for value in extremes:
            limit = np.iinfo(read_table(table_path(shard))[0][column].dtype).max
            _change_table(shard, column, min(value, limit))
            source = open_split(str(tmp_path), "train")
            source.describe(3)
            with contextlib.suppress(BadImage):
                assert source.image(3).ndim == 3
            with contextlib.suppress(BadImage):
                assert source.lazy_image(3)[2:20, 3:30].ndim == 3
            table_path(shard).write_bytes(original)


def test_images_without_an_ending_are_compared_too(tmp_path: Path) -> None:
    """As version 0.2 packed PNG files out of TFRecord files, whose images have no names."""
    content = [("0.img", encode_png(10)), ("0.cls", b"0"), ("1.img", encode_png(20)), ("1.cls", b"1")]
    write_tar(tmp_path / "train-0.tar", content)
    with tarfile.open(tmp_path / "train-0.tar") as tar:
        positions = [(member.offset_data, member.size) for member in tar]
    source = open_split(str(tmp_path), "train")
    assert isinstance(source, ShardSource)
    assert (source.all_labels().tolist(), source.verify_shard(0)) == ([0, 1], "")
    assert [len(source.read(i)) for i in range(2)] == [positions[0][1], positions[2][1]]
