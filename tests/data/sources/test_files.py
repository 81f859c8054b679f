"""Images without labels, as `vernier predict` takes them."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.data.sources.small_sets import write_image
from vernier.data.sources.files import FilesSource, find_images
from vernier.errors import ConfigError


def test_files_stay_in_order_and_folders_are_sorted_and_searched(tmp_path: Path) -> None:
    for name in ("z.png", "set/b.jpg", "set/deep/a.png", "set/._b.jpg", "set/.ipynb_checkpoints/b.jpg"):
        write_image(tmp_path / name)
    (tmp_path / "set/notes.txt").write_text("not an image")
    files = find_images([tmp_path / "z.png", tmp_path / "set", tmp_path / "z.png"])
    assert [p.relative_to(tmp_path).as_posix() for p in files] == ["z.png", "set/b.jpg", "set/deep/a.png"]


def test_paths_without_images_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="has no images"):
        find_images([tmp_path])
    with pytest.raises(ConfigError, match="does not exist"):
        find_images([tmp_path / "missing.jpg"])
    with pytest.raises(ConfigError, match="Which images"):
        find_images([])


def test_a_network_with_one_channel_gets_pillows_grey(tmp_path: Path) -> None:
    write_image(tmp_path / "a.png", (200, 10, 90))
    grey = FilesSource([tmp_path / "a.png"], ("cat",), channels=1).image(0)
    with Image.open(tmp_path / "a.png") as image:
        assert np.array_equal(grey[..., 0], np.asarray(image.convert("L")))
