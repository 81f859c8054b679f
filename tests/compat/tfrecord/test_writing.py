"""TFRecord files as TensorFlow's systems read them, written from any source and read back."""

import io
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

pytest.importorskip("google_crc32c", reason="the extra 'tfrecord' is not installed")

from tests.conftest import Done
from vernier.compat.tfrecord import writing as tfrecord
from vernier.compat.tfrecord.reading import parse_example, read_records
from vernier.compat.tfrecord.writing import encode_example, file_names, pack_tfrecord
from vernier.data.shapes import ShapesSpec, make_shapes
from vernier.data.sources import open_boxes, open_split
from vernier.data.sources.base import EncodedSource
from vernier.errors import ConfigError

Vernier = Callable[..., Done]


def encoded(path: Path, split: str) -> EncodedSource:
    source = open_split(str(path), split)
    assert isinstance(source, EncodedSource)
    return source


def test_values_of_every_kind_are_read_back() -> None:
    features = {"a": [b"one", b"two"], "b": [1, -1, 2**40], "c": [0.5, -2.0], "empty": []}
    content = encode_example(features)
    read = parse_example(content)
    assert [content[slice(*span)] for span in read["a"]] == features["a"]
    assert (read["b"], read["c"], "empty" in read) == (features["b"], features["c"], False)


def test_a_classification_set_is_read_back_equal(shapes: Path, tmp_path: Path, vernier_here: Vernier) -> None:
    out = tmp_path / "records"
    done = vernier_here("data", "prepare", "folder", str(shapes), str(out), "--format", "tfrecord", "--files", "4", "2")
    assert done.code == 0, done.err
    assert "160 images" in done.out
    assert "in 4 files" in done.out
    files = sorted(p.relative_to(out).as_posix() for p in out.rglob("*") if p.is_file())
    assert files == [*file_names("train", 4, boxes=False), *file_names("val", 2, boxes=False)]
    assert files[0] == "train/train-00000-of-00004"
    assert files[-1] == "validation/validation-00001-of-00002"
    for split in ("train", "val"):
        before, after = encoded(shapes, split), encoded(out, split)
        assert after.classes == before.classes
        images = [sorted((int(s.labels[i]), s.read(i)) for i in range(len(s))) for s in (before, after)]
        assert images[0] == images[1]
    _, content = next(read_records(out / files[0]))
    features = parse_example(content)
    assert features["image/class/label"][0] >= 1
    assert (features["image/height"], features["image/channels"]) == ([32], [3])
    assert {"image/colorspace", "image/class/synset", "image/format", "image/filename"} <= features.keys()
    again = vernier_here("data", "prepare", "folder", str(shapes), str(out), "--format", "tfrecord")
    assert (again.code, "exists already" in again.err) == (2, True)


def test_boxes_are_read_back_equal(tmp_path: Path, vernier_here: Vernier) -> None:
    root = make_shapes(tmp_path / "coco", ShapesSpec(kind="detect", train=9, val=4, size_px=64))
    out = tmp_path / "records"
    arguments = [str(root), str(out), "--format", "tfrecord", "--files", "2", "1"]
    done = vernier_here("data", "prepare", "coco", *arguments)
    assert done.code == 0, done.err
    assert sorted(p.name for p in out.glob("*-of-*")) == [
        "train-00000-of-00002.tfrecord",
        "train-00001-of-00002.tfrecord",
        "val-00000-of-00001.tfrecord",
    ]
    for split in ("train", "val"):
        before, after = open_boxes(str(root), split), open_boxes(str(out), split)
        assert (after.category_ids, after.classes) == (before.category_ids, before.classes)
        assert len(after) == len(before)
        rows = []
        for source in (before, after):
            by_id = {source.image_id(i): source.boxes(i) for i in range(len(source))}
            rows.append([by_id[number] for number in sorted(by_id)])
        for one, other in zip(*rows, strict=True):
            np.testing.assert_allclose(other.ltrb, one.ltrb, atol=1e-4)
            np.testing.assert_allclose(other.areas, one.areas, rtol=1e-5)
            assert other.classes.tolist() == one.classes.tolist()
            assert other.crowd.tolist() == one.crowd.tolist()


