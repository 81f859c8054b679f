"""YOLO's text files, and the names of their classes."""

from pathlib import Path

import pytest
from PIL import Image

from tests.data.sources.small_sets import write_unsplit
from vernier.data.decoding.decode import BadImage
from vernier.data.sources import open_boxes
from vernier.data.sources.boxes.yolo import read_class_names
from vernier.errors import ConfigError


def test_both_layouts_of_splits_are_read(tmp_path: Path) -> None:
    for images, labels in (("images/train", "labels/train"), ("val/images", "val/labels")):
        for folder in (images, labels):
            (tmp_path / folder).mkdir(parents=True)
        for name in ("a", "b"):
            Image.new("RGB", (200, 100)).save(tmp_path / images / f"{name}.jpg")
        (tmp_path / labels / "a.txt").write_text("1 0.5 0.5 0.5 0.2\n0 0.1 0.1 0 0.1\n")
    (tmp_path / "data.yaml").write_text("path: .\nnames:\n  0: cat  # small\n  1: 'dog'\nnc: 2\n")
    train, val = open_boxes(str(tmp_path), "train"), open_boxes(str(tmp_path), "val")
    assert train.classes == ("cat", "dog")
    assert (len(train), len(val)) == (1, 2)
    assert train.boxes(0).ltrb.tolist() == [[50.0, 40.0, 150.0, 60.0]]
    assert train.boxes(0).classes.tolist() == [1]
    assert "1 box without area inside the image left out" in train.notes
    assert len(val.boxes(1).ltrb) == 0
    (tmp_path / "data.yaml").write_text("names: [cat]\n")
    with pytest.raises(ConfigError, match="class 1, but there are 1"):
        open_boxes(str(tmp_path), "train")


def test_outlines_become_boxes_and_odd_lines_are_refused(tmp_path: Path) -> None:
    write_unsplit(tmp_path, "yolo", 2)
    (tmp_path / "labels/0.txt").write_text("0 0.25 0.5 0.5 0.1 0.75 0.9\n")
    (tmp_path / "labels/1.txt").write_text("0 0.25 0.5 0.5 0.2 0.99\n")
    sources = [open_boxes(str(tmp_path), s) for s in ("train", "val")]
    boxes = {s.name(0): s.boxes(0).ltrb.round(6).tolist() for s in sources}
    assert boxes == {"0.jpg": [[10, 3, 30, 27]], "1.jpg": [[0, 12, 20, 18]]}
    (tmp_path / "labels/1.txt").write_text("0 0.25 0.5 0.5\n")
    with pytest.raises(ConfigError, match=r"1\.txt: a line is not 'class x y width height': 4 values"):
        open_boxes(str(tmp_path), "train")


@pytest.mark.parametrize(
    "text",
    [
        "names: [cat, big dog, 'no']\n",
        "nc: 3\nnames: [cat,\n  big dog, no]\n",
        "names: {0: cat, 1: big dog, 2: no}\n",
        "names: {1: big dog, 0: cat,\n  2: no}\nnc: 3\n",
        "names:\n  0: cat  # small\n  1: 'big dog'\n  2: no\n",
        "names:\n- cat\n- big dog\n- no\npath: ../set\n",
        "\ufeffnames: [cat, big dog, no]\n",
        '"names" : &all [\'cat\', "big dog", !!str no]\nmore: *all\n',
        "names:\n  - cat\n  - >-\n    big\n    dog\n  - 'no'\n",
    ],
)
def test_class_names_are_read_from_every_form_of_yaml(tmp_path: Path, text: str) -> None:
    (tmp_path / "data.yaml").write_text(text)
    assert read_class_names(tmp_path) == ("cat", "big dog", "no")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("names: [cat, dog\npath: .\n", "is not a readable YAML file"),
        ("names: {1: cat, 2: dog}\n", "must number the classes from 0 to 1"),
        ("names: cat\n", "must be a list of class names"),
        ("names: [[cat]]\n", "must be a list of class names"),
        ("[" * 5000, "is not a readable YAML file"),
        ("path: .\n", "neither classes.txt nor a .yaml or .yml file"),
    ],
)
def test_a_yaml_file_without_usable_names_is_one_sentence(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "data.yaml").write_text(text)
    with pytest.raises(ConfigError, match=message) as error:
        read_class_names(tmp_path)
    assert "\n" not in str(error.value)


def test_classes_txt_comes_before_a_yaml_file(tmp_path: Path) -> None:
    (tmp_path / "data.yaml").write_text("names: [cat]\n")
    (tmp_path / "classes.txt").write_text("dog\n\nbird\n")
    assert read_class_names(tmp_path) == ("dog", "bird")


def test_a_yml_file_will_do_and_hidden_files_do_not(tmp_path: Path) -> None:
    (tmp_path / "._data.yaml").write_bytes(b"\0\5\x16\7")
    (tmp_path / "data.yml").write_text("names: ['light, red', 'a: b', '#c']\n")
    assert read_class_names(tmp_path) == ("light, red", "a: b", "#c")


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("classes.txt", b"caf\xe9\n", r"classes\.txt is not UTF-8 text: byte 0xe9 at position 3"),
        ("labels/0.txt", b"\x80\x00\xff", r"labels/0\.txt is not UTF-8 text"),
        ("labels/0.txt", b"0 0.5 0.5 wide 0.2", r"labels/0\.txt: a line is not"),
        ("labels/0.txt", b"1e3 0.5 0.5 0.1 0.2", r"labels/0\.txt: a line is not"),
    ],
)
def test_a_damaged_file_is_one_sentence(tmp_path: Path, file: str, content: bytes, message: str) -> None:
    write_unsplit(tmp_path, "yolo", 2)
    (tmp_path / file).write_bytes(content)
    with pytest.raises(ConfigError, match=message) as error:
        open_boxes(str(tmp_path), "train")
    assert "\n" not in str(error.value)


def test_a_byte_order_mark_is_no_part_of_a_name(tmp_path: Path) -> None:
    (tmp_path / "classes.txt").write_bytes("\ufeffcat\ndog\n".encode())
    assert read_class_names(tmp_path) == ("cat", "dog")


def test_hidden_files_are_no_images(tmp_path: Path) -> None:
    write_unsplit(tmp_path, "yolo", 4)
    (tmp_path / "images/._0.jpg").write_bytes(b"\0\5\x16\7")
    assert len(open_boxes(str(tmp_path), "train")) + len(open_boxes(str(tmp_path), "val")) == 4


def test_an_image_that_cannot_be_read_does_not_keep_the_others_from_being_used(tmp_path: Path) -> None:
    """It counts against data.max_bad_images when it is used, like a bad image of any other set."""
    write_unsplit(tmp_path, "yolo", 3)
    (tmp_path / "images/0.jpg").write_bytes(b"no image")
    source = open_boxes(str(tmp_path), "train", whole=True)
    assert len(source) == 3
    with pytest.raises(BadImage):
        source.image(0)
    assert source.size(1) is not None
