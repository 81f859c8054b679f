"""Which code decodes and resizes training images (`machine.backend`), and what those of others have in common.

Which samples, which crops and which flips is decided here as for the native one, so order, resume and processes behave the
same and only decoder and resize kernel differ. DALI is `data.dali`'s business, the Gaudi media loader `data.gaudi_media`'s.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from vernier.config import Augment, Data, Machine, Recipe
from vernier.data.augment.crop_flip import augment_rows, random_crop_box
from vernier.data.decoding.decode import BadImage, size_of
from vernier.data.loading.bad_images import BadImages
from vernier.data.loading.loader import TrainReader, class_numbers
from vernier.data.sources.base import EncodedSource, Indices, Source
from vernier.errors import ConfigError

RESIZES = {
    "native": "torch antialiased {}, uint8",
    "dali-cpu": "DALI antialiased linear",
    "dali-gpu": "DALI antialiased linear, GPU",
    "gaudi-media": "Gaudi media decoder, linear",
}


def train_reader(source: Source, kept: Source, recipe: Recipe, machine: Machine) -> "TrainReader | BackendReader":
    """What fills training batches; only the native one has a use for decoded images that are `kept`. Raises ConfigError."""
    if machine.backend == "native":
        return TrainReader(kept, recipe.data, recipe.augment, recipe.seed)
    if machine.backend == "gaudi-media":
        from vernier.data.loading.gaudi_media import GaudiTrainReader

        return GaudiTrainReader(source, recipe.data, recipe.augment, recipe.seed, accelerator("hpu", machine))
    from vernier.data.loading.dali import DaliTrainReader

    place = accelerator("cuda", machine) if machine.backend == "dali-gpu" else torch.device("cpu")
    return DaliTrainReader(source, recipe.data, recipe.augment, recipe.seed, place)


def accelerator(kind: str, machine: Machine) -> torch.device:
    """The device that this process computes on, which must be of this kind."""
    found = torch.accelerator.current_accelerator()
    if found is None or found.type != kind or machine.device not in ("auto", kind):
        here = "none is here" if found is None else f"here is {found.type}, and machine.device = {machine.device}"
        raise ConfigError(
            f"machine.backend = {machine.backend} decodes on a device of kind {kind}; {here}. Use machine.backend=native."
        )
    return torch.device(kind, torch.accelerator.current_device_index())


@dataclass(frozen=True)
class Wanted:
    """Some encoded images and what is to be made of them: crops as left, top, width, height in pixels, sizes as width, height."""

    encoded: list[npt.NDArray[np.uint8]]
    boxes: npt.NDArray[np.float32]
    sizes: npt.NDArray[np.float32]
    flips: npt.NDArray[np.bool_]


class BackendReader(ABC):
    """Augmented training images by somebody else's code, on `place`. A bad image ends the run: none is replaced."""

    def __init__(self, name: str, source: Source, data: Data, augment: Augment, seed: int, place: torch.device) -> None:
        if not isinstance(source, EncodedSource) or augment.crop != "random-resized":
            raise ConfigError(
                f"machine.backend = {name} needs encoded images and augment.crop = random-resized. Use machine.backend=native."
            )
        more = augment.policy != "none" or augment.jitter != "none" or augment.erase > 0 or augment.start_px is not None
        if more or data.interpolation != "bilinear" or data.scaled_decode:
            raise ConfigError(
                f"machine.backend = {name} crops, resizes (bilinear) and flips, nothing else: this recipe wants more. "
                "Use machine.backend=native."
            )
        self._source, self._augment, self._seed, self.place = source, augment, seed, place
        self.shape = (data.image_px, data.image_px, source.channels)
        self.bad = BadImages(0, len(source))

    def shape_at(self, epoch: int) -> tuple[int, int, int]:
        return self.shape

    def fill(self, epoch: int, indices: Indices, out: Any) -> None:
        self._make(self._wanted(epoch, indices), indices, out)

    def targets(self, indices: Indices, filled: list[Any]) -> torch.Tensor:
        return class_numbers(self._source, indices)

    @abstractmethod
    def _make(self, wanted: Wanted, indices: Indices, out: Any) -> None:
        """Fill `out`: an array where `place` is the CPU, else a tensor there."""

    def _wanted(self, epoch: int, indices: Indices) -> Wanted:
        rows = augment_rows(self._seed, epoch, indices)
        encoded, boxes, sizes = [], [], []
        for place, index in enumerate((indices % len(self._source)).tolist()):
            try:
                content = self._source.read(index)
                sizes.append(size_of(content))
            except (BadImage, OSError) as error:
                self.bad.report(index, self._source.describe(index), str(error))
                raise AssertionError from error
            encoded.append(np.frombuffer(content, np.uint8))
            boxes.append(random_crop_box(*sizes[-1], self._augment, rows[place]))
        return Wanted(
            encoded, np.array(boxes, np.float32), np.array(sizes, np.float32), rows[:, -2] < self._augment.flip
        )  # fmt: skip

    def _names(self, indices: Indices) -> str:
        return ", ".join(self._source.describe(i) for i in (indices % len(self._source)).tolist())
