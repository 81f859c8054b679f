"""Images that were read as something else, or not at all, without a word."""

import io
import json
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from PIL import Image, ImageOps

from tests.conftest import REPO, Done
from tests.data.sources.small_sets import write_image
from tests.tiny_training import run_training, tiny_config
from vernier.config import Augment, Data, Limits
from vernier.data.decoding.decode import BadImage, LazyJpeg, decode, lazy_image, read_size
from vernier.data.loading.readers import TrainReader
from vernier.data.sources import EncodedSource, FolderSource, open_boxes, open_split
from vernier.data.sources.files import open_image
from vernier.data.sources.views import _SourceView, cache_in_memory
from vernier.errors import ConfigError

Runner = Callable[..., Done]


def test_a_sixteen_bit_image_keeps_its_shades() -> None:
    """A 16-bit grey PNG was read as white: all but 256 of its 65,536 levels became 255."""
    out = io.BytesIO()
    Image.fromarray(np.linspace(0, 65535, 4096).reshape(64, 64).astype(np.uint16)).save(out, "PNG")
    image = decode(out.getvalue())
    assert 126 < image.mean() < 129
    assert np.array_equal(np.unique(image), np.arange(256))


def test_an_image_of_floating_point_numbers_is_bad(tmp_path: Path, vernier_here: Runner) -> None:
    """A float TIFF was read as black, and `data verify` counted no bad image."""
    for split in ("train", "val"):
        write_image(tmp_path / split / "cat" / f"{split}.png", (len(split), 0, 0))
    levels = np.linspace(0, 1, 600).reshape(20, 30).astype(np.float32)
    Image.fromarray(levels).save(tmp_path / "train" / "cat" / "depth.tiff")
    done = vernier_here("data", "verify", str(tmp_path))
    assert done.code == 1
    assert "depth.tiff: its pixels are 32-bit floating-point numbers" in done.out
    assert "1 bad" in done.out


def test_verify_fails_when_an_image_is_in_both_splits(tmp_path: Path, vernier_here: Runner) -> None:
    """The documentation promised exit code 1; it was 0."""
    write_image(tmp_path / "train" / "cat" / "1.png")
    write_image(tmp_path / "val" / "cat" / "2.png")
    done = vernier_here("data", "verify", str(tmp_path))
    assert done.code == 1
    assert "0 bad, 1 in more than one split" in done.out
    assert vernier_here("data", "verify", str(tmp_path), "--json").json()["sound"] is False


@pytest.mark.parametrize("suffix", ["gif", "avif", "jp2"])
def test_images_that_work_when_they_are_named_work_in_folders(suffix: str, tmp_path: Path) -> None:
    """GIF, AVIF and JPEG 2000 files in class folders were skipped without a word."""
    write_image(tmp_path / "cat" / "1.jpg")
    write_image(tmp_path / "cat" / f"2.{suffix}")
    source = FolderSource(tmp_path)
    assert len(source) == 2
    assert source.image(1).shape == (8, 10, 3)


def test_files_that_are_skipped_are_counted(tmp_path: Path, vernier_here: Runner) -> None:
    """Photographs as HEIC were skipped, and the set was smaller than the folder."""
    for split in ("train", "val"):
        write_image(tmp_path / split / "cat" / f"{split}.png")
    (tmp_path / "train" / "cat" / "2.heic").write_bytes(b"heic")
    done = vernier_here("data", "inspect", str(tmp_path))
    assert "1 file skipped, not images by their names: 1 .heic" in done.out


def test_predict_names_every_image_that_it_could_not_read(shapes: Path, tmp_path: Path, vernier_here: Runner) -> None:
    """It printed 20 lines, then "6 of 29 images could not be read"; which ones was only in the JSON."""
    config = replace(tiny_config(shapes), limits=Limits(max_steps=1, max_eval_steps=1))
    run = run_training(config, tmp_path / "runs").run.path
    shutil.copytree(shapes / "val", tmp_path / "photos")
    bad = sorted((tmp_path / "photos").rglob("*.jpg"))[25:28]
    for path in bad:
        path.write_bytes(b"no picture")
    done = vernier_here("predict", str(run), str(tmp_path / "photos"))
    assert done.code == 1
    assert all(f"{path}: cannot be read: " in done.out for path in bad)


