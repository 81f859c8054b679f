"""TFRecord files: bytes of records and messages, and data sets of ImageNet and COCO."""

import math
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.compat.tfrecord.examples import encode_example, encode_jpeg, encode_record, write_imagenet
from tests.conftest import Done
from vernier.compat.tfrecord.reading import TFRecordSource, parse_example, read_records
from vernier.data.sources import (
    open_boxes,
    open_split,
)
from vernier.errors import ConfigError


@pytest.mark.parametrize("at", [2, 9, 40, -2])
def test_every_flipped_bit_is_noticed(tmp_path: Path, at: int) -> None:
    path = tmp_path / "train-00000-of-00001"
    write_imagenet(path, [1])
    content = bytearray(path.read_bytes())
    content[at] ^= 4
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=r"damaged|truncated"):
        list(read_records(path))
    with pytest.raises(ConfigError):
        open_split(str(tmp_path), "train")


def test_a_truncated_file_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "train-00000-of-00001"
    write_imagenet(path, [1, 2])
    path.write_bytes(path.read_bytes()[:-5])
    with pytest.raises(ConfigError, match="truncated"):
        open_split(str(tmp_path), "train")


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
    data = encode_example(numbers=numbers, text=[text])
    parsed = parse_example(data)
    assert parsed["numbers"] == numbers
    assert data[slice(*parsed["text"][0])] == text
    assert np.asarray(parse_example(encode_example(x=[0.5, 2.0]))["x"]).tolist() == [0.5, 2.0]


def test_imagenet_labels_count_from_zero_and_synsets_are_the_classes(tmp_path: Path) -> None:
    write_imagenet(tmp_path / "train-00000-of-00002", [1, 3])
    write_imagenet(tmp_path / "train-00001-of-00002", [2, 4, 1])
    write_imagenet(tmp_path / "validation-00000-of-00001", [4])
    for _ in range(2):  # the second time from the stored tables
        train = open_split(str(tmp_path), "train")
        assert isinstance(train, TFRecordSource)
        assert train.classes == ("n00000001", "n00000002", "n00000003", "n00000004")
        assert train.all_labels().tolist() == [0, 2, 1, 3, 0]
        assert [int(train.image(i).mean().round()) for i in range(5)] == [10, 30, 20, 40, 10]
        assert train.describe(3).endswith("train-00001-of-00002[1]")
    val = open_split(str(tmp_path), "val")
    assert (val.all_labels().tolist(), val.classes) == ([3], train.classes)


def test_coco_boxes_become_pixels(tmp_path: Path) -> None:
    content = encode_example(
        image__encoded=[encode_jpeg(9)],
        image__source_id=[b"397133"],
        image__object__bbox__xmin=[0.25, 0.0],
        image__object__bbox__xmax=[0.5, 1.0],
        image__object__bbox__ymin=[0.5, 0.0],
        image__object__bbox__ymax=[1.0, 0.5],
        image__object__class__label=[44, 1],
        image__object__is_crowd=[0, 1],
        image__object__class__text=[b"bottle", b"person"],
    )
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
    boxed = encode_example(
        image__encoded=[encode_jpeg(9)],
        image__source_id=[b"5"],
        image__width=[40],
        image__height=[20],
        image__object__bbox__xmin=[0.25],
        image__object__bbox__xmax=[0.5],
        image__object__bbox__ymin=[0.5],
        image__object__bbox__ymax=[1.0],
        image__object__class__label=[44],
        image__object__area=[61.5],
    )
    empty = encode_example(image__encoded=[encode_jpeg(50)], image__source_id=[b"6"])
    for name in ("train", "val"):
        (tmp_path / f"{name}.tfrecord").write_bytes(encode_record(empty) + encode_record(boxed))
    train, val = open_boxes(str(tmp_path), "train"), open_boxes(str(tmp_path), "val")
    assert (len(train), len(val)) == (1, 2)
    assert (train.image_id(0), train.describe(0)[-17:], train.size(0)) == (5, "train.tfrecord[1]", (40, 20))
    assert train.image(0).mean().round() == 9
    assert train.boxes(0).areas.tolist() == [61.5]
    assert train.notes == ("1 image without boxes left out of training",)
    assert len(val.boxes(0).ltrb) == 0
    write_imagenet(tmp_path / "train.tfrecord", [1, 2])
    (tmp_path / "val.tfrecord").unlink()
    with pytest.raises(ConfigError, match="have no boxes"):
        open_boxes(str(tmp_path), "train")


