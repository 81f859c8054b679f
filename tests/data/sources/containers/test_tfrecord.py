"""TFRecord files, written here by hand: the format is small, and TensorFlow is not wanted."""

import io
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

pytest.importorskip("google_crc32c", reason="the extra 'tfrecord' is not installed")

from tests.conftest import Done
from vernier.data.sources import TFRecordSource, open_boxes, open_split
from vernier.data.sources.containers.example import encode_record, mask_crc, parse_example, read_records
from vernier.errors import ConfigError


def _varint(value: int) -> bytes:
    out = b""
    value &= (1 << 64) - 1
    while value >= 0x80:
        out += bytes([value & 0x7F | 0x80])
        value >>= 7
    return out + bytes([value])


def _field(number: int, content: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(content)) + content


def _feature(values: list[Any]) -> bytes:
    if isinstance(values[0], bytes):
        return _field(1, b"".join(_field(1, v) for v in values))
    if isinstance(values[0], float):
        return _field(2, _field(1, struct.pack(f"<{len(values)}f", *values)))
    return _field(3, _field(1, b"".join(_varint(v) for v in values)))


def _example(**features: list[Any]) -> bytes:
    entries = [
        _field(1, _field(1, k.replace("__", "/").encode()) + _field(2, _feature(v))) for k, v in features.items() if v
    ]
    return _field(1, b"".join(entries))


def _jpeg(shade: int) -> bytes:
    out = io.BytesIO()
    Image.new("RGB", (40, 20), (shade, shade, shade)).save(out, "JPEG")
    return out.getvalue()


def _imagenet(path: Path, labels: list[int]) -> None:
    parts = [
        _example(
            image__encoded=[_jpeg(10 * label)], image__class__label=[label], image__class__synset=[b"n%08d" % label], image__height=[20],
        )
        for label in labels
    ]  # fmt: skip
    path.write_bytes(b"".join(encode_record(p) for p in parts))


def test_imagenet_labels_count_from_zero_and_synsets_are_the_classes(tmp_path: Path) -> None:
    _imagenet(tmp_path / "train-00000-of-00002", [1, 3])
    _imagenet(tmp_path / "train-00001-of-00002", [2, 4, 1])
    _imagenet(tmp_path / "validation-00000-of-00001", [4])
    for _ in range(2):  # the second time from the kept tables
        train = open_split(str(tmp_path), "train")
        assert isinstance(train, TFRecordSource)
        assert train.classes == ("n00000001", "n00000002", "n00000003", "n00000004")
        assert train.all_labels().tolist() == [0, 2, 1, 3, 0]
        assert [int(train.image(i).mean().round()) for i in range(5)] == [10, 30, 20, 40, 10]
        assert train.describe(3).endswith("train-00001-of-00002[1]")
    val = open_split(str(tmp_path), "val")
    assert (val.all_labels().tolist(), val.classes) == ([3], train.classes)


def test_coco_boxes_become_pixels(tmp_path: Path) -> None:
    content = _example(
        image__encoded=[_jpeg(9)], image__source_id=[b"397133"], image__object__bbox__xmin=[0.25, 0.0], image__object__bbox__xmax=[0.5, 1.0],
        image__object__bbox__ymin=[0.5, 0.0], image__object__bbox__ymax=[1.0, 0.5], image__object__class__label=[44, 1],
        image__object__is_crowd=[0, 1], image__object__class__text=[b"bottle", b"person"],
    )  # fmt: skip
    (tmp_path / "val.tfrecord").write_bytes(encode_record(content))
    source = open_boxes(str(tmp_path), "val")
    boxes = source.boxes(0)
    assert boxes.ltrb.tolist() == [[10, 10, 20, 20], [0, 0, 40, 10]]
    assert [source.classes[c] for c in boxes.classes] == ["bottle", "person"]
    assert boxes.crowd.tolist() == [False, True]
    assert source.image_id(0) == 397133
    assert source.category_ids == (1, 44)
    assert boxes.areas.tolist() == [100, 400], "nothing else is known"


