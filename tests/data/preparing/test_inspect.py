"""Describing and drawing a data set, through the command line."""

from collections.abc import Callable
from pathlib import Path

from PIL import Image

from tests.conftest import Done
from vernier.data.shapes import ShapesSpec, make_shapes


def test_a_contact_sheet_is_drawn(vernier_here: Callable[..., Done], tmp_path: Path) -> None:
    root = make_shapes(tmp_path / "set", ShapesSpec(kind="detect", train=12, val=3, size_px=48))
    sheet = tmp_path / "sheet.png"
    done = vernier_here("data", "inspect", str(root), "--sheet", str(sheet), "--compare-backends")
    assert done.code == 0, done.err
    assert "boxes" in done.out
    assert "backend pillow" in done.out
    with Image.open(sheet) as image:
        assert image.width > 1000
