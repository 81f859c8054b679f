"""Images without labels, as `vernier predict` takes them."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.data.sources.small_sets import write_image
from vernier.data.sources.files import FilesSource, find_images, is_one, open_image, open_images
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