# ------------------------------------------------------------------------------------------------------------- phones

_DATA = Path(os.environ.get("VERNIER_TEST_DATA") or REPO.parent / "shared" / "data")
PHOTOGRAPHS = sorted((_DATA / "coco" / "val2017").glob("*.jpg"))[:4]
needs_photographs = pytest.mark.skipif(not PHOTOGRAPHS, reason="no photographs in $VERNIER_TEST_DATA or ../shared/data")
ORIENTATIONS = range(1, 9)
# What a camera does: the pixels are stored turned, so that the orientation brings them back.
_STORE = {
    1: lambda pixels: pixels,
    2: np.fliplr,
    3: lambda pixels: np.rot90(pixels, 2),
    4: np.flipud,
    5: lambda pixels: pixels.transpose(1, 0, 2),
    6: lambda pixels: np.rot90(pixels),
    7: lambda pixels: np.rot90(pixels, 2).transpose(1, 0, 2),
    8: lambda pixels: np.rot90(pixels, -1),
}


def _upright(photograph: Path) -> Image.Image:
    return Image.open(photograph).convert("RGB")


def _stored(photograph: Path, orientation: int, form: str = "JPEG") -> bytes:
    """The photograph as a camera held so would have written it, with a maker's tag before the orientation."""
    exif = Image.Exif()
    exif[0x010F], exif[0x0112] = "a camera", orientation
    out = io.BytesIO()
    pixels = np.ascontiguousarray(_STORE[orientation](np.asarray(_upright(photograph))))
    Image.fromarray(pixels).save(out, form, exif=exif.tobytes(), quality=90)
    return out.getvalue()


def _reference(encoded: bytes) -> npt.NDArray[np.uint8]:
    return np.asarray(ImageOps.exif_transpose(Image.open(io.BytesIO(encoded))).convert("RGB"))


@needs_photographs
@pytest.mark.parametrize("orientation", ORIENTATIONS)
@pytest.mark.parametrize("form", ["JPEG", "PNG", "WEBP", "TIFF"])
def test_a_photograph_is_read_upright(orientation: int, form: str) -> None:
    """A phone's photographs were trained on and predicted lying on their side, without a word."""
    encoded = _stored(PHOTOGRAPHS[0], orientation, form)
    expected = _reference(encoded)
    assert expected.shape == np.asarray(_upright(PHOTOGRAPHS[0])).shape
    assert np.array_equal(decode(encoded), expected)
    assert read_size(encoded) == expected.shape[1::-1]
    window = lazy_image(encoded)[31:200, 17:150]
    assert np.array_equal(window, expected[31:200, 17:150])
    stored = decode(encoded, exif=False)
    assert stored.shape == (expected.shape if orientation < 5 or form == "TIFF" else np.swapaxes(expected, 0, 1).shape)


