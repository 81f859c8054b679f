"""ImageNet's tars in miniature, through the command line."""

import io
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import Done
from tests.data.archives import SYNSETS, jpeg_bytes, prepare_imagenet, tar_bytes
from tests.kernels.built import needs_library
from vernier.data.sources import ShardSource, open_split


def test_imagenet_to_folders_and_again(vernier_here: Callable[..., Done], ilsvrc: list[str], tmp_path: Path) -> None:
    out = tmp_path / "out"
    done = prepare_imagenet(vernier_here, ilsvrc, out)
    assert done.code == 0, done.err
    train, val = open_split(str(out), "train"), open_split(str(out), "val")
    assert train.classes == val.classes == SYNSETS
    assert (len(train), len(val)) == (6, 2)
    assert (out / "val" / SYNSETS[1] / "ILSVRC2012_val_00000001.JPEG").is_file()
    victim = out / "train" / SYNSETS[0] / f"{SYNSETS[0]}_1.JPEG"
    whole = victim.read_bytes()
    victim.write_bytes(whole[:10])
    assert prepare_imagenet(vernier_here, ilsvrc, out).code == 0
    assert victim.read_bytes() == whole


@needs_library
def test_imagenet_straight_to_shards(vernier_here: Callable[..., Done], ilsvrc: list[str], tmp_path: Path) -> None:
    done = prepare_imagenet(vernier_here, ilsvrc, tmp_path / "out", "--format", "shards", "--json")
    assert done.code == 0, done.err
    assert [d["restart_indexed"] for d in done.json()] == [6, 2]
    source = open_split(str(tmp_path / "out"), "val")
    assert isinstance(source, ShardSource)
    assert source.all_labels().tolist() == [1, 0]


def test_a_wrong_count_or_label_file_fails(
    vernier_here: Callable[..., Done], ilsvrc: list[str], tmp_path: Path
) -> None:
    short = vernier_here("data", "prepare", "imagenet", *ilsvrc[:2], str(tmp_path / "o"), *ilsvrc[2:4])
    assert short.code == 1
    assert "2 classes, 1,000 were expected" in short.err
    (tmp_path / "truth.txt").write_text("1\n2\n")
    wrong = prepare_imagenet(vernier_here, ilsvrc, tmp_path / "o")
    assert wrong.code == 2
    assert "another order" in wrong.err
    assert "devkit" in wrong.err


@pytest.mark.parametrize("split", ["train", "val"])
def test_a_tar_that_ends_early_is_refused_and_nothing_is_written(
    vernier_here: Callable[..., Done], ilsvrc: list[str], tmp_path: Path, split: str
) -> None:
    tar = tmp_path / f"ILSVRC2012_img_{split}.tar"
    tar.write_bytes(tar.read_bytes()[:900])
    done = prepare_imagenet(vernier_here, ilsvrc, tmp_path / "out")
    assert done.code == 2
    assert f"{tar} is not a readable tar file" in done.err
    assert "Traceback" not in done.err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", ["../x.JPEG", "/x.JPEG", "a/../../x.JPEG", ".."])
def test_members_that_lead_out_of_their_tar_are_refused(
    vernier_here: Callable[..., Done], tmp_path: Path, name: str
) -> None:
    (tmp_path / "train.tar").write_bytes(
        tar_bytes([(f"{SYNSETS[0]}.tar", tar_bytes([("ok.JPEG", jpeg_bytes(1)), (name, jpeg_bytes(2))]))])
    )
    arguments = ["imagenet", str(tmp_path / "train.tar"), str(tmp_path / "out"), "--expect", "1", "2", "0"]
    done = vernier_here("data", "prepare", *arguments)
    assert done.code == 1
    assert f"its member {name} points outside of the archive" in done.err
    assert [p.name for p in tmp_path.iterdir()] == ["train.tar"]


def test_links_in_imagenets_tars_are_refused(vernier_here: Callable[..., Done], tmp_path: Path) -> None:
    inner = io.BytesIO()
    with tarfile.open(fileobj=inner, mode="w") as tar:
        link = tarfile.TarInfo("x.JPEG")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/hostname"
        tar.addfile(link)
    (tmp_path / "train.tar").write_bytes(tar_bytes([(f"{SYNSETS[0]}.tar", inner.getvalue())]))
    done = vernier_here(
        "data", "prepare", "imagenet", str(tmp_path / "train.tar"), str(tmp_path / "out"), "--expect", "1", "1", "0"
    )
    assert (done.code, "points outside of the archive" in done.err) == (1, True)
