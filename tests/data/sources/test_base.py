"""What all sources share: fingerprints, names in one byte string, and boxes."""

from pathlib import Path

import pytest

from vernier.data.sources import base, open_split
from vernier.data.sources.base import Boxes, BoxSource, DataLayout, Names, Source, fingerprint_of
from vernier.data.sources.boxes.layouts import open_folder
from vernier.data.sources.synthetic import SyntheticBoxSource, SyntheticSource


def test_names_survive_being_joined() -> None:
    names = Names.of(["a/1.jpg", "", "b/\udcff.png"])
    assert (len(names), [names[i] for i in range(3)]) == (3, ["a/1.jpg", "", "b/\udcff.png"])


def test_a_fingerprint_depends_on_where_each_part_ends() -> None:
    assert fingerprint_of(b"ab", b"c") == fingerprint_of(b"ab", b"c")
    assert len({fingerprint_of(b"ab", b"c"), fingerprint_of(b"a", b"bc"), fingerprint_of(b"abc")}) == 3


def test_an_image_without_objects_has_empty_boxes() -> None:
    boxes = Boxes.empty()
    assert (boxes.ltrb.shape, len(boxes.classes), len(boxes.crowd), len(boxes.areas)) == ((0, 4), 0, 0, 0)


def _classes(root: Path, split: str) -> Source | None:
    return SyntheticSource(split) if (root / "mine.bin").exists() else None


def _boxes(root: Path, split: str) -> BoxSource | None:
    return SyntheticBoxSource(split) if (root / "mine.bin").exists() else None


@pytest.fixture(autouse=True)
def mine(monkeypatch: pytest.MonkeyPatch) -> None:
    layout = DataLayout(open_classes=_classes, open_boxes=_boxes, write=lambda *_, **__: None)
    monkeypatch.setattr(base, "load_group", lambda group, kind: {"mine": layout})


def test_a_folder_in_the_layout_of_another_package_is_opened(tmp_path: Path) -> None:
    (tmp_path / "mine.bin").touch()
    assert isinstance(open_split(str(tmp_path), "train"), SyntheticSource)
    assert isinstance(open_folder(tmp_path, "val", 0.1), SyntheticBoxSource)


def test_a_folder_in_no_layout_is_none(tmp_path: Path) -> None:
    assert [base.open_plugged(tmp_path, "train", boxes=boxes) for boxes in (False, True)] == [None, None]
