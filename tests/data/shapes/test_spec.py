"""The size of a set's images, and the names of its files."""

from vernier.data.shapes import ShapesSpec


def test_detect_images_are_larger_by_default() -> None:
    assert (ShapesSpec().size_px, ShapesSpec(kind="detect").size_px) == (64, 160)


def test_the_names_of_files_count_within_each_class() -> None:
    names = [ShapesSpec().file_name(index) for index in (0, 3, 13)]
    assert names == ["arrow/arrow_00001.jpg", "disc/disc_00001.jpg", "disc/disc_00002.jpg"]
    assert ShapesSpec(kind="detect").file_name(13) == "000014.jpg"
