"""Pascal VOC's xml files: a real set, and xml files beside the images."""

from collections.abc import Callable
from pathlib import Path

from tests.data.sources.small_sets import all_boxes_inside, voc_xml, write_images, write_unsplit
from vernier.data.decoding.decode import read_size
from vernier.data.sources import EncodedSource, open_boxes


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