def test_training_leaves_images_without_boxes_out_and_keeps_areas_and_sizes(tmp_path: Path) -> None:
    boxed = _example(
        image__encoded=[_jpeg(9)], image__source_id=[b"5"], image__width=[40], image__height=[20],
        image__object__bbox__xmin=[0.25], image__object__bbox__xmax=[0.5], image__object__bbox__ymin=[0.5], image__object__bbox__ymax=[1.0],
        image__object__class__label=[44], image__object__area=[61.5],
    )  # fmt: skip
    empty = _example(image__encoded=[_jpeg(50)], image__source_id=[b"6"])
    for name in ("train", "val"):
        (tmp_path / f"{name}.tfrecord").write_bytes(encode_record(empty) + encode_record(boxed))
    train, val = open_boxes(str(tmp_path), "train"), open_boxes(str(tmp_path), "val")
    assert (len(train), len(val)) == (1, 2)
    assert (train.image_id(0), train.describe(0)[-17:], train.size(0)) == (5, "train.tfrecord[1]", (40, 20))
    assert train.image(0).mean().round() == 9
    assert train.boxes(0).areas.tolist() == [61.5]
    assert train.notes == ("1 image(s) without boxes are left out of training",)
    assert len(val.boxes(0).ltrb) == 0
    _imagenet(tmp_path / "train.tfrecord", [1, 2])
    (tmp_path / "val.tfrecord").unlink()
    with pytest.raises(ConfigError, match="have no boxes"):
        open_boxes(str(tmp_path), "train")


@pytest.mark.parametrize("at", [2, 9, 40, -2])
def test_every_flipped_bit_is_noticed(tmp_path: Path, at: int) -> None:
    path = tmp_path / "train-00000-of-00001"
    _imagenet(path, [1])
    content = bytearray(path.read_bytes())
    content[at] ^= 4
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=r"damaged|truncated"):
        list(read_records(path))
    with pytest.raises(ConfigError):
        open_split(str(tmp_path), "train")


def test_a_truncated_file_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "train-00000-of-00001"
    _imagenet(path, [1, 2])
    path.write_bytes(path.read_bytes()[:-5])
    with pytest.raises(ConfigError, match="truncated"):
        open_split(str(tmp_path), "train")


def test_the_checksum_is_castagnolis_mask_crc() -> None:
    import google_crc32c

    assert google_crc32c.value(b"123456789") == 0xE3069283  # RFC 3720's check value
    assert mask_crc(0) == 0xA282EAD8


@given(st.binary(max_size=200))
@settings(deadline=None)
def test_any_bytes_are_parsed_or_refused(noise: bytes) -> None:
    try:
        parse_example(noise)
    except ValueError:
        return


@given(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=5), st.binary(min_size=1, max_size=20))
@settings(deadline=None)
def test_numbers_and_bytes_survive(numbers: list[int], text: bytes) -> None:
    data = _example(numbers=numbers, text=[text])
    parsed = parse_example(data)
    assert parsed["numbers"] == numbers
    assert data[slice(*parsed["text"][0])] == text
    assert np.asarray(parse_example(_example(x=[0.5, 2.0]))["x"]).tolist() == [0.5, 2.0]


@pytest.mark.parametrize("layout", ["folders", "shards", "raw"])
def test_records_are_prepared_into_every_layout(vernier_here: Callable[..., Done], tmp_path: Path, layout: str) -> None:
    records_, out = tmp_path / "records", str(tmp_path / "out")
    records_.mkdir()
    _imagenet(records_ / "train-00000-of-00002", [1, 2])
    _imagenet(records_ / "train-00001-of-00002", [3])
    _imagenet(records_ / "validation-00000-of-00001", [2])
    if layout == "folders":
        lacking = vernier_here("data", "prepare", "tfrecord", str(records_), out)
        assert (lacking.code, "No image in val for n00000001, n00000003" in lacking.err) == (2, True)
        _imagenet(records_ / "validation-00000-of-00001", [2, 1, 3])
    done = vernier_here("data", "prepare", "tfrecord", str(records_), out, "--format", layout, "--no-restarts")
    assert done.code == 0, done.err
    before, after = open_split(str(records_), "train"), open_split(out, "train")
    assert after.classes == before.classes == ("n00000001", "n00000002", "n00000003")
    by_label = {int(label): after.image(i) for i, label in enumerate(after.all_labels())}
    assert all(np.array_equal(by_label[int(before.labels[i])], before.image(i)) for i in range(3))
    assert sorted(open_split(out, "val").all_labels().tolist()) == ([0, 1, 2] if layout == "folders" else [1])
