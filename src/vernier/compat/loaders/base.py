"""What loaders with a decoder and resize kernel of their own share (`machine.backend`).

The samples, crops and flips are decided here as for the native reader, so order, resume and processes behave the same.
`dali` and `gaudi_media` decode.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from vernier.config import Machine, Recipe
from vernier.data.augment.crop_flip import FLIP, augment_rows, random_crop_box
from vernier.data.decoding.decode import BadImage, read_orientation, read_size
from vernier.data.loading.bad_images import BadImages
from vernier.data.loading.readers import class_numbers, require_encoded
from vernier.data.sources.base import Indices, Source
from vernier.errors import ConfigError, RunFailed


def accelerator(kind: str, machine: Machine) -> torch.device:
    """The device that this process computes on, which must be of this kind. Raises ConfigError."""
    device = torch.accelerator.current_accelerator(check_available=True)  # a CUDA build names cuda without a GPU too
    if device is None or device.type != kind or machine.device not in ("auto", kind):
        available = "no" if device is None else f"a {device.type}"
        raise ConfigError(
            f"machine.backend = {machine.backend} decodes on a {kind} device. This machine has {available} "
            f"accelerator, and machine.device = {machine.device}. Use machine.backend=native."
        )
    # With its index: a process of several has set the current device by now.
    return torch.device(kind, torch.accelerator.current_device_index())


@dataclass(frozen=True)
class CropRequest:
    """Encoded images and how to crop and flip them: boxes as left, top, width, height, sizes as width, height."""

    encoded: list[npt.NDArray[np.uint8]]
    boxes: npt.NDArray[np.float32]
    sizes: npt.NDArray[np.float32]
    flips: npt.NDArray[np.bool_]


class BackendReader(ABC):
    """Augmented training images by another decoder, on `torch_device`. A bad image ends the run: none is replaced."""

    resize: str
    """The kernel that resizes, as runs record it."""

    def __init__(self, name: str, source: Source, recipe: Recipe, device: torch.device) -> None:
        self._name, self._source, self._recipe = name, require_encoded(source, name), recipe
        self.torch_device = device
        self.shape = (recipe.data.image_px, recipe.data.image_px, source.channels)
        self.bad = BadImages(source, "0")

    def shape_at(self, epoch: int) -> tuple[int, int, int]:
        return self.shape

    def fill(self, epoch: int, indices: Indices, out: Any) -> None:
        self._decode_into(self._request(epoch, indices), indices, out)

    def targets(self, indices: Indices, filled: list[Any]) -> torch.Tensor:
        return class_numbers(self._source, indices)

    @abstractmethod
    def _decode_into(self, request: CropRequest, indices: Indices, out: Any) -> None:
        """Fill `out`: an array where `torch_device` is the CPU, else a tensor there."""

    def _request(self, epoch: int, indices: Indices) -> CropRequest:
        augment = self._recipe.augment
        # Drawn here, from the same streams as for the native reader.
        draws = augment_rows(self._recipe.seed, epoch, indices, augment.flip_rule)
        encoded, boxes, sizes = [], [], []
        for numbers, index in zip(draws, (indices % len(self._source)).tolist(), strict=True):
            try:
                content = self._source.read(index)
                size = read_size(content)
                # Turned pixels would need another crop, and no error would show it.
                if read_orientation(content) != 1:
                    raise BadImage("it must be turned by its EXIF orientation, which this decoder does not do")
            except (BadImage, OSError) as error:
                raise RunFailed(
                    f"Cannot read the image {self._source.describe(index)}: {error}. machine.backend = {self._name} "
                    "cannot replace bad images. Repair the data (vernier data verify lists what is wrong) or use "
                    "machine.backend=native."
                ) from None
            encoded.append(np.frombuffer(content, np.uint8))
            sizes.append(size)
            boxes.append(random_crop_box(*size, augment, numbers))
        flips = draws[:, FLIP] < augment.flip
        return CropRequest(encoded, np.array(boxes, np.float32), np.array(sizes, np.float32), flips)

    def _names(self, indices: Indices) -> str:
        return ", ".join(self._source.describe(i) for i in (indices % len(self._source)).tolist())
