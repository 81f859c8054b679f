"""From what publishers give to what is trained on, through the command line."""

import io
import json
import os
import shutil
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from PIL import Image

from tests.conftest import Done
from vernier.data.shapes.files import ShapesSpec, make
from vernier.data.sources import ShardSource, open_split

SYNSETS = ("n00000005", "n00000007")
needs_jpegtran = pytest.mark.skipif(shutil.which("jpegtran") is None, reason="jpegtran is not installed")


def _jpeg(shade: int) -> bytes:
    out = io.BytesIO()
    Image.new("RGB", (48, 40), (shade, 0, 0)).save(out, "JPEG")
    return out.getvalue()


def _tar(members: list[tuple[str, bytes]]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for name, content in members:
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return out.getvalue()


@pytest.fixture
def ilsvrc(tmp_path: Path) -> list[str]:
    """The two tars in miniature, with the ground truth: arguments of `prepare imagenet`, without OUT."""
    inner = [(f"{s}.tar", _tar([(f"{s}_{i}.JPEG", _jpeg(20 * i)) for i in range(3)])) for s in reversed(SYNSETS)]
    (tmp_path / "ILSVRC2012_img_train.tar").write_bytes(_tar(inner))
    val = [(f"ILSVRC2012_val_{i:08d}.JPEG", _jpeg(i)) for i in (1, 2)]
    (tmp_path / "ILSVRC2012_img_val.tar").write_bytes(_tar(val))
    (tmp_path / "truth.txt").write_text(f"{SYNSETS[1]}\n{SYNSETS[0]}\n")
    tars = [str(tmp_path / f"ILSVRC2012_img_{s}.tar") for s in ("train", "val")]
    return [*tars, "--val-labels", str(tmp_path / "truth.txt"), "--expect", "2", "6", "2"]


def _prepare(vernier_here: Callable[..., Done], ilsvrc: list[str], out: Path, *more: str) -> Done:
    return vernier_here("data", "prepare", "imagenet", *ilsvrc[:2], str(out), *ilsvrc[2:], *more)


def test_imagenet_to_folders_and_again(vernier_here: Callable[..., Done], ilsvrc: list[str], tmp_path: Path) -> None:
    out = tmp_path / "out"
    done = _prepare(vernier_here, ilsvrc, out)
    assert done.code == 0, done.err
    train, val = open_split(str(out), "train"), open_split(str(out), "val")
    assert train.classes == val.classes == SYNSETS
    assert (len(train), len(val)) == (6, 2)
    assert (out / "val" / SYNSETS[1] / "ILSVRC2012_val_00000001.JPEG").is_file()
    victim = out / "train" / SYNSETS[0] / f"{SYNSETS[0]}_1.JPEG"
    whole = victim.read_bytes()
    victim.write_bytes(whole[:10])
    assert _prepare(vernier_here, ilsvrc, out).code == 0
    assert victim.read_bytes() == whole


@needs_jpegtran
def test_imagenet_straight_to_shards(vernier_here: Callable[..., Done], ilsvrc: list[str], tmp_path: Path) -> None:
    done = _prepare(vernier_here, ilsvrc, tmp_path / "out", "--format", "shards", "--json")
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
    wrong = _prepare(vernier_here, ilsvrc, tmp_path / "o")
    assert wrong.code == 2
    assert "another order" in wrong.err
    assert "devkit" in wrong.err


def test_coco_zips(vernier_here: Callable[..., Done], tmp_path: Path) -> None:
    root = make(tmp_path / "set", ShapesSpec(kind="detect", train=5, val=3, size_px=32))
    for name, folders in (("images.zip", ("train", "val")), ("annotations.zip", ("annotations",))):
        with zipfile.ZipFile(tmp_path / name, "w") as bundle:
            for path in (p for f in folders for p in (root / f).rglob("*") if p.is_file()):
                bundle.write(path, path.relative_to(root))
    zips = [str(tmp_path / n) for n in ("images.zip", "annotations.zip")]
    done = vernier_here("data", "prepare", "coco", *zips, str(tmp_path / "out"), "--expect", "0", "5", "3", "--json")
    assert done.code == 0, done.err
    assert done.json() == {"train": 5, "val": 3}
    (tmp_path / "out" / "val" / "000001.jpg").unlink()
    bad = vernier_here("data", "prepare", "coco", zips[1], str(tmp_path / "out"), "--expect", "0", "5", "3")
    assert bad.code == 1
    assert "000001.jpg" in bad.err


@pytest.mark.parametrize("layout", [pytest.param("shards", marks=needs_jpegtran), "raw"])
def test_what_is_prepared_can_be_verified_inspected_and_trained_on(
    vernier_here: Callable[..., Done], shapes: Path, tiny: list[str], tmp_path: Path, layout: str
) -> None:
    out = str(tmp_path / "out")
    assert vernier_here("data", "prepare", "folder", str(shapes), out, "--format", layout).code == 0
    assert vernier_here("data", "verify", out, "--json").json()["images"] == {"train": 160, "val": 50}
    seen = vernier_here("data", "inspect", out, "--json").json()["splits"]["train"]
    assert (seen["images"], seen["median_size"]) == (160, "32 x 32")
    trained = vernier_here("train", *tiny, "--data", out, "--max-steps", "2", "--max-eval-steps", "1", "--json")
    assert trained.code == 0, trained.err
    again = vernier_here("data", "prepare", "folder", str(shapes), out, "--format", layout)
    assert again.code == 2
    assert "exists already" in again.err


def test_verify_finds_what_is_bad_and_what_is_in_both(
    vernier_here: Callable[..., Done], shapes: Path, tmp_path: Path
) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(shapes, copy)
    shutil.rmtree(copy / "annotations")
    (copy / "shapes.json").unlink()
    one, two = sorted((copy / "train").rglob("*.jpg"))[:2]
    one.write_bytes(one.read_bytes()[:-40])
    shutil.copy(two, copy / "val" / two.parent.name / "zz.jpg")
    done = vernier_here("data", "verify", str(copy))
    assert done.code == 1
    assert str(one) in done.out
    assert "1 bad, 1 in both splits" in done.out


def test_a_contact_sheet_is_drawn(vernier_here: Callable[..., Done], tmp_path: Path) -> None:
    root = make(tmp_path / "set", ShapesSpec(kind="detect", train=12, val=3, size_px=48))
    sheet = tmp_path / "sheet.png"
    done = vernier_here("data", "inspect", str(root), "--sheet", str(sheet), "--compare-backends")
    assert done.code == 0, done.err
    assert "boxes" in done.out
    assert "backend pillow" in done.out
    with Image.open(sheet) as image:
        assert image.width > 1000


def test_bad_images_are_in_the_summary(
    vernier_here: Callable[..., Done], shapes: Path, tiny: list[str], tmp_path: Path
) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(shapes, copy)
    victim = min((copy / "train").rglob("*.jpg"))
    victim.write_bytes(b"nothing")
    done = vernier_here("train", *tiny, "--data", str(copy), "--epochs", "1", "--max-bad-images", "1%", "--json")
    assert done.code == 0, done.err
    assert [Path(b["path"]).name for b in done.json()["bad_images"]] == [victim.name]
    assert f"bad image {victim}" in done.err
    assert vernier_here("train", *tiny, "--max-bad-images", "lots").code == 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["prepare", "folder", "only"], "SRC OUT"),
        (["prepare", "folder", "/no/such", "out"], "does not exist"),
        (
            ["prepare", "folder", "shapes", "out", "--format", "raw", "--short-side-px", "0"],
            "--short-side-px 0: a whole",
        ),
        (["prepare", "folder", "shapes", "out", "--format", "shards", "--shard-mb", "0"], "--shard-mb 0: a whole"),
        (["prepare", "folder", "shapes", "out", "--format", "raw", "--workers", "-1"], "--workers -1: a whole"),
        (["verify", "shapes", "--val-share", "3"], "--val-share 3: a share"),
        (["verify", "/no/such"], "not a folder|does not exist"),
        (["get", "imagenet"], "Did you mean imagenette"),
        (["get", "cifar10", "--mirror", "example"], "begins with one of https://"),
    ],
)
def test_wrong_input_is_one_clear_message(
    vernier_here: Callable[..., Done], arguments: list[str], message: str
) -> None:
    import re

    done = vernier_here("data", *arguments)
    assert done.code == 2
    assert re.search(message, done.err)
    assert "Traceback" not in done.err
    assert json.dumps(done.out) == '""'