@pytest.mark.parametrize("layout", ["folders", "shards", "raw"])
def test_records_are_prepared_into_every_layout(vernier_here: Callable[..., Done], tmp_path: Path, layout: str) -> None:
    records_, out = tmp_path / "records", str(tmp_path / "out")
    records_.mkdir()
    write_imagenet(records_ / "train-00000-of-00002", [1, 2])
    write_imagenet(records_ / "train-00001-of-00002", [3])
    write_imagenet(records_ / "validation-00000-of-00001", [2])
    if layout == "folders":
        lacking = vernier_here("data", "prepare", "tfrecord", str(records_), out)
        assert (lacking.code, "val has no image of n00000001, n00000003" in lacking.err) == (2, True)
        write_imagenet(records_ / "validation-00000-of-00001", [2, 1, 3])
    done = vernier_here("data", "prepare", "tfrecord", str(records_), out, "--format", layout, "--no-restarts")
    assert done.code == 0, done.err
    before, after = open_split(str(records_), "train"), open_split(out, "train")
    assert after.classes == before.classes == ("n00000001", "n00000002", "n00000003")
    by_label = {int(label): after.image(i) for i, label in enumerate(after.all_labels())}
    assert all(np.array_equal(by_label[int(before.labels[i])], before.image(i)) for i in range(3))
    assert sorted(open_split(out, "val").all_labels().tolist()) == ([0, 1, 2] if layout == "folders" else [1])


BOXED = {
    "image__encoded": [encode_jpeg(9)],
    "image__class__label": [1],
    "image__source_id": [b"5"],
    "image__width": [40],
    "image__height": [20],
    "image__object__bbox__xmin": [0.25, 0.1],
    "image__object__bbox__xmax": [0.5, 0.2],
    "image__object__bbox__ymin": [0.5, 0.1],
    "image__object__bbox__ymax": [1.0, 0.2],
    "image__object__class__label": [44, 7],
    "image__object__area": [61.5, 3.0],
}


@pytest.mark.parametrize(
    ("feature", "values", "message"),
    [
        ("image__encoded", [5], "image/encoded is missing or no bytes"),
        ("image__encoded", [0.5], "image/encoded is missing or no bytes"),
        ("image__encoded", [], "image/encoded is missing or no bytes"),
        ("image__class__label", [b"cat"], "not a whole number"),
        ("image__class__label", [math.nan], "not a whole number"),
        ("image__class__label", [math.inf], "not a whole number"),
        ("image__class__label", [-7], "class numbers go from 0"),
        ("image__class__label", [5_000_000], "class numbers go from 0 to 999,999"),
        ("image__width", [b"wide"], "not a whole number"),
        ("image__width", [1 << 62], "out of range"),
        ("image__object__class__label", [b"cat", b"dog"], "not a whole number"),
        ("image__object__class__label", [math.nan, 1.0], "not a whole number"),
        ("image__object__class__label", [1 << 40, 1], "out of range"),
        ("image__object__bbox__xmin", [b"a", b"b"], "not an image Example"),
        ("image__object__bbox__xmin", [0.5], "2 boxes have a class/label, and 1 a xmin"),
        ("image__object__area", [1.0, 2.0, 3.0], "2 boxes have a class/label, and 3 a area"),
        ("image__object__class__text", [b"cat"], "2 boxes have a class/label, and 1 a class/text"),
    ],
)
def test_a_wrong_feature_is_one_sentence_with_file_and_record(
    tmp_path: Path, feature: str, values: list[object], message: str
) -> None:
    content = encode_example(**{**BOXED, feature: values})
    (tmp_path / "val.tfrecord").write_bytes(encode_record(encode_example(**BOXED)) + encode_record(content))
    for open_set in (open_boxes, open_split):
        with pytest.raises(ConfigError, match=rf"val\.tfrecord: the record at byte .*{message}") as error:
            open_set(str(tmp_path), "val")
        assert "\n" not in str(error.value)


