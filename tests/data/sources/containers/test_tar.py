"""Images inside a tar are read without unpacking it; a tar that is not whole is refused."""

import io
import tarfile
from pathlib import Path

import numpy as np
import pytest

from tests.data.sources.small_sets import encode_png, write_tar
from vernier.data.sources import open_split
from vernier.data.sources.containers.tar import TarImages, read_samples
from vernier.errors import ConfigError


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
    return [member.name for _, members in read_samples(path) for member in members]


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
    assert [len(members) for _, members in read_samples(tmp_path / "a.tar")] == [2]
