"""Images that were read as something else, or not at all, without a word."""

import io
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.conftest import Done
from tests.data.sources.small_sets import write_image
from tests.tiny_training import run_training, tiny_config
from vernier.config import Limits
from vernier.data.decoding.decode import decode
from vernier.data.sources import FolderSource

Runner = Callable[..., Done]


def test_a_sixteen_bit_image_keeps_its_shades() -> None:
    """A 16-bit grey PNG was read as white: all but 256 of its 65,536 levels became 255."""
    out = io.BytesIO()
    Image.fromarray(np.linspace(0, 65535, 4096).reshape(64, 64).astype(np.uint16)).save(out, "PNG")
    image = decode(out.getvalue())
    assert 126 < image.mean() < 129
    assert np.array_equal(np.unique(image), np.arange(256))


def test_an_image_of_floating_point_numbers_is_bad(tmp_path: Path, vernier_here: Runner) -> None:
    """A float TIFF was read as black, and `data verify` counted no bad image."""
    for split in ("train", "val"):
        write_image(tmp_path / split / "cat" / f"{split}.png", (len(split), 0, 0))
    levels = np.linspace(0, 1, 600).reshape(20, 30).astype(np.float32)
    Image.fromarray(levels).save(tmp_path / "train" / "cat" / "depth.tiff")
    done = vernier_here("data", "verify", str(tmp_path))
    assert done.code == 1
    assert "depth.tiff: its pixels are 32-bit floating-point numbers" in done.out
    assert "1 bad" in done.out


def test_verify_fails_when_an_image_is_in_both_splits(tmp_path: Path, vernier_here: Runner) -> None:
    """The documentation promised exit code 1; it was 0."""
    write_image(tmp_path / "train" / "cat" / "1.png")
    write_image(tmp_path / "val" / "cat" / "2.png")
    done = vernier_here("data", "verify", str(tmp_path))
    assert done.code == 1
    assert "0 bad, 1 in more than one split" in done.out
    assert vernier_here("data", "verify", str(tmp_path), "--json").json()["sound"] is False


@pytest.mark.parametrize("suffix", ["gif", "avif", "jp2"])
def test_images_that_work_when_they_are_named_work_in_folders(suffix: str, tmp_path: Path) -> None:
    """GIF, AVIF and JPEG 2000 files in class folders were skipped without a word."""
    write_image(tmp_path / "cat" / "1.jpg")
    write_image(tmp_path / "cat" / f"2.{suffix}")
    source = FolderSource(tmp_path)
    assert len(source) == 2
    assert source.image(1).shape == (8, 10, 3)


def test_files_that_are_skipped_are_counted(tmp_path: Path, vernier_here: Runner) -> None:
    """Photographs as HEIC were skipped, and the set was smaller than the folder."""
    for split in ("train", "val"):
        write_image(tmp_path / split / "cat" / f"{split}.png")
    (tmp_path / "train" / "cat" / "2.heic").write_bytes(b"heic")
    done = vernier_here("data", "inspect", str(tmp_path))
    assert "1 file skipped, not images by their names: 1 .heic" in done.out


def test_predict_names_every_image_that_it_could_not_read(shapes: Path, tmp_path: Path, vernier_here: Runner) -> None:
    """It printed 20 lines, then "6 of 29 images could not be read"; which ones was only in the JSON."""
    config = replace(tiny_config(shapes), limits=Limits(max_steps=1, max_eval_steps=1))
    run = run_training(config, tmp_path / "runs").run.path
    shutil.copytree(shapes / "val", tmp_path / "photos")
    bad = sorted((tmp_path / "photos").rglob("*.jpg"))[25:28]
    for path in bad:
        path.write_bytes(b"no picture")
    done = vernier_here("predict", str(run), str(tmp_path / "photos"))
    assert done.code == 1
    assert all(f"{path}: cannot be read: " in done.out for path in bad)
