"""The classifier's readers: decode, crop, flip and augment into a batch's buffer, with class numbers as targets.

`box_readers` are the detector's; `backends` chooses between these and other people's decoders.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

import numpy as np
import torch

from vernier.config import Augment, Data, train_px
from vernier.data.augment.crop_flip import EvalTransform, Row, TrainTransform, augment_rows, pad_crop_flip_many
from vernier.data.augment.policies import PixelAugment
from vernier.data.decoding.base import open_with_plugin
from vernier.data.decoding.decode import BadImage, Croppable, Image
from vernier.data.sources import ArraySource, Source
from vernier.data.sources.base import EncodedSource, Indices
from vernier.errors import ConfigError
from vernier.randomness import Stream, key, uniform

from .bad_images import BadImages
from .targets import ClassTargets

T = TypeVar("T")


def class_numbers(source: Source, indices: Indices) -> torch.Tensor:
    """A classifier's targets."""
    # In an epoch longer than the set, indices continue beyond it and samples repeat.
    return torch.from_numpy(np.asarray(source.labels[indices % len(source)], dtype=np.int64))


def require_encoded(source: Source, backend: str) -> EncodedSource:
    """The source, which must be one of encoded images for this backend. Raises ConfigError."""
    if not isinstance(source, EncodedSource):
        raise ConfigError(
            f"machine.backend = {backend} needs encoded images such as JPEG files; this set is decoded already. "
            "Use machine.backend=native."
        )
    return source


class TrainImages:
    """What the readers of training images share: the size of images by epoch, and substitutes for bad ones."""

    _source: Source

    def __init__(self, source: Source, data: Data, augment: Augment) -> None:
        self._source, self._data, self._augment = source, data, augment
        self.bad = BadImages(source, data.max_bad_images)
        self.shape = (data.image_px, data.image_px, source.channels)

    def shape_at(self, epoch: int) -> tuple[int, int, int]:
        px = train_px(self._data, self._augment, epoch)
        return px, px, self._source.channels

    def _read_row(self, indices: Indices, row: int, read: Callable[[int], T]) -> T:
        """`read` of the sample in a row of the batch; of a substitute where it is bad, whose index it then gets."""
        sample = int(indices[row]) % len(self._source)
        used, result = self.bad.read_or_substitute(sample, read)
        # In place: `targets` is called after `fill` and must find the label of the image that is in the batch.
        if used != sample:
            indices[row] = used
        return result


class EvalImages:
    """What the readers of evaluation images share; the epoch plays no part."""

    _source: Source

    def __init__(self, source: Source, data: Data) -> None:
        self._source, self._data = source, data
        self.bad = BadImages(source, data.max_bad_images)
        self.shape = (data.eval_px, data.eval_px, source.channels)

    def shape_at(self, epoch: int) -> tuple[int, int, int]:
        return self.shape


class TrainReader(TrainImages):
    """Augmented training images."""

    def __init__(self, source: Source, data: Data, augment: Augment, seed: int, *, compiled: bool = False) -> None:
        super().__init__(source, data, augment)
        self._seed = seed
        self._transform = TrainTransform(data, augment)
        self._pixels = PixelAugment(data, augment)
        small = isinstance(source, ArraySource) and source.images.shape[1:3] == (data.image_px, data.image_px)
        # With start_px the size changes by epoch, so images in memory would not have the size of the batch.
        self._crop_together = small and augment.crop != "random-resized" and augment.start_px is None
        # Encoded images are resized one by one, so that a worker holds a single decoded image at a time.
        self._resize_together = augment.crop == "random-resized" and not isinstance(source, EncodedSource)
        # Only random-resized crops take a part of an image; a lazy image would save nothing for the others.
        self._open: Callable[[int], Croppable] = source.lazy_image if augment.crop == "random-resized" else source.image
        if compiled:
            self._open = open_with_plugin("compiled", require_encoded(source, "compiled").lazy_image)

    def fill(self, epoch: int, indices: Indices, out: Image) -> None:
        if self._source.copy_ready_images(indices, out) is not None:
            return
        self._crop_and_flip(epoch, indices, out)
        if self._pixels.draws:
            # A stream of its own: a policy does not change which crops and flips are drawn.
            draws = uniform(key(Stream.PIXELS, self._seed, epoch), indices, self._pixels.draws)
            for image, row in zip(out, draws, strict=True):
                self._pixels(image, row)

    def targets(self, indices: Indices, filled: list[Any]) -> torch.Tensor:
        return class_numbers(self._source, indices)

    def _crop_and_flip(self, epoch: int, indices: Indices, out: Image) -> None:
        # Before any substitution: a substitute gets the crop and flip of the image that it replaces.
        draws = augment_rows(self._seed, epoch, indices, self._augment.flip_rule)
        if self._crop_together:
            assert isinstance(self._source, ArraySource)
            pad_crop_flip_many(self._source.images[indices % len(self._source)], draws, self._augment, out)
            return
        crops = []
        for row, numbers in enumerate(draws):
            crop = self._read_row(indices, row, partial(self._crop, numbers, out.shape[1]))
            if self._resize_together:
                crops.append(crop)
            else:
                self._transform.finish(crop, numbers, out[row])
        if crops:
            self._transform.finish_many(crops, draws, out)

    def _crop(self, numbers: Row, size: int, sample: int) -> Image:
        return self._transform.crop(self._open(sample), numbers, size)


class EvalReader(EvalImages):
    """Evaluation images."""

    def fill(self, epoch: int, indices: Indices, out: Image) -> None:
        if self._source.copy_ready_images(indices, out) is not None:
            return
        transform = EvalTransform(self._data)
        for row, index in enumerate(indices.tolist()):
            try:
                transform(self._source.image(index), out[row])
            except (BadImage, OSError) as error:
                # No substitute in evaluation: the set keeps its size, and the sample its label.
                self.bad.report(index, error)
                out[row] = 0

    def targets(self, indices: Indices, filled: list[Any]) -> ClassTargets:
        return ClassTargets(class_numbers(self._source, indices), torch.from_numpy(indices))
