"""Images without labels for `vernier predict`: the files and folders that the user names."""

from pathlib import Path

import numpy as np

from vernier.data.decoding.decode import Croppable, Image, decode
from vernier.errors import ConfigError

from .base import Boxes, BoxSource, EncodedSource, Indices
from .folder import IMAGE_SUFFIXES
from .views import to_grey


class FilesSource(EncodedSource, BoxSource):
    """Single images for a trained network; classes and channels are the network's."""

    labels: Indices

    def __init__(self, paths: list[Path], classes: tuple[str, ...], channels: int) -> None:
        self.paths, self.classes, self.channels = paths, classes, channels
        self.labels = np.full(len(paths), -1, np.int64)
        self.category_ids = tuple(range(1, len(classes) + 1))

    def read(self, index: int) -> bytes:
        return self.paths[index].read_bytes()

    def image(self, index: int) -> Image:
        image = decode(self.read(index))
        return image if self.channels == 3 else to_grey(image)

    def lazy_image(self, index: int) -> Croppable:
        return self.image(index)

    def boxes(self, index: int) -> Boxes:
        return Boxes.empty()

    def describe(self, index: int) -> str:
        return str(self.paths[index])

    def fingerprint(self) -> str:
        return self._fingerprint("\0".join(map(str, self.paths)).encode())


def find_images(paths: list[Path]) -> list[Path]:
    """The named files, and the images below the named folders, sorted. Raises ConfigError if there are none."""
    images: list[Path] = []
    for path in paths:
        if path.is_dir():
            inside = sorted(p for p in path.rglob("*") if p.suffix.lower() in IMAGE_SUFFIXES and p.is_file())
            if not inside:
                raise ConfigError(f"{path} has no images ({', '.join(sorted(IMAGE_SUFFIXES))}).")
            images += inside
        elif path.is_file():
            images.append(path)
        else:
            raise ConfigError(f"{path} does not exist. Give image files, or folders with images.")
    if not images:
        raise ConfigError("Which images? Give files, or folders with images.")
    return list(dict.fromkeys(images))
