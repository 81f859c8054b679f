"""The classifier's readers: decode, crop, flip and augment into a batch's buffer, with class numbers as targets.

`box_readers` are the detector's; `backends` chooses between these and other people's decoders.
"""

from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from vernier.config import Augment, Data, train_px
from vernier.data.augment.crop_flip import EvalTransform, TrainTransform, augment_rows, pad_crop_flip_many
from vernier.data.augment.policies import PixelAugment
from vernier.data.decoding.decode import BadImage, Image
from vernier.data.loading.bad_images import BadImages
from vernier.data.loading.targets import ClassTargets
from vernier.data.sources import ArraySource, Source
from vernier.data.sources.base import EncodedSource, Indices
from vernier.randomness import Stream, key, uniform


def class_numbers(source: Source, indices: Indices) -> torch.Tensor:
    """A classifier's targets."""
    return torch.from_numpy(np.asarray(source.labels[indices % len(source)], dtype=np.int64))


class TrainReader:
    """Augmented training images."""

    def __init__(self, source: Source, data: Data, augment: Augment, seed: int) -> None:
        self._source, self._data, self._augment, self._seed = source, data, augment, seed
        self.bad = BadImages(source, data.max_bad_images)
        self._transform = TrainTransform(data, augment)
        self._pixels = PixelAugment(data, augment)
        self.shape = (data.image_px, data.image_px, source.channels)
        small = isinstance(source, ArraySource) and source.images.shape[1:3] == (data.image_px, data.image_px)
        self._crop_together = small and augment.crop != "random-resized" and augment.start_px is None
        self._resize_together = augment.crop == "random-resized" and not isinstance(source, EncodedSource)
        self._open = source.lazy_image if augment.crop == "random-resized" else source.image

    def shape_at(self, epoch: int) -> tuple[int, int, int]:
        px = train_px(self._data, self._augment, epoch)
        return px, px, self._source.channels

    def fill(self, epoch: int, indices: Indices, out: Image) -> None:
        if self._source.copy_ready_images(indices, out) is not None:
            return
        self._crop_and_flip(epoch, indices, out)
        if self._pixels.draws:
            draws = uniform(key(Stream.PIXELS, self._seed, epoch), indices, self._pixels.draws)
            for image, row in zip(out, draws, strict=True):
                self._pixels(image, row)

    def targets(self, indices: Indices, filled: list[Any]) -> torch.Tensor:
        return class_numbers(self._source, indices)

    def _crop_and_flip(self, epoch: int, indices: Indices, out: Image) -> None:
        draws = augment_rows(self._seed, epoch, indices)
        if self._crop_together:
            assert isinstance(self._source, ArraySource)
            pad_crop_flip_many(self._source.images[indices % len(self._source)], draws, self._augment, out)
            return
        crops = []
        for row, numbers in enumerate(draws):
            crop = self._crop(indices, row, numbers, out.shape[1])
            if self._resize_together:
                crops.append(crop)
            else:
                self._transform.finish(crop, numbers, out[row])
        if crops:
            self._transform.finish_many(crops, draws, out)

    def _crop(self, indices: Indices, row: int, numbers: npt.NDArray[np.float64], size: int) -> Image:
        """The crop of the sample in a row of the batch; of a substitute where it is bad, whose index it then gets."""
        sample = int(indices[row]) % len(self._source)
        used, crop = self.bad.read_or_substitute(sample, lambda i: self._transform.crop(self._open(i), numbers, size))
        if used != sample:
            indices[row] = used
        return crop


class EvalReader:
    """Evaluation images; the epoch plays no part."""

    def __init__(self, source: Source, data: Data) -> None:
        self._source = source
        self.bad = BadImages(source, data.max_bad_images)
        self._transform = EvalTransform(data)
        self.shape = (data.eval_px, data.eval_px, source.channels)

    def shape_at(self, epoch: int) -> tuple[int, int, int]:
        return self.shape

    def fill(self, epoch: int, indices: Indices, out: Image) -> None:
        if self._source.copy_ready_images(indices, out) is not None:
            return
        for row, index in enumerate(indices.tolist()):
            try:
                self._transform(self._source.image(index), out[row])
            except (BadImage, OSError) as error:
                self.bad.report(index, error)
                out[row] = 0

    def targets(self, indices: Indices, filled: list[Any]) -> ClassTargets:
        return ClassTargets(class_numbers(self._source, indices), torch.from_numpy(indices))