@needs_photographs
@pytest.mark.parametrize("orientation", ORIENTATIONS)
def test_a_crop_that_is_decoded_smaller_is_turned_like_a_whole_image(orientation: int) -> None:
    encoded = _stored(PHOTOGRAPHS[1], orientation)
    image = lazy_image(encoded)
    assert isinstance(image, LazyJpeg)
    for factor in (2, 4, 8):
        height, width = (-(-side // factor) for side in image.shape[:2])
        whole = image.decode_window((slice(0, height), slice(0, width)), factor)
        assert whole.shape == (height, width, 3)
        part = image.decode_window((slice(5, 30), slice(3, 21)), factor)
        assert np.array_equal(part, whole[5:30, 3:21])
        smaller = np.asarray(_upright(PHOTOGRAPHS[1]).resize((width, height), Image.Resampling.BOX))
        assert np.abs(smaller.astype(int) - whole).mean() < 8, "the same picture, and not a mirrored one"


@needs_photographs
def test_pillow_images_and_xmp_are_turned_too() -> None:
    encoded = _stored(PHOTOGRAPHS[0], 6)
    assert np.array_equal(open_image(Image.open(io.BytesIO(encoded))), _reference(encoded))
    out = io.BytesIO()
    xmp = b'<x:xmpmeta xmlns:x="adobe:ns:meta/"><rdf:RDF tiff:Orientation="8"/></x:xmpmeta>'
    _upright(PHOTOGRAPHS[0]).save(out, "JPEG", xmp=xmp)
    assert np.array_equal(decode(out.getvalue()), _reference(out.getvalue()))


@pytest.fixture(scope="module")
def phone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same photographs in all eight orientations, in two classes, with boxes as YOLO, COCO and VOC beside them."""
    root = tmp_path_factory.mktemp("phone")
    for number, orientation in enumerate([*ORIENTATIONS, *ORIENTATIONS]):
        split = "train" if number < 8 else "val"
        target = root / "classes" / split / "ab"[number % 2] / f"{number:02d}.jpg"
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(_stored(PHOTOGRAPHS[number % 4], orientation))
    return root


BOX = (0.2, 0.1, 0.5, 0.4)
"""Left, top, right, bottom as shares of the upright photograph, as a labelling tool shows it."""


def _write_boxes(folder: Path, layout: str, orientation: int, *, of_stored: bool = False) -> Path:
    """One split of photographs held in one way, with a box drawn in the upright picture."""
    images = folder / ("images/train" if layout == "yolo" else "train" if layout == "coco" else "JPEGImages")
    images.mkdir(parents=True)
    listed, rows = [], []
    for number, photograph in enumerate(PHOTOGRAPHS):
        name = f"{number}.jpg"
        (images / name).write_bytes(_stored(photograph, orientation))
        width, height = _upright(photograph).size
        left, top, right, bottom = (v * s for v, s in zip(BOX, (width, height, width, height), strict=True))
        size = (height, width) if of_stored else (width, height)
        if layout == "yolo":
            label = folder / "labels/train" / f"{number}.txt"
            label.parent.mkdir(parents=True, exist_ok=True)
            label.write_text("0 0.35 0.25 0.3 0.3\n")
            (folder / "classes.txt").write_text("thing\n")
        elif layout == "coco":
            listed.append({"id": number, "file_name": name, "width": size[0], "height": size[1]})
            box = [left, top, right - left, bottom - top]
            rows.append({"id": number, "image_id": number, "category_id": 1, "bbox": box})
        else:
            xml = folder / "Annotations" / f"{number}.xml"
            xml.parent.mkdir(exist_ok=True)
            edges = (("xmin", left + 1), ("ymin", top + 1), ("xmax", right), ("ymax", bottom))
            inside = "".join(f"<{key}>{value}</{key}>" for key, value in edges)
            xml.write_text(
                f"<annotation><size><width>{size[0]}</width><height>{size[1]}</height></size><object><name>thing</name>"
                f"<bndbox>{inside}</bndbox></object></annotation>"
            )
    if layout == "coco":
        tree = {"images": listed, "annotations": rows, "categories": [{"id": 1, "name": "thing"}]}
        (folder / "annotations").mkdir()
        (folder / "annotations" / "instances_train.json").write_text(json.dumps(tree))
    elif layout == "voc":
        listing = folder / "ImageSets/Main/train.txt"
        listing.parent.mkdir(parents=True)
        listing.write_text("".join(f"{number}\n" for number in range(len(PHOTOGRAPHS))))
    return folder


@needs_photographs
@pytest.mark.parametrize("orientation", ORIENTATIONS)
@pytest.mark.parametrize("layout", ["yolo", "coco", "voc"])
def test_boxes_lie_on_the_objects_of_turned_photographs(layout: str, orientation: int, tmp_path: Path) -> None:
    """With YOLO's files, boxes of photographs held upright were learned beside the objects, without a warning."""
    source = open_boxes(str(_write_boxes(tmp_path, layout, orientation)), "train")
    for index in range(len(source)):
        image, (box,) = source.image(index), source.boxes(index).ltrb
        height, width = image.shape[:2]
        assert box / [width, height, width, height] == pytest.approx(BOX, abs=1e-6)
        source.check_size(index, width, height)
        left, top, right, bottom = np.rint(box).astype(int)
        object_pixels = np.asarray(_upright(PHOTOGRAPHS[index]))[top:bottom, left:right].astype(int)
        assert np.abs(object_pixels - image[top:bottom, left:right]).mean() < 8, "what is in the box is what was drawn"


@needs_photographs
@pytest.mark.parametrize("layout", ["coco", "voc"])
def test_boxes_of_the_stored_pixels_are_refused_with_the_way_out(
    layout: str, tmp_path: Path, vernier_here: Runner
) -> None:
    """Both ways out that the message named led nowhere: `data verify` listed nothing."""
    folder = _write_boxes(tmp_path, layout, 6, of_stored=True)
    source = open_boxes(str(folder), "train")
    with pytest.raises(BadImage, match=r"data\.exif") as error:
        source.check_size(0, *source.image(0).shape[1::-1])
    assert "ignore" in str(error.value)
    stored = open_boxes(str(folder), "train", exif=False)
    stored.check_size(0, *stored.image(0).shape[1::-1])
    done = vernier_here("data", "verify", str(folder))
    assert done.code == 1
    assert f"{len(PHOTOGRAPHS)} bad" in done.out


@needs_photographs
def test_every_way_of_reading_gives_the_same_upright_pixels(phone: Path, vernier_here: Runner, tmp_path: Path) -> None:
    """Folder, shards with and without restart markers, other tars, raw and TFRecord files, and the memory cache."""
    folder = open_split(str(phone / "classes"), "train")
    upright = [folder.image(index) for index in range(len(folder))]
    for number in range(8):
        encoded = Path(folder.describe(number)).read_bytes()
        assert np.array_equal(folder.image(number), _reference(encoded))
    forms = {"shards": (), "plain": ("--no-restarts",), "raw": ("--short-side-px", "9999"), "tfrecord": ()}
    for form, options in forms.items():
        kind = "shards" if form == "plain" else form
        out = tmp_path / form
        done = vernier_here("data", "prepare", "folder", str(phone / "classes"), str(out), "--format", kind, *options)
        assert done.code == 0, done.err
        source = open_split(str(out), "train")
        for index in range(len(source)):
            image, window = source.image(index), source.lazy_image(index)[20:90, 40:100]
            assert np.array_equal(window, image[20:90, 40:100]), form
            if form != "tfrecord":  # there turned photographs are encoded again, because its readers know no EXIF
                assert any(np.array_equal(image, pixels) for pixels in upright), form
            assert image.shape in {pixels.shape for pixels in upright}
    cached, _ = cache_in_memory(folder, 0.5)
    assert cached is not folder
    assert np.array_equal(cached.image(3), folder.image(3))


@needs_photographs
@pytest.mark.parametrize("backend", ["native", "compiled"])
def test_training_crops_of_turned_photographs_are_those_of_upright_ones(phone: Path, backend: str) -> None:
    """Crops are drawn from the upright size and decoded in stored coordinates."""
    source = open_split(str(phone / "classes"), "train")
    assert isinstance(source, EncodedSource)
    shape = source.image(5).shape
    assert source.lazy_image(5).shape == shape
    try:
        reader = TrainReader(source, Data(image_px=48), Augment(), 3, decoder=backend)
    except ConfigError as error:
        pytest.skip(str(error))
    whole = TrainReader(_Decoded(source), Data(image_px=48), Augment(), 3)
    turned, expected = (np.zeros((8, 48, 48, 3), np.uint8) for _ in range(2))
    reader.fill(0, np.arange(8), turned)
    whole.fill(0, np.arange(8), expected)
    assert np.array_equal(turned, expected)


class _Decoded(_SourceView):
    """Images that are decoded whole before they are cropped."""

    def lazy_image(self, index: int) -> npt.NDArray[np.uint8]:
        return self.image(index)


@needs_photographs
def test_verify_and_inspect_count_turned_photographs(phone: Path, vernier_here: Runner) -> None:
    """Neither said a word about orientation."""
    verified = vernier_here("data", "verify", str(phone / "classes"), "--json")
    assert verified.json()["turned"] == {"train": 7, "val": 7}
    inspected = vernier_here("data", "inspect", str(phone / "classes"), "--json").json()["splits"]
    assert inspected["train"]["turned_by_exif"] == 7
    assert "14 photographs" in vernier_here("data", "verify", str(phone / "classes")).out


@needs_photographs
def test_shards_that_lost_their_orientation_say_so(phone: Path, vernier_here: Runner, tmp_path: Path) -> None:
    """Shards of 0.3 were written without EXIF data: their photographs lie on their sides."""
    done = vernier_here("data", "prepare", "folder", str(phone / "classes"), str(tmp_path), "--format", "shards")
    assert done.code == 0, done.err
    assert "EXIF data" not in vernier_here("data", "verify", str(tmp_path)).err
    manifest = tmp_path / "train.shards.json"
    tree = json.loads(manifest.read_text())
    assert tree["restart_indexed"] == 1, "only the upright one of the eight is rewritten"
    for shard in tree["shards"]:
        del shard["keeps_exif"]  # as 0.3 wrote it
    manifest.write_text(json.dumps(tree))
    verified = vernier_here("data", "verify", str(tmp_path))
    assert "a version before 0.4 stored 1 JPEG without EXIF data" in verified.err
    assert vernier_here("data", "inspect", str(tmp_path)).out.count("without EXIF data") == 1


@needs_photographs
def test_the_stored_pixels_can_be_used_as_they_are(phone: Path) -> None:
    ignored = open_split(str(phone / "classes"), "train", exif=False)
    applied = open_split(str(phone / "classes"), "train")
    assert any(ignored.image(i).shape != applied.image(i).shape for i in range(8))


# ------------------------------------------------------------------------------------------------------ other layouts


def test_a_table_of_labels_is_named(tmp_path: Path, vernier_here: Runner) -> None:
    """images/ and a labels.csv, as from Kaggle: "one class (images)" was all that was said."""
    for number in range(6):
        write_image(tmp_path / "images" / f"{number}.png", (number, 0, 0))
    (tmp_path / "labels.csv").write_text("image,label\n0.png,cat\n")
    done = vernier_here("finetune", str(tmp_path), "--explain")
    assert done.code == 2
    assert "labels.csv is not read" in done.err
    assert "labels.csv is not read" in vernier_here("data", "inspect", str(tmp_path)).out


def test_images_beside_a_table_in_train_are_named(tmp_path: Path, vernier_here: Runner) -> None:
    """train/ with images and metadata.csv: "train has no images", with 480 of them in it."""
    for number in range(6):
        write_image(tmp_path / "train" / f"{number}.png", (number, 0, 0))
    (tmp_path / "train" / "metadata.csv").write_text("file_name,label\n0.png,cat\n")
    for command in (("finetune", str(tmp_path), "--explain"), ("data", "inspect", str(tmp_path))):
        done = vernier_here(*command)
        assert done.code == 2
        assert "metadata.csv is not read" in done.err


def test_tiny_imagenet_is_read_as_it_is_published(tmp_path: Path) -> None:
    """Its val/ has one folder of images and a file with their classes: "different classes: 200 and 1"."""
    for number, synset in enumerate(("n01443537", "n02123045")):
        for index in range(3):
            write_image(tmp_path / "train" / synset / "images" / f"{synset}_{index}.png", (index, number, 0))
        (tmp_path / "train" / synset / f"{synset}_boxes.txt").write_text("")
    for index in range(4):
        write_image(tmp_path / "val" / "images" / f"val_{index}.png", (index, 9, 9))
    lines = [f"val_{index}.png\tn0{2123045 if index % 2 else 1443537}\t0\t32\t44\t62\n" for index in range(4)]
    (tmp_path / "val" / "val_annotations.txt").write_text("".join(lines))
    train, val = (open_split(str(tmp_path), split) for split in ("train", "val"))
    assert val.classes == train.classes == ("n01443537", "n02123045")
    assert val.all_labels().tolist() == [0, 1, 0, 1]
    (tmp_path / "val" / "val_annotations.txt").write_text("val_0.png\tn00000000\n")
    with pytest.raises(ConfigError, match="val_annotations"):
        open_split(str(tmp_path), "val")


def test_masks_and_a_set_further_down_are_named(tmp_path: Path, vernier_here: Runner) -> None:
    """Penn-Fudan's pedestrians: "no images but .txt files in Annotation", and from above "one class (data)"."""
    inner = tmp_path / "data" / "PennFudanPed"
    for name in ("PNGImages", "PedMasks"):
        for number in range(3):
            write_image(inner / name / f"FudanPed0000{number}.png", (number, 0, 0))
    (inner / "Annotation").mkdir()
    (inner / "Annotation" / "FudanPed00001.txt").write_text("# Compatible with PASCAL Annotation Version 1.00\n")
    done = vernier_here("finetune", str(inner), "--explain")
    assert done.code == 2
    assert "PedMasks looks like masks" in done.err
    done = vernier_here("finetune", str(tmp_path), "--explain")
    assert (done.code, f"Did you mean {inner}?" in done.err) == (2, True)


# --------------------------------------------------------------------------------------------------------- bad images


def _class_folders(root: Path, damaged: int) -> Path:
    for number in range(24):
        write_image(root / "ab"[number % 2] / f"{number:02d}.jpg", (9 * number, 60, 90))
    for path in sorted((root / "a").iterdir())[:damaged]:
        path.write_bytes(path.read_bytes()[:-30])
    return root


def test_a_few_bad_images_do_not_end_a_fine_tuning(tmp_path: Path, vernier_here: Runner) -> None:
    """One truncated photograph of 164 ended it after 47 seconds of computing: 0.1 % of them is none."""
    done = vernier_here("finetune", str(_class_folders(tmp_path, 3)), "--weights", "none", "--explain")
    assert done.code == 0, done.err
    text = done.out + done.err
    assert text.count("00.jpg") == 1, "named once"
    assert "3 bad images of 24" in text


def test_a_photograph_with_boxes_that_cannot_be_read_is_one_bad_image(tmp_path: Path, vernier_here: Runner) -> None:
    """With YOLO's files, whose boxes are fractions of an image, it ended in a traceback."""
    for split, count in (("train", 8), ("val", 2)):
        for number in range(count):
            write_image(tmp_path / "images" / split / f"{number}.jpg", (9 * number, 60, 90))
            label = tmp_path / "labels" / split / f"{number}.txt"
            label.parent.mkdir(parents=True, exist_ok=True)
            label.write_text("0 0.5 0.5 0.4 0.4\n")
    (tmp_path / "classes.txt").write_text("thing\n")
    (tmp_path / "images" / "train" / "3.jpg").write_bytes(b"no picture")
    done = vernier_here("finetune", str(tmp_path), "--weights", "none", "--set", "model.width=16", "--explain")
    assert done.code == 0, done.err
    assert "1 bad image of 8, replaced by others in training" in done.out + done.err
    verified = vernier_here("data", "verify", str(tmp_path))
    assert (verified.code, "1 bad" in verified.out) == (1, True)


def test_too_many_bad_images_are_found_before_the_first_step(tmp_path: Path, vernier_here: Runner) -> None:
    folder = str(_class_folders(tmp_path, 4))
    done = vernier_here("finetune", folder, "--weights", "none", "--explain")
    assert done.code == 1
    assert "4 bad images of 24; the limit is 3. Nothing was trained" in done.err
    assert "--max-bad-images" in done.err
    assert vernier_here("finetune", folder, "--weights", "none", "--explain", "--max-bad-images", "4").code == 0
    verified = vernier_here("data", "verify", folder)
    assert (verified.code, "4 bad" in verified.out) == (1, True), "what the message names lists them"
