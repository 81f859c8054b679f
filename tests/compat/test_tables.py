"""Tables of labels next to images, as people and other tools have them."""

import csv
import io
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.conftest import Done, only_run
from tests.refusals import config_error_of
from vernier.compat.tables import TableSource
from vernier.data.sources import open_boxes, open_split
from vernier.data.sources.opening import recognise_folder
from vernier.errors import ConfigError, NoSuchSplit

Runner = Callable[..., Done]
LABELS = {f"{n}.png": ("cat", "dog", "fox")[n % 3] for n in range(24)}


def _write(path: Path, header: list[str], rows: list[list[object]], delimiter: str = ",") -> None:
    out = io.StringIO()
    csv.writer(out, delimiter=delimiter).writerows([header, *rows])
    path.write_text(out.getvalue(), encoding="utf-8-sig")


def _images(folder: Path, names: list[str]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for number, name in enumerate(names):
        Image.new("RGB", (40, 30), (number, 100, 50)).save(folder / name)


def test_labels_csv_is_divided_by_class_and_by_name(tmp_path: Path) -> None:
    _images(tmp_path / "images", list(LABELS))
    _write(tmp_path / "labels.csv", ["image", "label"], [[n, c] for n, c in LABELS.items()])
    train, val = (open_split(str(tmp_path), split, val_share=0.25) for split in ("train", "val"))
    assert (train.classes, len(train), len(val)) == (("cat", "dog", "fox"), 18, 6)
    assert np.bincount(val.all_labels()).tolist() == [2, 2, 2]
    for source in (train, val):
        for index in range(len(source)):
            assert LABELS[Path(source.describe(index)).name] == source.classes[source.labels[index]]
            assert source.image(index).shape == (30, 40, 3)
    assert not {train.name(i) for i in range(18)} & {val.name(i) for i in range(6)}
    assert recognise_folder(str(tmp_path)).layout == "labels from labels.csv"
    with pytest.raises(NoSuchSplit):
        open_split(str(tmp_path), "test")


@pytest.mark.parametrize("form", ["split column", "metadata.csv", "train.csv", "semicolons"])
def test_tables_with_splits(tmp_path: Path, form: str) -> None:
    rows = list(LABELS.items())
    if form in ("split column", "semicolons"):
        _images(tmp_path / "photos", list(LABELS))
        table = [[f"photos/{n}", c, "validation" if i >= 18 else "train"] for i, (n, c) in enumerate(rows)]
        _write(tmp_path / "all.csv", ["Path", "Class", "Set"], table, ";" if form == "semicolons" else ",")
    elif form == "metadata.csv":  # Hugging Face's imagefolder
        for split, part in (("train", rows[:18]), ("test", rows[18:])):
            _images(tmp_path / split, [n for n, _ in part])
            _write(tmp_path / split / "metadata.csv", ["file_name", "label"], [list(each) for each in part])
    else:  # Kaggle: names without their ending
        for split, part in (("train", rows[:18]), ("val", rows[18:])):
            _images(tmp_path / split, [n for n, _ in part])
            _write(tmp_path / f"{split}.csv", ["id", "breed"], [[Path(n).stem, c] for n, c in part])
    train, rest = open_split(str(tmp_path), "train"), open_split(str(tmp_path), "test" if "meta" in form else "val")
    assert (len(train), len(rest), rest.classes) == (18, 6, ("cat", "dog", "fox"))


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([["0.png", "cat"], ["missing.png", "cat"]], "labels.csv, line 3: there is no image 'missing.png'"),
        ([["0.png", "cat"], ["1.png", ""]], "labels.csv, line 3: the column label is empty"),
        ([["0.png", "cat"], ["0.png", "dog"]], "labels.csv, line 3: images/0.png is dog here and cat in another line"),
        ([["0.png", "cat"], ["1.png", "dog", "x"]], "labels.csv, line 3: 3 values for 2 columns"),
        ([["0.png", "cat"], ["../../etc/passwd", "dog"]], "names a file outside its folder"),
        ([["0.png", "cat"], ["", "dog"]], "line 3: the column image is empty"),
    ],
)
def test_a_wrong_row_is_named(tmp_path: Path, rows: list[list[object]], message: str) -> None:
    _images(tmp_path / "images", ["0.png", "1.png"])
    _write(tmp_path / "labels.csv", ["image", "label"], rows)
    with pytest.raises(ConfigError, match=message.replace("(", r"\(")):
        open_split(str(tmp_path), "train")


def test_an_unknown_split_and_an_unknown_header_are_named(tmp_path: Path) -> None:
    _images(tmp_path / "images", ["0.png", "1.png"])
    _write(tmp_path / "labels.csv", ["image", "label", "split"], [["0.png", "a", "train"], ["1.png", "b", "later"]])
    with pytest.raises(ConfigError, match="line 3: the split 'later'"):
        open_split(str(tmp_path), "train")
    _write(tmp_path / "labels.csv", ["image", "label", "split"], [["0.png", "a", "train"], ["1.png", "b", "train"]])
    with pytest.raises(NoSuchSplit, match="no image of the val split"):
        open_split(str(tmp_path), "val")
    _images(tmp_path / "images", list(LABELS))
    _write(tmp_path / "labels.csv", ["photo", "kind"], [["0.png", "a"]])
    assert "a header with columns" in str(config_error_of("finetune", str(tmp_path), "--explain"))


