"""ImageNet's tars in miniature, through the command line, and devkits with MATLAB files that scipy wrote."""

import io
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import Done
from tests.data.archives import SYNSETS, jpeg_bytes, meta_mat, prepare_imagenet, tar_bytes, write_devkit
from tests.kernels.built import needs_library
from vernier.compat.preparing.imagenet import META, TRUTH, validation_synsets
from vernier.data.sources import ShardSource, open_split
from vernier.errors import ConfigError


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


@pytest.mark.parametrize("given", ["tar among the tars", "tar as labels", "folder", "numbers"])
def test_imagenet_is_prepared_with_the_devkits_numbers(
    vernier_here: Callable[..., Done],
    ilsvrc: list[str],
    tmp_path: Path,
    given: str,
) -> None:
    kit = write_devkit(tmp_path / "ILSVRC2012_devkit_t12.tar.gz", meta_mat(list(reversed(SYNSETS))), "1\n2\n")
    with tarfile.open(kit) as tar:
        tar.extractall(tmp_path, filter="data")
    folder = tmp_path / "ILSVRC2012_devkit_t12"
    labels = {"tar as labels": kit, "folder": folder, "numbers": folder / "data" / TRUTH}.get(given)
    extra = ["--val-labels", str(labels)] if labels else []
    tars = [*ilsvrc[:2], *([] if labels else [str(kit)])]
    done = vernier_here("data", "prepare", "imagenet", *tars, str(tmp_path / "out"), *extra, *ilsvrc[4:])
    assert done.code == 0, done.err
    assert open_split(str(tmp_path / "out"), "val").all_labels().tolist() == [0, 1]
    names = sorted(p.relative_to(tmp_path / "out/val").as_posix() for p in (tmp_path / "out/val").rglob("*.JPEG"))
    assert names == [f"{SYNSETS[0]}/ILSVRC2012_val_00000002.JPEG", f"{SYNSETS[1]}/ILSVRC2012_val_00000001.JPEG"]


def test_a_damaged_or_foreign_devkit_is_refused(tmp_path: Path) -> None:
    (tmp_path / TRUTH).write_text("1\n2\n")
    with pytest.raises(ConfigError, match="not beside it"):
        validation_synsets(tmp_path / TRUTH)
    (tmp_path / META).write_bytes(meta_mat(["n00000001"]))
    with pytest.raises(ConfigError, match="2 is not a class number"):
        validation_synsets(tmp_path / TRUTH)
    for damaged in (b"", b"x" * 300, meta_mat(["n00000001"])[:-20], meta_mat(["n00000001"], compressed=False)[:-40]):
        (tmp_path / META).write_bytes(damaged)
        with pytest.raises(ConfigError, match="MATLAB 5"):
            validation_synsets(tmp_path)
    (empty := tmp_path / "empty").mkdir()
    (tmp_path / "devkit.tar.gz").write_bytes(b"not a tar")
    with pytest.raises(ConfigError, match="readable tar"):
        validation_synsets(tmp_path / "devkit.tar.gz")
    with pytest.raises(ConfigError, match="not an ImageNet devkit"):
        validation_synsets(empty)


def test_a_damaged_file_that_ends_scipys_process_is_one_sentence(tmp_path: Path) -> None:
    content = bytearray(meta_mat(["n00000001", "n00000002"], compressed=False))
    content[content.index(b"synsets") + 129] = 255
    (tmp_path / TRUTH).write_text("1\n")
    (tmp_path / META).write_bytes(content)
    with pytest.raises(ConfigError, match=r"meta\.mat is not a MATLAB 5 file with the devkit's synsets \(\S.*\)"):
        validation_synsets(tmp_path)


def test_without_scipy_the_message_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / TRUTH).write_text("1\n")
    (tmp_path / META).write_bytes(meta_mat(["n00000001"]))
    monkeypatch.setitem(sys.modules, "scipy", None)
    with pytest.raises(ConfigError, match=r"pip install 'vernier\[devkit\]'") as error:
        validation_synsets(tmp_path)
    assert error.value.works == [("val_labels", "FILE")]
