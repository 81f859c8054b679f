"""Images inside a tar are read without unpacking it."""

import tarfile
from pathlib import Path

import numpy as np

from tests.data.sources.small_sets import encode_png, write_tar
from vernier.data.sources.containers.tar import TarImages


def test_images_are_read_in_place(tmp_path: Path) -> None:
    path = tmp_path / "images.tar"
    write_tar(path, [("a.png", encode_png(10)), ("b.png", encode_png(99))])
    with tarfile.open(path) as tar:
        ranges = [(member.offset_data, member.size) for member in tar]
    source = TarImages(path, ranges, ["a.png", "b.png"], np.array([1, 0]), ("ant", "bee"))
    assert (len(source), source.name(1), source.describe(1)) == (2, "b.png", f"{path}:b.png")
    assert source.read(1) == encode_png(99)
    assert source.image(0)[0, 0].tolist() == [10, 0, 0]