# ORIENTATIONS: what a camera stores for a photograph that is 40 wide and 30 high once it is upright.
STORED = {
    1: lambda im: im,
    2: lambda im: im.transpose(Image.Transpose.FLIP_LEFT_RIGHT),
    3: lambda im: im.transpose(Image.Transpose.ROTATE_180),
    4: lambda im: im.transpose(Image.Transpose.FLIP_TOP_BOTTOM),
    5: lambda im: im.transpose(Image.Transpose.TRANSPOSE),
    6: lambda im: im.transpose(Image.Transpose.ROTATE_90),
    7: lambda im: im.transpose(Image.Transpose.TRANSVERSE),
    8: lambda im: im.transpose(Image.Transpose.ROTATE_270),
}


@pytest.mark.parametrize("form", ["open-images", "tensorflow"])
def test_boxes_of_photographs_in_eight_orientations(tmp_path: Path, form: str) -> None:
    rows: list[list[object]] = []
    (tmp_path / "train").mkdir()
    for orientation, stored in STORED.items():
        upright = Image.new("RGB", (40, 30))
        upright.paste((255, 0, 0), (4, 6, 20, 15))
        exif = Image.Exif()
        exif[0x0112] = orientation
        stored(upright).save(tmp_path / "train" / f"{orientation}.jpg", quality=98, subsampling=0, exif=exif)
        if form == "open-images":
            rows.append([orientation, "/m/01", 0.1, 0.5, 0.2, 0.5, 0])
        else:
            rows.append([f"{orientation}.jpg", 40, 30, "red", 4, 6, 20, 15])
    if form == "open-images":
        header = ["ImageID", "LabelName", "XMin", "XMax", "YMin", "YMax", "IsGroupOf"]
        _write(tmp_path / "train-annotations-bbox.csv", header, rows)
        (tmp_path / "class-descriptions-boxable.csv").write_text("/m/01,red\n/m/02,blue\n")
    else:
        header = ["filename", "width", "height", "class", "xmin", "ymin", "xmax", "ymax"]
        _write(tmp_path / "train_labels.csv", header, rows)
    source = open_boxes(str(tmp_path), "train")
    assert (source.classes, len(source)) == (("red",), 8)
    for index in range(8):
        image, boxes = source.image(index), source.boxes(index)
        source.check_size(index, image.shape[1], image.shape[0])
        left, top, right, bottom = boxes.ltrb[0].astype(int)
        assert (left, top, right, bottom) == (4, 6, 20, 15)
        assert image[top + 2 : bottom - 2, left + 2 : right - 2, 0].min() > 200
        assert image[:4, :, 0].max() < 60


def test_boxes_without_splits_are_divided_and_wrong_ones_named(tmp_path: Path) -> None:
    _images(tmp_path / "images", list(LABELS))
    header = ["filename", "class", "xmin", "ymin", "xmax", "ymax"]
    rows: list[list[object]] = [[n, c, 1, 2, 30, 20] for n, c in LABELS.items()]
    _write(tmp_path / "annotations.csv", header, rows)
    train, val = (open_boxes(str(tmp_path), split, val_share=0.25) for split in ("train", "val"))
    assert (len(train), len(val), train.classes) == (18, 6, ("cat", "dog", "fox"))
    assert recognise_folder(str(tmp_path)).layout == "CSV"
    _write(tmp_path / "annotations.csv", header, [*rows, ["1.png", "cat", "left", 2, 3, 4]])
    with pytest.raises(ConfigError, match=r"line 26: could not convert string to float: 'left'"):
        open_boxes(str(tmp_path), "train")


def test_a_table_trains_evaluates_and_is_inspected(
    vernier_here: Runner, shapes: Path, tiny: list[str], tmp_path: Path
) -> None:
    rows = [[str(p.relative_to(shapes / "train")), p.parent.name] for p in sorted((shapes / "train").rglob("*.png"))]
    rows = rows or [[str(p.relative_to(shapes / "train")), p.parent.name] for p in (shapes / "train").rglob("*.jpg")]
    root = tmp_path / "set"
    root.mkdir()
    (root / "images").symlink_to(shapes / "train")
    _write(root / "labels.csv", ["image", "label"], rows)  # type: ignore[arg-type]
    assert vernier_here("train", *tiny, "--data", str(root), "--steps", "2").code == 0
    done = vernier_here("eval", str(only_run(tmp_path / "runs")))
    assert done.code == 0, done.err
    assert "labels from labels.csv" in done.out
    assert "labels from labels.csv" in vernier_here("data", "inspect", str(root)).out
    assert TableSource(root, "train").undivided
