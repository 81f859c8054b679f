"""A layout that plugs in is opened where no built-in one fits."""

from pathlib import Path

import pytest

from vernier.data.sources import open_split, plugged
from vernier.data.sources.base import BoxSource, Source
from vernier.data.sources.boxes.layouts import open_folder
from vernier.data.sources.plugged import DataLayout
from vernier.data.sources.synthetic import SyntheticBoxSource, SyntheticSource


def _classes(root: Path, split: str) -> Source | None:
    return SyntheticSource(split) if (root / "mine.bin").exists() else None


def _boxes(root: Path, split: str) -> BoxSource | None:
    return SyntheticBoxSource(split) if (root / "mine.bin").exists() else None


@pytest.fixture(autouse=True)
def mine(monkeypatch: pytest.MonkeyPatch) -> None:
    layout = DataLayout(open_classes=_classes, open_boxes=_boxes, write=lambda *_, **__: None)
    monkeypatch.setattr(plugged, "load_group", lambda group, kind: {"mine": layout})


def test_a_folder_in_the_layout_of_another_package_is_opened(tmp_path: Path) -> None:
    (tmp_path / "mine.bin").touch()
    assert isinstance(open_split(str(tmp_path), "train"), SyntheticSource)
    assert isinstance(open_folder(tmp_path, "val", 0.1), SyntheticBoxSource)


def test_a_folder_in_no_layout_is_none(tmp_path: Path) -> None:
    assert plugged.open_plugged_classes(tmp_path, "train") is None
    assert plugged.open_plugged_boxes(tmp_path, "train") is None
