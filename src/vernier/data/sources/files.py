"""Images without labels for predictions: files and folders that the user names, or pixels that a program has.

In Python an image is a path, a Pillow image or an array; `open_images` turns any of them, or a list, into files and
pixels.
"""

import glob
import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from vernier.data.decoding.decode import Croppable, Image, decode, rgb_of
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


_IMAGES = "Give image files, folders with images, or a pattern such as 'photos/*.jpg'."


def _expanded(path: Path) -> list[Path]:
    """The files of a pattern, which PowerShell and quotes leave to the program, or the path itself.

    Raises ConfigError for anything but a file of this machine.
    """
    text = str(path)
    if path.exists():
        return [path]
    if re.match(r"\w{2,}:/", text):  # a path has lost one of two slashes
        raise ConfigError(f"{text.replace(':/', '://', 1)}: addresses are not read. Download it, and give the file.")
    if text.isdecimal() or path.suffix.lower() in (".mp4", ".avi", ".mov", ".mkv", ".webm"):
        raise ConfigError(f"{text}: cameras and videos are not read. Save frames as images, and give their folder.")
    # Path.glob takes no absolute pattern.
    if not (files := [Path(name) for name in sorted(glob.glob(text, recursive=True))]):  # noqa: PTH207
        raise ConfigError(f"{text} {'matches no file' if glob.has_magic(text) else 'does not exist'}. {_IMAGES}")
    return files


def find_images(paths: list[Path]) -> list[Path]:
    """The named files, and the images below the named folders, sorted. Raises ConfigError if there are none."""
    images: list[Path] = []
    for path in (file for each in paths for file in _expanded(each)):
        if path.is_dir():
            inside = sorted(p for p in path.rglob("*") if _is_image(p.relative_to(path)) and p.is_file())
            if not inside:
                raise ConfigError(f"{path} has no images ({', '.join(sorted(IMAGE_SUFFIXES))}).")
            images += inside
        else:
            images.append(path)
    if not images:
        raise ConfigError("Which images? Give files, or folders with images.")
    return list(dict.fromkeys(images))


if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    from PIL.Image import Image as PillowImage
    from typing_extensions import TypeIs

    Pixels = npt.NDArray[np.uint8]
    ImageLike = str | os.PathLike[str] | PillowImage | Pixels


def is_one(images: "ImageLike | Sequence[ImageLike]") -> "TypeIs[ImageLike]":
    """Whether this is one image: a file, or something with pixels. A folder or a pattern is several."""
    if isinstance(images, str | os.PathLike):
        path = Path(images).expanduser()
        return not path.is_dir() and (path.exists() or not glob.has_magic(str(path)))
    return hasattr(images, "__array_interface__") or hasattr(images, "shape")


def open_images(images: "ImageLike | Sequence[ImageLike]") -> "list[Path | Pixels]":
    """Files, also those of folders in a list, and the pixels of other images. Raises ConfigError."""
    if is_one(images) or not isinstance(images, Iterable | os.PathLike):
        return [open_image(images)]
    opened: list[Path | Any] = []
    for image in [images] if isinstance(images, str | os.PathLike) else images:
        if isinstance(image, str | os.PathLike):
            opened += find_images([Path(image).expanduser()])
        else:
            opened.append(open_image(image))
    if not opened:
        raise ConfigError("Which images? The list is empty.")
    return opened


def open_image(image: "ImageLike") -> "Path | Pixels":
    """A file, or the RGB pixels of a Pillow image or an array. Raises ConfigError for anything else."""
    if isinstance(image, str | os.PathLike):
        path = Path(image).expanduser()
        if path.is_dir():
            raise ConfigError(f"{path} is a folder. Give an image file.")
        (path,) = find_images([path])
        return path
    import numpy as np
    from PIL.Image import Image as PillowImage

    if isinstance(image, PillowImage):
        return rgb_of(image)
    if not isinstance(image, np.ndarray) or image.dtype != np.uint8 or image.ndim not in (2, 3):
        raise ConfigError(f"An image is a path, a Pillow image or an array of uint8, not {_kind(image)}.")
    pixels = image[..., None] if image.ndim == 2 else image
    if pixels.shape[2] not in (1, 3):
        raise ConfigError(f"An array is [height, width, 3] in RGB or [height, width], not {_kind(image)}.")
    return np.repeat(pixels, 3, axis=2) if pixels.shape[2] == 1 else np.ascontiguousarray(pixels)


def _kind(value: object) -> str:
    shape, dtype = getattr(value, "shape", None), getattr(value, "dtype", None)
    return f"{type(value).__name__} of shape {tuple(shape)} and {dtype}" if shape is not None else repr(value)[:80]
