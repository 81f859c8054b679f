"""Images that a caller passes in Python: a path, a Pillow image, an array, or a list of them."""

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vernier.errors import ConfigError

from .files import find_images

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    from PIL.Image import Image as PillowImage
    from typing_extensions import TypeIs

    Pixels = npt.NDArray[np.uint8]
    ImageLike = str | os.PathLike[str] | PillowImage | Pixels


def is_one(images: "ImageLike | Sequence[ImageLike]") -> "TypeIs[ImageLike]":
    """Whether this is one image: a path, or something with pixels."""
    return isinstance(images, str | os.PathLike) or hasattr(images, "__array_interface__") or hasattr(images, "shape")


def open_images(images: "ImageLike | Sequence[ImageLike]") -> "list[Path | Pixels]":
    """Files, also those of folders in a list, and the pixels of other images. Raises ConfigError."""
    if is_one(images) or not isinstance(images, Iterable):
        return [open_image(images)]
    opened: list[Path | Any] = []
    for image in images:
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
            raise ConfigError(f"{path} is a folder: predict([{str(image)!r}]) takes all images in it.")
        if not path.is_file():
            raise ConfigError(f"{path} does not exist. Give an image file.")
        return path
    import numpy as np
    from PIL.Image import Image as PillowImage

    if isinstance(image, PillowImage):
        from vernier.data.decoding.decode import to_rgb

        return to_rgb(image)
    if not isinstance(image, np.ndarray) or image.dtype != np.uint8 or image.ndim not in (2, 3):
        raise ConfigError(f"An image is a path, a Pillow image or an array of uint8, not {_kind(image)}.")
    pixels = image[..., None] if image.ndim == 2 else image
    if pixels.shape[2] not in (1, 3):
        raise ConfigError(f"An array is [height, width, 3] in RGB or [height, width], not {_kind(image)}.")
    return np.repeat(pixels, 3, axis=2) if pixels.shape[2] == 1 else np.ascontiguousarray(pixels)


def _kind(value: object) -> str:
    shape, dtype = getattr(value, "shape", None), getattr(value, "dtype", None)
    return f"{type(value).__name__} of shape {tuple(shape)} and {dtype}" if shape is not None else repr(value)[:80]
