"""Predictions for a person (lines) and for a program (predictions.json)."""

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from vernier.errors import ConfigError
from vernier.records.predictions import ImagePrediction, ScoredClass
from vernier.report.predictions import _COLOURS, SHOWN_LINES, PredictionWriter, _class_sheet, _draw_boxes

CLASSES = [ScoredClass(class_name="cat", score=0.9), ScoredClass(class_name="dog", score=0.1)]
OBJECTS = [ScoredClass(class_name="cat", score=score, box=(2.0, 3.0, 20.0, 25.0)) for score in (0.9, 0.2)]


def prediction(path: Path, scored: list[ScoredClass], error: str | None = None) -> ImagePrediction:
    return ImagePrediction(image=str(path), predictions=tuple(scored), error=error)


@pytest.fixture
def image(tmp_path: Path) -> Path:
    path = tmp_path / "photo.png"
    Image.new("RGB", (32, 32), (200, 30, 30)).save(path)
    return path


def test_objects_are_drawn_and_those_with_low_scores_are_only_in_the_file(image: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    writer = PredictionWriter(("cat", "dog"), "run", out, min_score=0.5)
    writer.add(prediction(image, OBJECTS))
    writer.add(prediction(image, OBJECTS))  # another folder may have the same name
    writer.close()
    document = json.loads((out / "predictions.json").read_text())
    assert document["images"][0]["found"] == [
        {"class": "cat", "score": 0.9, "box": [2.0, 3.0, 20.0, 25.0]},
        {"class": "cat", "score": 0.2, "box": [2.0, 3.0, 20.0, 25.0]},
    ]
    assert [Path(i["picture"]).name for i in document["images"]] == ["photo.png", "photo-2.png"]
    assert (out / "photo-2.png").read_bytes() != image.read_bytes()
    assert writer.lines()[0] == f"{image}: 1 object  cat 0.90"


def test_classes_are_on_one_sheet(image: Path, tmp_path: Path) -> None:
    writer = PredictionWriter(("cat", "dog"), "run", tmp_path / "out", min_score=0.5)
    writer.add(prediction(image, CLASSES))
    writer.close()
    assert (tmp_path / "out" / "sheet.png").is_file()
    assert writer.lines()[0] == f"{image}: cat 90.0 %  dog 10.0 %"


def test_images_that_cannot_be_read_are_counted_and_long_lists_are_cut(tmp_path: Path) -> None:
    writer = PredictionWriter(("cat",), "run", None, min_score=0.5)
    for number in range(SHOWN_LINES + 5):
        writer.add(prediction(tmp_path / f"{number}.jpg", [], "truncated" if number == 0 else None))
    assert writer.failed == 1
    assert writer.lines()[0].endswith("cannot be read: truncated")
    assert "... and 5 more images" in writer.lines()


def test_every_image_that_cannot_be_read_has_a_line(tmp_path: Path) -> None:
    writer = PredictionWriter(("cat",), "run", None, min_score=0.5)
    for number in range(SHOWN_LINES + 9):
        writer.add(prediction(tmp_path / f"{number}.jpg", [], "it is empty" if number in (3, 21, 28) else None))
    lines = writer.lines()
    assert lines[SHOWN_LINES:] == [
        "... and 9 more images, these among them:",
        f"{tmp_path / '21.jpg'}: cannot be read: it is empty",
        f"{tmp_path / '28.jpg'}: cannot be read: it is empty",
        "3 of 29 images could not be read",
    ]


def test_a_file_in_place_of_the_folder_is_refused(image: Path) -> None:
    with pytest.raises(ConfigError, match="is a file"):
        PredictionWriter(("cat",), "run", image, min_score=0.5)


def _image(path: Path, width: int = 200, height: int = 100) -> Path:
    Image.new("RGB", (width, height), (255, 255, 255)).save(path)
    return path


def test_a_box_has_the_colour_of_its_class(tmp_path: Path) -> None:
    source = _image(tmp_path / "in.png")
    objects = [ScoredClass(class_name="dog", score=0.8, box=(40.0, 40.0, 160.0, 90.0))]
    _draw_boxes(source, objects, ("cat", "dog"), tmp_path / "new" / "out.png")
    pixels = np.asarray(Image.open(tmp_path / "new" / "out.png"))
    assert pixels.shape == (100, 200, 3)
    assert tuple(pixels[89, 100]) == _COLOURS[1]
    assert tuple(pixels[70, 100]) == (255, 255, 255)


def test_a_sheet_has_room_for_every_image(tmp_path: Path) -> None:
    source = _image(tmp_path / "in.png")
    guesses = [ScoredClass(class_name="a class with a very long name that has to be cut" * 2, score=0.5)]
    _class_sheet([(source, guesses)] * 4, tmp_path / "one.png")
    _class_sheet([(source, guesses)] * 2, tmp_path / "two.png")
    (wide, tall), (narrow, low) = (Image.open(tmp_path / f"{n}.png").size for n in ("one", "two"))
    assert wide > narrow
    assert tall > low
