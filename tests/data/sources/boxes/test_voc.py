"""Pascal VOC's xml files: a real set, and xml files beside the images."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.data.sources.small_sets import all_boxes_inside, voc_xml, write_images, write_unsplit
from vernier.data.decoding.decode import read_size
from vernier.data.sources import EncodedSource, open_boxes
from vernier.data.sources.boxes import voc
from vernier.errors import ConfigError


def test_real_voc(real_data: Callable[[str], Path]) -> None:
    root = str(real_data("bccd"))
    train, val = open_boxes(root, "train"), open_boxes(root, "val")
    assert (len(train), len(val)) == (205, 87)
    assert train.classes == val.classes == ("Platelets", "RBC", "WBC")
    assert all_boxes_inside(train)
    test = open_boxes(root, "test")
    assert (len(test), test.classes, test.category_ids) == (72, train.classes, (1, 2, 3))
    names = [{Path(s.describe(i)).name for i in range(len(s))} for s in (train, val, test)]
    assert len(set.union(*names)) == 364
    assert isinstance(test, EncodedSource)
    assert test.size(0) == read_size(test.read(0))


def test_xml_files_beside_the_images_of_each_split(tmp_path: Path) -> None:
    for split, count in (("train", 3), ("valid", 2)):
        write_images(tmp_path / split, count)
        for i in range(count):
            (tmp_path / split / f"{i}.xml").write_text(voc_xml(size=False))
    train, val = open_boxes(str(tmp_path), "train"), open_boxes(str(tmp_path), "val")
    assert (len(train), len(val), train.classes, train.size(0)) == (3, 2, ("cat",), None)
    assert abs(int(train.image(1)[0, 0, 0]) - 12) < 4


def test_pixels_count_from_one_and_difficult_objects_are_crowds(tmp_path: Path) -> None:
    write_unsplit(tmp_path, "voc", 4)
    box = "<bndbox><xmin>1</xmin><ymin>2</ymin><xmax>20</xmax><ymax>30</ymax></bndbox>"
    text = f"<annotation><object><name>dog</name><difficult>1</difficult>{box}</object></annotation>"
    for i in range(4):
        (tmp_path / f"Annotations/{i}.xml").write_text(text)
    boxes = open_boxes(str(tmp_path), "train").boxes(0)
    assert boxes.ltrb.tolist() == [[0, 1, 20, 30]]
    assert boxes.crowd.tolist() == [True]


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ("<xmin>5</xmin>", "", "a box has no finite <xmin>"),
        ("<ymax>20</ymax>", "<ymax>inf</ymax>", "a box has no finite <ymax>"),
        ("<ymax>20</ymax>", "<ymax>low</ymax>", "could not convert string to float: 'low'"),
        ("<width>40</width>", "<width>inf</width>", "infinity"),
        ("<width>40</width>", "<width>1e30</width>", "out of range"),
        ("<name>cat</name>", "<name> </name>", "an object has no <name>"),
        ("<annotation>", "<?xml version='1.0' encoding='klingon'?><annotation>", "unknown encoding"),
        ("</annotation>", "", "no element found"),
    ],
)
def test_a_wrong_annotation_is_one_sentence_with_the_file(
    tmp_path: Path, before: str, after: str, message: str
) -> None:
    write_unsplit(tmp_path, "voc", 3)
    (tmp_path / "Annotations/1.xml").write_text(voc_xml().replace(before, after))
    with pytest.raises(ConfigError, match=rf"Cannot read the annotation .*1\.xml: .*{message}") as error:
        open_boxes(str(tmp_path), "train")
    assert "\n" not in str(error.value)


def test_a_list_that_is_not_utf8_is_one_sentence(tmp_path: Path) -> None:
    write_unsplit(tmp_path, "voc", 2)
    (tmp_path / "ImageSets/Main").mkdir(parents=True)
    (tmp_path / "ImageSets/Main/train.txt").write_bytes("0\ncafé\n".encode("latin-1"))
    with pytest.raises(ConfigError, match=r"train\.txt is not UTF-8 text: byte 0xe9 at position 5\. Save it as UTF-8"):
        open_boxes(str(tmp_path), "train")


def test_a_folder_called_annots_is_recognised_and_hidden_files_are_not_annotations(tmp_path: Path) -> None:
    write_unsplit(tmp_path, "voc", 4)
    (tmp_path / "Annotations").rename(tmp_path / "annots")
    (tmp_path / "annots/._1.xml").write_bytes(b"\0\5\x16\7")
    assert len(open_boxes(str(tmp_path), "train")) + len(open_boxes(str(tmp_path), "val")) == 4


def test_a_file_of_entities_is_a_bad_file_and_does_not_grow(tmp_path: Path) -> None:
    """A thousand bytes that would become gigabytes, and a file of this machine in place of a class name."""
    laughs = "".join(f'<!ENTITY l{i} "{f"&l{i - 1};" * 10}">' for i in range(1, 12))
    for head, name in (
        (f'<!DOCTYPE a [<!ENTITY l0 "ha">{laughs}]>', "&l11;"),
        (f'<!DOCTYPE a [<!ENTITY f SYSTEM "file://{tmp_path}/secret">]>', "&f;"),
    ):
        (tmp_path / "secret").write_text("secret")
        path = tmp_path / "a.xml"
        path.write_text(f"{head}<annotation><object><name>{name}</name></object></annotation>")
        with pytest.raises(ConfigError, match="declares entities"):
            voc._parse(path)
