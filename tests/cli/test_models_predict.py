"""`vernier predict` on a classifier: the same figures as evaluation, pictures, wrong inputs."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from PIL import Image

from tests.conftest import Done, only_run

Vernier = Callable[..., Done]


@pytest.fixture
def run(vernier_here: Vernier, shapes: Path, tiny: list[str], tmp_path: Path) -> Path:
    """A small trained classifier."""
    done = vernier_here("train", *tiny, "--data", str(shapes), "--out", str(tmp_path / "runs"))
    assert done.code == 0, done.err
    return only_run(tmp_path / "runs")


def test_predictions_are_those_that_evaluation_counts(
    run: Path, vernier_here: Vernier, shapes: Path, tmp_path: Path
) -> None:
    done = vernier_here("predict", str(run), str(shapes / "val"), "--out", str(tmp_path / "out"), "--json")
    assert done.code == 0, done.err
    images = json.loads(done.out)["images"]
    right = sum(Path(i["image"]).parent.name == i["found"][0]["class"] for i in images)
    scored = json.loads(vernier_here("eval", str(run), "--json").out)
    assert len(images) == scored["samples"]
    assert 100 * right / len(images) == pytest.approx(scored["top1"])
    for image in images:
        scores = [guess["score"] for guess in image["found"]]
        assert scores == sorted(scores, reverse=True)
        assert sum(scores) <= 1.0001
    assert json.loads((tmp_path / "out" / "predictions.json").read_text())["images"] == images
    with Image.open(tmp_path / "out" / "sheet.png") as sheet:
        assert sheet.width > 300


def test_an_engine_is_checked_on_the_images_and_named(run: Path, vernier_here: Vernier, shapes: Path) -> None:
    pytest.importorskip("onnxruntime", reason="needs vernier[onnx]")
    images = str(shapes / "val")
    own = json.loads(vernier_here("predict", str(run), images, "--json").out)["images"]
    done = vernier_here("predict", str(run), images, "--engine", "onnxruntime")
    assert done.code == 0, done.err
    assert "engine: onnxruntime " in done.err
    assert "the same class for 32 of 32" in done.err
    other = json.loads(vernier_here("predict", str(run), images, "--engine", "onnxruntime", "--json").out)["images"]
    assert [i["found"][0]["class"] for i in other] == [i["found"][0]["class"] for i in own]


def test_any_size_and_mode_can_be_predicted(run: Path, vernier_here: Vernier, tmp_path: Path) -> None:
    modes = {"L": 90, "RGBA": (1, 2, 3, 4), "CMYK": (9, 9, 9, 9), "P": 3, "1": 1}
    for mode, colour in modes.items():
        suffix = "jpg" if mode == "CMYK" else "png"
        Image.new(mode, (7 + len(mode) * 40, 200), colour).save(tmp_path / f"{mode}.{suffix}")  # type: ignore[arg-type]
    names = [f"{mode}.png" for mode in ("L", "RGBA", "P", "1")] + ["CMYK.jpg"]
    done = vernier_here("predict", str(run), *(str(tmp_path / name) for name in names))
    assert done.code == 0, done.err
    assert done.out.count(" %") == 25


def test_a_broken_image_is_named_and_the_others_are_done(
    run: Path, vernier_here: Vernier, shapes: Path, tmp_path: Path
) -> None:
    (tmp_path / "broken.jpg").write_bytes(b"no picture")
    good = next((shapes / "val" / "disc").iterdir())
    done = vernier_here("predict", str(run), str(tmp_path / "broken.jpg"), str(good), "--json")
    assert done.code == 1
    broken, fine = json.loads(done.out)["images"]
    assert broken["error"]
    assert not broken["found"]
    assert len(fine["found"]) == 5


def test_missing_inputs_are_named(run: Path, vernier_here: Vernier, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("x")
    for wrong, words in [
        ((str(tmp_path / "none.jpg"),), "does not exist"),
        ((str(tmp_path / "empty"),), "has no images"),
        ((str(tmp_path / "file"), "--out", str(tmp_path / "file")), "is a file"),
    ]:
        done = vernier_here("predict", str(run), *wrong)
        assert done.code == 2, wrong
        assert words in done.err
