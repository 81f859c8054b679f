"""What sets can be made, and what the messages say of others."""

from typing import Any

import pytest

from vernier.data.shapes import ShapesSpec


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"kind": "segment"}, "'segment'; use 'classify' or 'detect'"),
        ({"train": 0}, "train is 0 images; use 1 or more"),
        ({"val": -3}, "val is -3"),
        ({"train": 2.5}, "whole number"),
        ({"size_px": 15}, "size_px is 15; use 16 to 1024"),
        ({"size_px": 1025}, "size_px is 1025"),
        ({"seed": -1}, "seed is -1; use 0 or more"),
    ],
)
def test_impossible_specs_say_what_would_work(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ShapesSpec(**wrong)


def test_detect_images_are_larger_by_default() -> None:
    assert (ShapesSpec().size_px, ShapesSpec(kind="detect").size_px) == (64, 160)


def test_the_names_of_files_count_within_each_class() -> None:
    names = [ShapesSpec().file_name(index) for index in (0, 3, 13)]
    assert names == ["arrow/arrow_00001.jpg", "disc/disc_00001.jpg", "disc/disc_00002.jpg"]
    assert ShapesSpec(kind="detect").file_name(13) == "000014.jpg"
