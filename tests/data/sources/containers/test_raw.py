"""Files of decoded images: the same pixels as the folder they were made from."""

from pathlib import Path

import numpy as np
import pytest

from tests.data.sources.small_sets import by_name
from vernier.compat.preparing.packing import pack_raw
from vernier.data.decoding.decode import BadImage
from vernier.data.sources import open_split
from vernier.data.sources.containers.raw import RawSource
from vernier.data.sources.containers.tables import read_table, table_path, write_table
from vernier.errors import ConfigError


def test_changed_labels_and_pixels_are_noticed(shapes: Path, tmp_path: Path) -> None:
    pack_raw(open_split(str(shapes), "train"), tmp_path, "train", short_side_px=64, workers=1)
    path = tmp_path / "train.raw"
    assert RawSource(path).problems() == []
    assert RawSource(path).describe_coverage() == ""
    content = bytearray(path.read_bytes())
    content[1000] ^= 1
    path.write_bytes(content)
    columns, metadata = read_table(table_path(path))
    write_table(table_path(path), {**columns, "label": columns["label"][::-1].copy()}, metadata)
    assert RawSource(path).problems() == [
        "train.raw: the content of its table, with the labels, does not match its hash",
        "train.raw: the content of its pixels does not match its hash",
    ]
    earlier = {key: value for key, value in metadata.items() if key not in ("sha256", "content")}
    write_table(table_path(path), dict(columns), earlier)  # as version 0.2 wrote it
    assert RawSource(path).problems() == []
    assert "covered by no hash" in RawSource(path).describe_coverage()


def test_raw_holds_the_decoded_images_within_the_limit(shapes: Path, tmp_path: Path) -> None:
    folder = open_split(str(shapes), "train")
    for limit, size in ((64, 32), (20, 20)):
        out = tmp_path / str(limit)
        assert pack_raw(folder, out, "train", short_side_px=limit, workers=2).samples == 160
        raw = open_split(str(out), "train")
        assert isinstance(raw, RawSource)
        in_folder, packed = by_name(folder), by_name(raw)
        for name, i in in_folder.items():
            assert raw.image(packed[name]).shape == (size, size, 3)
            assert raw.labels[packed[name]] == folder.labels[i]
            assert limit < 64 or np.array_equal(raw.image(packed[name]), folder.image(i))


def test_a_truncated_raw_file_is_refused(shapes: Path, tmp_path: Path) -> None:
    pack_raw(open_split(str(shapes), "val"), tmp_path, "val", short_side_px=16, workers=1)
    path = tmp_path / "val.raw"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(ConfigError, match="Prepare it again"):
        open_split(str(tmp_path), "val")


@pytest.mark.parametrize(
    ("column", "value", "message"),
    [("label", -1, "labels go from -1 to -1"), ("label", 10, "there are 10 classes"), ("classes", 3, "readable table")],
)
def test_a_damaged_table_is_one_sentence(shapes: Path, tmp_path: Path, column: str, value: int, message: str) -> None:
    pack_raw(open_split(str(shapes), "val"), tmp_path, "val", short_side_px=16, workers=1)
    path = table_path(tmp_path / "val.raw")
    columns, metadata = read_table(path)
    if column in columns:
        columns[column] = np.full_like(columns[column], value)
    else:
        metadata[column] = str(value)
    write_table(path, columns, metadata)
    with pytest.raises(ConfigError, match=message):
        open_split(str(tmp_path), "val")


@pytest.mark.parametrize(("column", "value"), [("offset", 1 << 60), ("width", 1 << 31), ("height", 0)])
def test_a_position_beyond_the_file_is_a_bad_image(shapes: Path, tmp_path: Path, column: str, value: int) -> None:
    pack_raw(open_split(str(shapes), "val"), tmp_path, "val", short_side_px=16, workers=1)
    columns, metadata = read_table(table_path(tmp_path / "val.raw"))
    columns[column] = np.full_like(columns[column], value)
    write_table(table_path(tmp_path / "val.raw"), columns, metadata)
    with pytest.raises(BadImage, match="the table is damaged"):
        open_split(str(tmp_path), "val").image(3)
