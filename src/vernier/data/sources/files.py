"""Images without labels for predictions: files and folders that the user names, or pixels that a program has."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from vernier.data.decoding.decode import Croppable, Image, decode
from vernier.errors import ConfigError

from .base import Boxes, BoxSource, EncodedSource, Indices
from .folder import IMAGE_SUFFIXES
from .views import to_grey


class FilesSource(EncodedSource, BoxSource):
    """Single images for a trained network, files or decoded ones; classes and channels are the network's."""

    labels: Indices

    def __init__(self, images: Sequence[Path | Image], classes: tuple[str, ...], channels: int) -> None:
        self.images, self.classes, self.channels = images, classes, channels
        self.labels = np.full(len(images), -1, np.int64)
        self.category_ids = tuple(range(1, len(classes) + 1))

    def read(self, index: int) -> bytes:
        image = self.images[index]
        return image.read_bytes() if isinstance(image, Path) else image.tobytes()

    def image(self, index: int) -> Image:
        image = self.images[index]
        pixels = decode(self.read(index)) if isinstance(image, Path) else image
        return pixels if self.channels == 3 else to_grey(pixels)

    def lazy_image(self, index: int) -> Croppable:
        return self.image(index)

    def boxes(self, index: int) -> Boxes:
        return Boxes.empty()

    def describe(self, index: int) -> str:
        image = self.images[index]
        return str(image) if isinstance(image, Path) else f"image {index}"

    def fingerprint(self) -> str:
        return self._fingerprint("\0".join(self.describe(index) for index in range(len(self))).encode())


def _is_image(path: Path) -> bool:
    """Whether a name below a folder is an image's; hidden ones are not, such as macOS's `._name`."""
    return path.suffix.lower() in IMAGE_SUFFIXES and not any(part.startswith(".") for part in path.parts)


def find_images(paths: list[Path]) -> list[Path]:
    """The named files, and the images below the named folders, sorted. Raises ConfigError if there are none."""
    images: list[Path] = []
    for path in paths:
        if path.is_dir():
            inside = sorted(p for p in path.rglob("*") if _is_image(p.relative_to(path)) and p.is_file())
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
