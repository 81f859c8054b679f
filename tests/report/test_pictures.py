"""Boxes on an image, and the contact sheet of classes."""

from pathlib import Path

import numpy as np
from PIL import Image

from vernier.records.predictions import ScoredClass
from vernier.report.pictures import COLOURS, class_sheet, draw_boxes


def _image(path: Path, width: int = 200, height: int = 100) -> Path:
    Image.new("RGB", (width, height), (255, 255, 255)).save(path)
    return path


def test_a_box_has_the_colour_of_its_class(tmp_path: Path) -> None:
    source = _image(tmp_path / "in.png")
    objects = [ScoredClass(class_name="dog", score=0.8, box=(40.0, 40.0, 160.0, 90.0))]
    draw_boxes(source, objects, ("cat", "dog"), tmp_path / "new" / "out.png")
    pixels = np.asarray(Image.open(tmp_path / "new" / "out.png"))
    assert pixels.shape == (100, 200, 3)
    assert tuple(pixels[89, 100]) == COLOURS[1]
    assert tuple(pixels[70, 100]) == (255, 255, 255)


def test_a_sheet_has_room_for_every_image(tmp_path: Path) -> None:
    source = _image(tmp_path / "in.png")
    guesses = [ScoredClass(class_name="a class with a very long name that has to be cut" * 2, score=0.5)]
    class_sheet([(source, guesses)] * 4, tmp_path / "one.png")
    class_sheet([(source, guesses)] * 2, tmp_path / "two.png")
    (wide, tall), (narrow, low) = (Image.open(tmp_path / f"{n}.png").size for n in ("one", "two"))
    assert wide > narrow
    assert tall > low
