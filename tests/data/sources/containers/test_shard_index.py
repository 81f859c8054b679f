"""The tables of shards that Vernier did not write."""

import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.data.sources.small_sets import encode_png, write_tar
from vernier.data.decoding.decode import LazyJpeg, SegmentedJpeg
from vernier.data.sources import open_split
from vernier.data.sources.containers.tables import table_path
from vernier.errors import ConfigError


def test_shards_of_other_origin_are_indexed_on_first_use(tmp_path: Path) -> None:
    members = [
        ("a/x.y.png", encode_png(10)),
        ("a/x.cls", b"2"),
        ("a/z.json", b'{"label": 0}'),
        ("a/z.png", encode_png(99)),
    ]
    write_tar(tmp_path / "train" / "data-0.tar", members)
    (tmp_path / "classes.txt").write_text("ant\nbee\ncow\n")
    for _ in range(2):
        source = open_split(str(tmp_path), "train")
        assert source.classes == ("ant", "bee", "cow")
        assert source.all_labels().tolist() == [2, 0]
        assert source.image(1)[0, 0, 0] == 99
        assert table_path(tmp_path / "train" / "data-0.tar").is_file()
    write_tar(tmp_path / "train" / "data-0.tar", members * 8)  # another size: the table is made again
    assert len(open_split(str(tmp_path), "train")) == 16


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ([("1.png", encode_png(1))], "no .cls or .json"),
        ([("1.png", encode_png(1)), ("1.cls", b"cat")], "has no class number"),
        ([("1.txt", b"x")], "no images"),
    ],
)
def test_shards_without_labels_are_a_clear_error(
    tmp_path: Path, members: list[tuple[str, bytes]], message: str
) -> None:
    write_tar(tmp_path / "train-0.tar", members)
    with pytest.raises(ConfigError, match=message):
        open_split(str(tmp_path), "train")


def test_a_jpeg_with_restart_markers_is_read_in_segments(tmp_path: Path) -> None:
    out = io.BytesIO()
    noise = np.random.default_rng(0).integers(0, 255, (160, 320, 3), dtype=np.uint8)
    Image.fromarray(noise).save(out, "JPEG", quality=90, restart_marker_blocks=4)
    write_tar(
        tmp_path / "train-0.tar",
        [("0.png", encode_png(5)), ("0.cls", b"0"), ("1.jpg", out.getvalue()), ("1.cls", b"0")],
    )
    source = open_split(str(tmp_path), "train")
    assert not isinstance(source.lazy_image(0), LazyJpeg)
    assert isinstance(source.lazy_image(1), SegmentedJpeg)
    for index in (0, 1):
        assert np.array_equal(source.lazy_image(index)[5:14, 3:17], source.image(index)[5:14, 3:17])
