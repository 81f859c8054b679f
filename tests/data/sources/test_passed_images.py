"""Images as Python has them become files or RGB pixels, or are refused."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from vernier.data.sources.passed_images import is_one, open_image, open_images
from vernier.errors import ConfigError

GRAY = np.arange(6, dtype=np.uint8).reshape(2, 3)


def test_a_path_a_pillow_image_and_an_array_are_one_image_and_a_list_is_not() -> None:
    assert is_one("a.jpg")
    assert is_one(Path("a.jpg"))
    assert is_one(GRAY)
    assert is_one(Image.fromarray(GRAY))
    assert not is_one(["a.jpg"])


def test_gray_pixels_become_rgb_and_rgb_ones_stay() -> None:
    opened = open_image(GRAY)
    assert isinstance(opened, np.ndarray)
    assert opened.shape == (2, 3, 3)
    assert (opened == GRAY[..., None]).all()
    assert np.array_equal(open_image(Image.fromarray(opened)), opened)  # type: ignore[arg-type]


def test_folders_of_a_list_are_opened_and_order_stays(tmp_path: Path) -> None:
    for name in ("b.png", "a.png"):
        Image.fromarray(GRAY).save(tmp_path / name)
    assert open_images([tmp_path, GRAY])[:2] == [tmp_path / "a.png", tmp_path / "b.png"]  # type: ignore[list-item]
    assert len(open_images([tmp_path, GRAY])) == 3  # type: ignore[list-item]


@pytest.mark.parametrize("wrong", [[], 3, GRAY.astype(np.float32), np.zeros((2, 2, 4), np.uint8), "none.jpg", "."])
def test_what_is_no_image_is_refused(wrong: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError):
        open_images(wrong)  # type: ignore[arg-type]
