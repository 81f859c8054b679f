"""DALI's CPU pipelines, for real where it is installed."""

import importlib.util
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.conftest import Done
from vernier.config import Augment, Data
from vernier.data.loading.dali import DaliTrainReader
from vernier.data.loading.loader import Loader, TrainReader
from vernier.data.sources import open_split
from vernier.errors import ConfigError, RunFailed

needs_dali = pytest.mark.skipif(importlib.util.find_spec("nvidia.dali") is None if importlib.util.find_spec("nvidia") else True, reason="the extra 'dali' is not installed")  # fmt: skip


@needs_dali
def test_the_same_crops_and_flips_as_the_native_backend(shapes: Path) -> None:
    source, data = open_split(str(shapes), "train"), Data(image_px=24)
    out = np.empty((2, 40, 24, 24, 3), np.uint8)
    for reader, into in (
        (TrainReader(source, data, Augment(), 3), out[0]),
        (DaliTrainReader(source, data, Augment(), 3), out[1]),
    ):
        reader.fill(4, np.arange(40), into)
    assert np.abs(out[0].astype(int) - out[1]).mean() < 1.5


@needs_dali
def test_pixels_do_not_depend_on_workers(shapes: Path) -> None:
    source, streams = open_split(str(shapes), "train"), []
    for workers in (1, 3):
        reader = DaliTrainReader(source, Data(image_px=24), Augment(), 3)
        loader = Loader(reader, batch=20, workers=workers, prefetch=2)
        batches = loader.batches((e, np.arange(i, i + 20)) for e in (0, 1) for i in range(0, 80, 20))
        streams.append(np.stack([b.images.numpy().copy() for b in batches]))
        loader.close()
    assert np.array_equal(*streams)


@needs_dali
def test_a_bad_image_is_named(shapes: Path, tmp_path: Path) -> None:
    (tmp_path / "train/a").mkdir(parents=True)
    good = min((shapes / "train").rglob("*.jpg")).read_bytes()
    for name, content in (("1.jpg", good), ("2.jpg", good[:-100]), ("3.jpg", b"nothing")):
        (tmp_path / "train/a" / name).write_bytes(content)
    reader = DaliTrainReader(open_split(str(tmp_path), "train"), Data(image_px=24), Augment(), 3)
    with pytest.raises(RunFailed, match=r"3\.jpg"):
        reader.fill(0, np.array([0, 2]), np.empty((2, 24, 24, 3), np.uint8))


@needs_dali
def test_a_run_with_dali_says_so(vernier_here: Callable[..., Done], tiny: list[str], tmp_path: Path) -> None:
    more = [
        "--set",
        "machine.backend=dali-cpu",
        "--set",
        "augment.crop=random-resized",
        "--max-steps",
        "2",
        "--train-only",
    ]
    done = vernier_here("train", *tiny, *more)
    assert done.code == 0, done.err
    events = next((tmp_path / "runs").rglob("events.jsonl")).read_text()
    assert '"backend": "dali-cpu"' in events


def test_what_dali_cannot_do_is_refused(shapes: Path) -> None:
    with pytest.raises(ConfigError, match="native"):
        DaliTrainReader(open_split(str(shapes), "train"), Data(), Augment(crop="pad"), 1)
