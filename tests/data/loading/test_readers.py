"""The classifier's readers."""

from pathlib import Path

import numpy as np

from vernier.config import Augment, Data
from vernier.data.loading.readers import TrainReader
from vernier.data.sources import open_split


def test_epochs_are_augmented_differently(shapes: Path) -> None:
    source = open_split(str(shapes), "train")
    reader = TrainReader(source, Data(image_px=24), Augment(), seed=5)
    out = np.empty((2, 4, 24, 24, 3), dtype=np.uint8)
    for epoch in (0, 1):
        reader.fill(epoch, np.arange(4), out[epoch])
    assert not np.array_equal(out[0], out[1])


def test_copies_of_a_repeated_sample_look_different(shapes: Path) -> None:
    source = open_split(str(shapes), "train")
    reader = TrainReader(source, Data(image_px=24), Augment(repeats=2), seed=5)
    out = np.empty((2, 24, 24, 3), dtype=np.uint8)
    reader.fill(0, np.array([7, 7 + len(source)]), out)
    assert not np.array_equal(out[0], out[1])