@pytest.mark.parametrize("split", ["train", "val"])
def test_a_tar_that_ends_early_is_refused_and_nothing_is_written(
    vernier_here: Callable[..., Done], ilsvrc: list[str], tmp_path: Path, split: str
) -> None:
    tar = tmp_path / f"ILSVRC2012_img_{split}.tar"
    tar.write_bytes(tar.read_bytes()[:900])
    done = _prepare(vernier_here, ilsvrc, tmp_path / "out")
    assert done.code == 2
    assert f"{tar} is not a readable tar file" in done.err
    assert "Traceback" not in done.err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", ["../x.JPEG", "/x.JPEG", "a/../../x.JPEG", ".."])
def test_members_that_lead_out_of_their_tar_are_refused(
    vernier_here: Callable[..., Done], tmp_path: Path, name: str
) -> None:
    (tmp_path / "train.tar").write_bytes(_tar([(f"{SYNSETS[0]}.tar", _tar([("ok.JPEG", _jpeg(1)), (name, _jpeg(2))]))]))
    arguments = ["imagenet", str(tmp_path / "train.tar"), str(tmp_path / "out"), "--expect", "1", "2", "0"]
    done = vernier_here("data", "prepare", *arguments)
    assert done.code == 1
    assert f"its member {name} leads out of it" in done.err
    assert [p.name for p in tmp_path.iterdir()] == ["train.tar"]


