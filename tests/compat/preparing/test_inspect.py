"""Describing and drawing a data set, through the command line."""

from collections.abc import Callable
from pathlib import Path

from PIL import Image

from tests.conftest import Done
from vernier.compat.preparing.inspect import describe
from vernier.data.shapes import ShapesSpec, make_shapes
from vernier.data.sources import open_split
from vernier.records.codec import encode


def test_a_contact_sheet_is_drawn(vernier_here: Callable[..., Done], tmp_path: Path) -> None:
    root = make_shapes(tmp_path / "set", ShapesSpec(kind="detect", train=12, val=3, size_px=48))
    sheet = tmp_path / "sheet.png"
    done = vernier_here("data", "inspect", str(root), "--sheet", str(sheet))
    assert done.code == 0, done.err
    assert "boxes" in done.out
    with Image.open(sheet) as image:
        assert image.width > 1000


def test_a_split_is_described_by_counts_balance_and_sizes(tmp_path: Path) -> None:
    for name, size in (("a/1", (30, 20)), ("a/2", (30, 20)), ("a/3", (50, 20)), ("b/1", (10, 40))):
        path = tmp_path / "train" / f"{name}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", size).save(path)
    facts = describe({"train": open_split(str(tmp_path), "train")})["train"]
    assert encode(facts) == {
        "images": 4,
        "classes": 2,
        "per_class": {"fewest": 1, "median": 2.0, "most": 3},
        "rarest": ["b", "a"],
        "median_size": "30 x 20",
        "smallest_side_px": 10,
        "largest_side_px": 50,
        "sizes_from": 4,
    }