def test_a_file_that_fits_two_patterns_of_names_is_read_once(tmp_path: Path) -> None:
    """Files named as `data prepare` names them were listed twice: every image was trained on and evaluated twice."""
    (tmp_path / "val-00000-of-00001.tfrecord").write_bytes(encode_record(encode_example(**BOXED)))
    assert len(open_boxes(str(tmp_path), "val")) == 1


@pytest.mark.parametrize("source_ids", [(b"", b"", b"", b""), (b"1", b"2", b"1", b"2"), (b"1", b"", b"", b"")])
def test_images_of_several_files_have_different_ids(tmp_path: Path, source_ids: tuple[bytes, ...]) -> None:
    """Positions were counted per file, so that an evaluation took detections of two images for those of one."""
    for number in range(2):
        records = [encode_example(**{**BOXED, "image__source_id": [value]}) for value in source_ids[2 * number :][:2]]
        (tmp_path / f"val-0000{number}-of-00002").write_bytes(b"".join(map(encode_record, records)))
    source = open_boxes(str(tmp_path), "val")
    assert [source.image_id(i) for i in range(4)] == [0, 1, 2, 3]


@pytest.mark.parametrize(
    "source_id", ["²".encode(), b"99999999999999999999", b"9" * 6000, b"0" * 20 + b"9" * 30, b"\xff", b"cafe", b""]
)
def test_an_id_that_is_no_number_is_the_position(tmp_path: Path, source_id: bytes) -> None:
    records = [encode_example(**{**BOXED, "image__source_id": [value]}) for value in (b"17", source_id)]
    (tmp_path / "val.tfrecord").write_bytes(b"".join(map(encode_record, records)))
    source = open_boxes(str(tmp_path), "val")
    assert [source.image_id(i) for i in range(2)] == [17, 1]


@pytest.mark.parametrize("sized", [True, False])
def test_boxes_that_reach_out_are_cut_and_counted_and_those_without_area_are_counted(
    tmp_path: Path, sized: bool
) -> None:
    wide = {
        **BOXED,
        "image__width": [40 * sized],
        "image__height": [20 * sized],
        "image__object__bbox__xmin": [-0.5, 0.1, 0.3],
        "image__object__bbox__xmax": [0.5, 1.02, 0.3],
        "image__object__bbox__ymin": [0.5, 0.1, 0.1],
        "image__object__bbox__ymax": [1.0, 0.2, 0.2],
        "image__object__class__label": [44, 7, 7],
        "image__object__area": [61.5, 3.0, 0.0],
    }
    (tmp_path / "val.tfrecord").write_bytes(
        encode_record(encode_example(**BOXED)) + encode_record(encode_example(**wide))
    )
    source = open_boxes(str(tmp_path), "val")
    assert source.boxes(0).ltrb == pytest.approx(np.array([[10, 10, 20, 20], [4, 2, 8, 4]]))
    assert source.boxes(1).ltrb == pytest.approx(np.array([[0, 10, 20, 20], [4, 2, 40.8, 4]])), "0.8 px may reach out"
    assert source.boxes(1).areas.tolist() == [200.0, 3.0], "the area of a box that was cut is that of the rest"
    assert (source.cut_boxes, source.dropped_boxes) == (1, 1)
    assert [note.split(" ", 1)[0] for note in source.notes] == ["1", "1"]


def test_an_image_whose_size_nobody_knows_has_no_boxes(tmp_path: Path) -> None:
    unknown = {**BOXED, "image__width": [0], "image__height": [0], "image__encoded": [b"no image"]}
    records = (encode_record(encode_example(**fields)) for fields in (BOXED, unknown))
    (tmp_path / "val.tfrecord").write_bytes(b"".join(records))
    source = open_boxes(str(tmp_path), "val")
    assert [len(source.boxes(i).ltrb) for i in range(2)] == [2, 0]


@pytest.mark.parametrize("same_time", [False, True])
def test_a_replaced_file_of_the_same_size_is_indexed_again(tmp_path: Path, same_time: bool) -> None:
    path = tmp_path / "train.tfrecord"
    write_imagenet(path, [1, 2, 3])
    status = path.stat()
    assert open_split(str(tmp_path), "train").all_labels().tolist() == [0, 1, 2]
    write_imagenet(path, [3, 2, 1])
    assert path.stat().st_size == status.st_size
    if same_time:
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert open_split(str(tmp_path), "train").all_labels().tolist() == [2, 1, 0]