def test_links_in_imagenets_tars_are_refused(vernier_here: Callable[..., Done], tmp_path: Path) -> None:
    inner = io.BytesIO()
    with tarfile.open(fileobj=inner, mode="w") as tar:
        link = tarfile.TarInfo("x.JPEG")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/hostname"
        tar.addfile(link)
    (tmp_path / "train.tar").write_bytes(_tar([(f"{SYNSETS[0]}.tar", inner.getvalue())]))
    done = vernier_here(
        "data", "prepare", "imagenet", str(tmp_path / "train.tar"), str(tmp_path / "out"), "--expect", "1", "1", "0"
    )
    assert (done.code, "leads out of it" in done.err) == (1, True)


def test_two_images_of_one_name_are_not_written_over_each_other(
    vernier_here: Callable[..., Done], tmp_path: Path
) -> None:
    inner = _tar([("a/same.JPEG", _jpeg(1)), ("b/same.JPEG", _jpeg(2))])
    (tmp_path / "train.tar").write_bytes(_tar([(f"{SYNSETS[0]}.tar", inner)]))
    arguments = ["imagenet", str(tmp_path / "train.tar"), str(tmp_path / "out"), "--expect", "1", "2", "0"]
    done = vernier_here("data", "prepare", *arguments)
    assert (done.code, "More than one image would be written as" in done.err) == (2, True)
    assert not (tmp_path / "out").exists()
    assert vernier_here("data", "prepare", *arguments, "--format", "shards", "--no-restarts").code == 0
    assert len(open_split(str(tmp_path / "out"), "train")) == 2


