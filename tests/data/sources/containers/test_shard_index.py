"""The tables of shards that Vernier did not write."""

import io
import itertools
import os
import tarfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.data.archives import jpeg_bytes, tar_bytes
from tests.data.sources.small_sets import encode_png, write_tar
from vernier.compat.preparing.imagenet import TarImages
from vernier.data.decoding.decode import LazyJpeg, SegmentedJpeg
from vernier.data.sources import open_split
from vernier.data.sources.containers.shard_index import _read_samples, load_foreign_table, read_members, scan_tar
from vernier.data.sources.containers.tables import table_path, watched_scans, write_table
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


@pytest.mark.parametrize("same_time", [False, True])
def test_a_replaced_tar_of_the_same_size_is_indexed_again(tmp_path: Path, same_time: bool) -> None:
    path = tmp_path / "train-0.tar"
    write_tar(path, [("x.png", encode_png(10)), ("x.cls", b"0"), ("y.png", encode_png(10)), ("y.cls", b"1")])
    status = path.stat()
    assert open_split(str(tmp_path), "train").all_labels().tolist() == [0, 1]
    write_tar(path, [("x.png", encode_png(10)), ("x.cls", b"1"), ("y.png", encode_png(10)), ("y.cls", b"0")])
    assert path.stat().st_size == status.st_size
    if same_time:
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert open_split(str(tmp_path), "train").all_labels().tolist() == [1, 0]