def test_images_that_are_no_rgb_jpeg_are_converted_and_counted(tmp_path: Path, vernier_here: Vernier) -> None:
    """ImageNet has a PNG and 22 CMYK files, on which TensorFlow's decoder for JPEG would stop."""
    folder = tmp_path / "set" / "train" / "a"
    folder.mkdir(parents=True)
    picture = Image.new("RGB", (20, 10), (200, 40, 90))
    picture.save(folder / "x.png")
    picture.convert("CMYK").save(folder / "y.jpg")
    picture.save(folder / "z.jpg")
    packed = pack_tfrecord(encoded(tmp_path / "set", "train"), tmp_path / "out", "train", files=None, workers=1)
    assert (packed.samples, packed.files, packed.converted) == (3, 1, 2)
    source = encoded(tmp_path / "out", "train")
    for index in range(3):
        with Image.open(io.BytesIO(source.read(index))) as image:
            assert (image.format, image.mode, image.size) == ("JPEG", "RGB", (20, 10))
        np.testing.assert_allclose(source.image(index)[0, 0], (200, 40, 90), atol=12)


def test_an_interrupted_run_resumes_after_its_whole_files(
    shapes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, out, real = encoded(shapes, "train"), tmp_path / "out", tfrecord._imagenet_features
    calls: list[int] = []

    def failing(source: EncodedSource, index: int, image: object) -> object:
        calls.append(index)
        if len(calls) == 70:
            raise KeyboardInterrupt
        return real(source, index, image)  # type: ignore[arg-type]

    monkeypatch.setattr(tfrecord, "_imagenet_features", failing)
    with pytest.raises(KeyboardInterrupt):
        pack_tfrecord(source, out, "train", files=8, workers=1)
    whole = sorted(out.rglob("train-*"))
    assert 1 <= len(whole) < 8
    monkeypatch.setattr(tfrecord, "_imagenet_features", real)
    with pytest.raises(ConfigError, match="another source or other settings"):
        pack_tfrecord(source, out, "train", files=5, workers=1)
    packed = pack_tfrecord(source, out, "train", files=8, workers=1)
    assert packed.continued_after == 20 * len(whole)
    straight = pack_tfrecord(source, tmp_path / "straight", "train", files=8, workers=2)
    assert packed.bytes == straight.bytes
    for path in (tmp_path / "straight").rglob("train-*"):
        assert (out / "train" / path.name).read_bytes() == path.read_bytes()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["folder", "{shapes}", "{out}", "--files", "2", "2"], "--files 2 2 is for --format tfrecord, not"),
        (["folder", "{shapes}", "{out}", "--format", "tfrecord", "--files", "0", "2"], "it must be 1 or more"),
        (["coco", "{shapes}/train", "{shapes}", "{out}", "--format", "tfrecord"], "reads COCO from a folder"),
        (["coco", "{shapes}/train", "{out}", "--format", "tfrecord"], "has no images with boxes"),
    ],
)
def test_wrong_input_is_refused(
    arguments: list[str], message: str, shapes: Path, tmp_path: Path, vernier_here: Vernier
) -> None:
    done = vernier_here("data", "prepare", *(a.format(shapes=shapes, out=tmp_path / "out") for a in arguments))
    assert (done.code, message in done.err) == (2, True), done.err
    assert not (tmp_path / "out").exists()


def test_an_image_that_cannot_be_read_is_named(tmp_path: Path, vernier_here: Vernier) -> None:
    folder = tmp_path / "set" / "train" / "a"
    folder.mkdir(parents=True)
    (folder / "bad.jpg").write_bytes(b"not an image")
    out = tmp_path / "out"
    done = vernier_here("data", "prepare", "folder", str(tmp_path / "set"), str(out), "--format", "tfrecord", "--json")
    assert done.code == 1
    assert "bad.jpg cannot be read" in done.err


def test_habanas_names_of_a_subset_are_recognised(shapes: Path, tmp_path: Path) -> None:
    """mini_imagenet: imagenet_train_subset/imagenet_train_subset-00000-of-01024."""
    for split, name in (("train", "imagenet_train_subset"), ("val", "imagenet_val_subset")):
        pack_tfrecord(encoded(shapes, split), tmp_path / "records", split, files=2, workers=1)
        folder = tmp_path / "mini" / name
        folder.mkdir(parents=True)
        for number, path in enumerate(sorted((tmp_path / "records").rglob(f"{split}*-of-*"))):
            path.replace(folder / f"{name}-{number:05d}-of-01024")
    assert [len(open_split(str(tmp_path / "mini"), split)) for split in ("train", "val")] == [160, 50]