def test_coco_may_be_called_coco_and_says_what_it_lacks(
    vernier_here: Callable[..., Done], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The name of a built-in set is a folder here, and COCO has boxes, for which shards have no place."""
    root = make(tmp_path / "set", ShapesSpec(kind="detect", train=4, val=2, size_px=48))
    monkeypatch.chdir(tmp_path)
    for name, split in (("train2017", "train"), ("annotations", "annotations"), ("val2017", "val")):
        with zipfile.ZipFile(f"{name}.zip", "w") as bundle:
            for file in sorted((root / split).rglob("*.j*")):
                bundle.write(file, file.relative_to(root))
    few = ["--expect", "0", "4", "2"]
    lacking = vernier_here("data", "prepare", "coco", "train2017.zip", "coco", *few)
    assert (lacking.code, "annotations_trainval2017.zip" in lacking.err) == (1, True)
    zips = ["train2017.zip", "val2017.zip", "annotations.zip"]
    shards = vernier_here("data", "prepare", "coco", *zips, "coco", *few, "--format", "shards")
    assert (shards.code, "Leave --format out" in shards.err) == (2, True)
    done = vernier_here("data", "prepare", "coco", *zips, "coco", *few)
    assert done.code == 0, done.err
    assert vernier_here("data", "verify", str(tmp_path / "coco"), "--json").json()["images"] == {"train": 4, "val": 2}


def test_whatever_data_takes_can_be_prepared(vernier_here: Callable[..., Done], shapes: Path, tmp_path: Path) -> None:
    """Shards back to files, files to shards; not files to files."""
    shards, files = str(tmp_path / "shards"), str(tmp_path / "files")
    prepare = ["data", "prepare", "folder"]
    assert vernier_here(*prepare, str(shapes), shards, "--format", "shards", "--no-restarts").code == 0
    assert vernier_here(*prepare, shards, files).code == 0
    there, back = open_split(shards, "val"), open_split(files, "val")
    assert back.classes == there.classes
    assert sorted(there.all_labels().tolist()) == back.all_labels().tolist()
    itself = vernier_here(*prepare, files, files, "--format", "raw")
    assert (itself.code, "Choose another folder" in itself.err) == (2, True)
    (tmp_path / "files" / "val" / "empty").mkdir()
    damaged = vernier_here(*prepare, files, str(tmp_path / "raw"), "--format", "raw")
    assert (damaged.code, "have no images" in damaged.err) == (2, True), "not simply without its validation split"
    (tmp_path / "files" / "val" / "empty").rmdir()
    same = vernier_here(*prepare, files, str(tmp_path / "again"))
    assert (same.code, "folders of images already" in same.err) == (2, True)


def test_an_image_that_cannot_be_opened_is_named(
    vernier_here: Callable[..., Done], shapes: Path, tmp_path: Path
) -> None:
    copy, out = tmp_path / "copy", str(tmp_path / "out")
    shutil.copytree(shapes, copy)
    gone = min((copy / "train").rglob("*.jpg"))
    gone.unlink()
    gone.symlink_to("/no/such/file")
    done = vernier_here("data", "prepare", "folder", str(copy), out, "--format", "shards", "--no-restarts")
    assert done.code == 1
    assert f"Cannot read {gone}: No such file or directory" in done.err
    shutil.rmtree(copy / "annotations")
    (copy / "shapes.json").unlink()
    compared = vernier_here("data", "inspect", str(copy), "--compare-backends", "--json")
    assert compared.code == 0, compared.err
    assert compared.json()["backends"][0]["images"] == 49


def test_verify_does_not_pass_over_a_split(vernier_here: Callable[..., Done], shapes: Path, tmp_path: Path) -> None:
    """One that is not there is noted, one that is damaged or of other classes is a failure."""
    out = tmp_path / "out"
    assert (
        vernier_here("data", "prepare", "folder", str(shapes), str(out), "--format", "shards", "--no-restarts").code
        == 0
    )
    shard = out / "val-000000.tar"
    shard.write_bytes(shard.read_bytes()[:-1])
    damaged = vernier_here("data", "verify", str(out))
    assert (damaged.code, str(shard) in damaged.err) == (2, True)
    for path in out.glob("val*"):
        path.unlink()
    alone = vernier_here("data", "verify", str(out))
    assert (alone.code, "has no val/" in alone.err) == (0, True)
    classes = tmp_path / "classes"
    for name in ("train/a", "train/b", "val/a"):
        (classes / name).mkdir(parents=True)
        (classes / name / "1.jpg").write_bytes(_jpeg(len(name) + ord(name[-1])))
    apart = vernier_here("data", "verify", str(classes))
    assert (apart.code, "not in both: b" in apart.out) == (1, True)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may look into every folder")
def test_a_folder_that_cannot_be_looked_into_is_named(
    vernier_here: Callable[..., Done], shapes: Path, tmp_path: Path
) -> None:
    shutil.copytree(shapes / "train", tmp_path / "set")
    closed = min((tmp_path / "set").iterdir()) / "closed"
    closed.mkdir(mode=0)
    done = vernier_here("data", "verify", str(tmp_path / "set"))
    assert (done.code, f"Permission denied: {closed}" in done.err) == (1, True)