def test_a_table_of_an_earlier_version_and_a_damaged_one_are_made_again(tmp_path: Path) -> None:
    path = tmp_path / "train-0.tar"
    write_tar(path, [("x.png", encode_png(10)), ("x.cls", b"0"), ("y.png", encode_png(10)), ("y.cls", b"1")])
    columns = {**scan_tar(path), "label": np.array([1, 0], "i4")}
    write_table(table_path(path), columns, {"version": "1", "bytes": str(path.stat().st_size)})  # version 0.2's stamp
    assert open_split(str(tmp_path), "train").all_labels().tolist() == [0, 1]
    content = bytearray(table_path(path).read_bytes())
    for position in range(3, len(content), len(content) // 14):
        table_path(path).write_bytes(content[:position] + bytes([content[position] ^ 1]) + content[position + 1 :])
        assert load_foreign_table(path)["label"].tolist() == [0, 1]


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ([("1.png", encode_png(1))], "no .cls or .json"),
        ([("1.png", encode_png(1)), ("1.cls", b"cat")], "has no class number"),
        ([("1.png", encode_png(1)), ("1.cls", b"\xe9")], "has no class number"),
        ([("1.png", encode_png(1)), ("1.cls", b"-1")], "the class number '-1' is out of range"),
        ([("1.png", encode_png(1)), ("1.cls", b"3000000000")], "the class number '3000000000' is out of range"),
        ([("1.png", encode_png(1)), ("1.cls", b"20000000")], "classes count from 0 to 999,999"),
        ([("1.png", encode_png(1)), ("1.json", b'{"label": Infinity}')], "inf is not a whole number"),
        ([("1.png", encode_png(1)), ("1.json", b'{"label": 1.5}')], "1.5 is not a whole number"),
        ([("1.png", encode_png(1)), ("1.json", b"[" * 100_000)], "nested too deeply"),
        ([("1.png", encode_png(1)), ("1.json", b"[3]")], "has no class number"),
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


def test_the_first_index_reports_how_far_it_is(tmp_path: Path) -> None:
    path = tmp_path / "train-0.tar"
    write_tar(path, [member for i in range(3) for member in ((f"{i}.png", encode_png(i)), (f"{i}.cls", b"0"))])
    reports: list[tuple[str, int, int]] = []
    for _ in range(2):
        with watched_scans(lambda doing, done, total: reports.append((doing, done, total))):
            open_split(str(tmp_path), "train")
    assert [doing for doing, _, _ in reports] == ["indexing train-0.tar"] * 3, "once, not from the stored table"
    assert 0 < reports[0][1] < reports[1][1] < reports[2][1] < reports[2][2] == path.stat().st_size


def test_images_are_read_in_place(tmp_path: Path) -> None:
    path = tmp_path / "images.tar"
    write_tar(path, [("a.png", encode_png(10)), ("b.png", encode_png(99))])
    with tarfile.open(path) as tar:
        ranges = [(member.offset_data, member.size) for member in tar]
    source = TarImages(path, ranges, ["a.png", "b.png"], np.array([1, 0]), ("ant", "bee"))
    assert (len(source), source.name(1), source.describe(1)) == (2, "b.png", f"{path}:b.png")
    assert source.read(1) == encode_png(99)
    assert source.image(0)[0, 0].tolist() == [10, 0, 0]


SAMPLES = [("0.png", encode_png(10)), ("0.cls", b"0"), ("1.png", encode_png(20)), ("1.cls", b"1")]


def _names(path: Path) -> list[str]:
    return [member.name for _, members in _read_samples(path) for member in members]


def test_a_tar_that_was_cut_anywhere_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.tar"
    write_tar(path, SAMPLES)
    whole = path.read_bytes()
    end = len(whole.rstrip(b"\0")) + 511 & ~511
    assert _names(path) == [name for name, _ in SAMPLES]
    for size in range(0, end + 1, 64):
        path.write_bytes(whole[:size])
        with pytest.raises(ConfigError, match=r"a\.tar is (truncated|not a readable tar)"):
            _names(path)
    path.write_bytes(whole[: end + 512])  # one block of zeros ends a tar
    assert len(_names(path)) == 4


def test_a_damaged_header_and_joined_tars_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.tar"
    write_tar(path, SAMPLES)
    whole = path.read_bytes()
    second = whole.index(b"1.png")
    path.write_bytes(whole[:second] + b"\xff" * 200 + whole[second + 200 :])
    with pytest.raises(ConfigError, match=f"is damaged at byte {second:,}"):
        _names(path)
    path.write_bytes(whole + whole)
    with pytest.raises(ConfigError, match="more data behind its end mark"):
        _names(path)


@pytest.mark.parametrize("kind", ["gz", "bz2", "xz"])
def test_a_compressed_tar_is_refused_whatever_its_name(tmp_path: Path, kind: str) -> None:
    with tarfile.open(tmp_path / "a.tar", f"w:{kind}") as tar:
        tar.addfile(tarfile.TarInfo("0.cls"))
    with pytest.raises(ConfigError, match=r"is compressed \(.*Unpack it to a plain tar"):
        _names(tmp_path / "a.tar")


def _write_linked(path: Path, kind: bytes, target: str) -> None:
    with tarfile.open(path, "w") as tar:
        for name, content in (("x/0.png", encode_png(10)), ("x/0.cls", b"0"), ("x/1.cls", b"1")):
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
        link = tarfile.TarInfo("x/1.png")
        link.type, link.linkname = kind, target
        tar.addfile(link)


@pytest.mark.parametrize(("kind", "target"), [(tarfile.LNKTYPE, "x/0.png"), (tarfile.SYMTYPE, "./0.png")])
def test_links_are_the_files_that_they_lead_to(tmp_path: Path, kind: bytes, target: str) -> None:
    _write_linked(tmp_path / "train-0.tar", kind, target)
    source = open_split(str(tmp_path), "train")
    assert source.all_labels().tolist() == [0, 1]
    assert [int(source.image(i)[0, 0, 0]) for i in range(2)] == [10, 10]


@pytest.mark.parametrize("kind", [tarfile.LNKTYPE, tarfile.SYMTYPE])
def test_a_link_to_nothing_is_refused(tmp_path: Path, kind: bytes) -> None:
    _write_linked(tmp_path / "a.tar", kind, "/etc/passwd")
    with pytest.raises(ConfigError, match=r"x/1\.png is a link to /etc/passwd, which is no file before it"):
        _names(tmp_path / "a.tar")


def test_hidden_files_are_left_out(tmp_path: Path) -> None:
    write_tar(tmp_path / "a.tar", [SAMPLES[0], ("._0.png", b"\0\5\x16\7"), SAMPLES[1]])
    assert [len(members) for _, members in _read_samples(tmp_path / "a.tar")] == [2]


def test_a_member_of_negative_size_ends_reading_instead_of_repeating_it(tmp_path: Path) -> None:
    path = tmp_path / "a.tar"
    content = bytearray(tar_bytes([("a.jpg", jpeg_bytes(1)), ("b.jpg", jpeg_bytes(2))]))
    at = content.index(b"b.jpg")
    content[at + 124 : at + 136] = b"-0000001227\0"
    header = content[at : at + 148] + b" " * 8 + content[at + 156 : at + 512]
    content[at + 148 : at + 156] = b"%06o\0 " % sum(header)
    path.write_bytes(content)
    with tarfile.open(path) as tar, pytest.raises(tarfile.ReadError, match="size -"):
        list(itertools.islice(read_members(tar), 10))
