"""TFRecord files plug into the core as a layout of data sets."""

from importlib.metadata import entry_points
from pathlib import Path

import pytest

from vernier.compat.tfrecord.layout import LAYOUT


def test_the_core_finds_the_layout_through_its_entry_point() -> None:
    (entry,) = entry_points(group="vernier.data_layouts", name="tfrecord")
    assert entry.load() is LAYOUT
    assert LAYOUT.files["imagenet"] == {"train": 1024, "val": 128}


@pytest.mark.parametrize("split", ["train", "val", "test"])
def test_a_folder_without_records_is_in_another_layout(tmp_path: Path, split: str) -> None:
    (tmp_path / "train").mkdir()
    assert LAYOUT.open_classes(tmp_path, split) is None
    assert LAYOUT.open_boxes(tmp_path, split) is None
