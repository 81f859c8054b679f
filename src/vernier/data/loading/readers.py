"""The readers: they decode, crop, flip and augment images into the buffer of a batch, and make its targets.

A classifier's targets are class numbers. A detector's are boxes as fractions of the image, which move with the pixels,
and classes from 1 (0 is the background); crowds are left out, and an image may end up without any box. An image whose
size differs from its annotation counts as bad, because its boxes would be wrong. Readers with other decoders plug in
(`tasks.base.TrainingReader`).
"""

from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import torch

from vernier.config import Augment, Data, train_px
from vernier.data.augment.boxes import BoxAugment, Shares
from vernier.data.augment.crop_flip import (
    EvalTransform,
    Row,
    TrainTransform,
    augment_rows,
    pad_crop_flip_many,
    resize_into,
)
from vernier.data.augment.own import OwnTransforms
from vernier.data.augment.policies import PixelAugment
from vernier.data.decoding.base import open_with_plugin
from vernier.data.decoding.decode import BadImage, Croppable, Image
from vernier.data.sources import ArraySource, Source
from vernier.data.sources.base import Boxes, BoxSource, EncodedSource, Indices
from vernier.errors import ConfigError
from vernier.randomness import Stream, key, uniform

from .bad_images import BadImages
from .targets import BoxTargets, ClassTargets

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


class _TrainImages:
    """Base class of readers of training images: image size by epoch, and substitutes for bad images."""

    _source: Source

    def __init__(self, source: Source, data: Data, augment: Augment, decoder: str, *, lazy: bool) -> None:
        self._source, self._data, self._augment = source, data, augment
        # Without a crop every pixel is needed, and a lazy image would save nothing.
        self._open: Callable[[int], Croppable] = source.lazy_image if lazy else source.image
        self.decoder, self._fill_chunk = "native", None
        # Cached images are no encoded ones, and no decoder is faster than none.
        if decoder not in ("auto", "native") or (decoder == "auto" and isinstance(source, EncodedSource)):
            encoded = require_encoded(source, decoder)
            if (opened := open_with_plugin(decoder, encoded, data, augment)) is not None:
                self.decoder, self._open, self._fill_chunk = opened
        self.bad = BadImages(source, data.max_bad_images)
        self.shape = (data.image_px, data.image_px, source.channels)
        self.resize = f"torch antialiased {data.interpolation}, uint8"

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


class _EvalImages:
    """Base class of readers of evaluation images, which do not depend on the epoch."""

    _source: Source

    def __init__(self, source: Source, data: Data) -> None:
        self._source, self._data = source, data
        self.bad = BadImages(source, data.max_bad_images)
        self.shape = (data.eval_px, data.eval_px, source.channels)

    def shape_at(self, epoch: int) -> tuple[int, int, int]:
        return self.shape


class TrainReader(_TrainImages):
    """Augmented training images."""

    def __init__(self, source: Source, data: Data, augment: Augment, seed: int, decoder: str = "native") -> None:
        super().__init__(source, data, augment, decoder, lazy=augment.crop == "random-resized")
        self._seed = seed
        self._transform = TrainTransform(data, augment)
        self._pixels, self._own = PixelAugment(data, augment), OwnTransforms(augment, seed)
        # Images in memory that already have their size are cropped as one array, without a loop in Python.
        small = isinstance(source, ArraySource) and source.images.shape[1:3] == (data.image_px, data.image_px)
        # With start_px the size changes by epoch, so images in memory would not have the size of the batch.
        self._crop_together = small and augment.crop != "random-resized" and augment.start_px is None
        # Encoded images are resized one by one, so that a worker holds a single decoded image at a time.
        self._resize_together = augment.crop == "random-resized" and not isinstance(source, EncodedSource)

    def fill(self, epoch: int, indices: Indices, out: Image) -> None:
        if self._source.copy_ready_images(indices, out) is not None:
            return
        self._crop_and_flip(epoch, indices, out)
        if self._pixels.draws:
            # A stream of its own: a policy does not change which crops and flips are drawn.
            draws = uniform(key(Stream.PIXELS, self._seed, epoch), indices, self._pixels.draws)
            for image, row in zip(out, draws, strict=True):
                self._pixels(image, row)
        if self._own:
            for image, index, label in zip(out, indices.tolist(), class_numbers(self._source, indices), strict=True):
                self._own(epoch, index, image, int(label))

    def targets(self, indices: Indices, filled: list[Any]) -> torch.Tensor:
        return class_numbers(self._source, indices)

    def _crop_and_flip(self, epoch: int, indices: Indices, out: Image) -> None:
        # Before any substitution: a substitute gets the crop and flip of the image that it replaces.
        draws = augment_rows(self._seed, epoch, indices, self._augment.flip_rule)
        if self._crop_together:
            assert isinstance(self._source, ArraySource)
            pad_crop_flip_many(self._source.images[indices % len(self._source)], draws, self._augment, out)
            return
        crops, done = [], np.zeros(len(indices), np.bool_)
        if self._fill_chunk is not None:
            with suppress(OSError):  # a shard that cannot be opened: its images are reported one by one
                done = self._fill_chunk(indices % len(self._source), draws, out)
        for row, numbers in enumerate(draws):
            if done[row]:
                continue
            crop = self._read_row(indices, row, partial(self._crop, numbers, out.shape[1]))
            if self._resize_together:
                crops.append(crop)
            else:
                self._transform.finish(crop, numbers, out[row])
        if crops:
            self._transform.finish_many(crops, draws, out)

    def _crop(self, numbers: Row, size: int, sample: int) -> Image:
        return self._transform.crop(self._open(sample), numbers, size)


class EvalReader(_EvalImages):
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


@dataclass(frozen=True)
class _Objects:
    """The objects of one augmented image: boxes as shares, classes from 1, and the original height and width."""

    ltrb: npt.NDArray[np.float32]
    classes: Indices
    size: tuple[int, int]


def _objects(ltrb: Shares, classes: Indices, size: tuple[int, int]) -> _Objects:
    """Drop boxes so thin that they have no area in 32 bits."""
    # After rounding: two edges that differ in 64 bits can be equal in 32.
    rounded = ltrb.astype(np.float32)
    visible = (rounded[:, 2:] > rounded[:, :2]).all(axis=1)
    return _Objects(rounded[visible], classes[visible] + 1, size)


def _learnable(boxes: Boxes, height: int, width: int) -> tuple[Shares, Indices]:
    """Boxes as shares of the whole image, and their classes; without crowds and boxes outside of the image."""
    # Sources keep boxes that reach out by up to a pixel, as COCO's do; a target must lie inside.
    shares = np.clip(boxes.ltrb / np.array([width, height, width, height]), 0, 1)
    real = ~boxes.crowd & (shares[:, 2:] > shares[:, :2]).all(axis=1)
    return shares[real], boxes.classes[real]


def _targets(source: BoxSource, indices: Indices, filled: Iterable[list[_Objects]]) -> BoxTargets:
    images = [objects for part in filled for objects in part]
    return BoxTargets.pad(
        [torch.from_numpy(o.ltrb) for o in images],
        [torch.from_numpy(o.classes) for o in images],
        # In an epoch longer than the set, indices continue beyond it and samples repeat.
        (indices % len(source)).tolist(),
        [o.size for o in images],
    )


def _fill_ready(source: BoxSource, indices: Indices, out: Image) -> list[_Objects] | None:
    """Images that need no decoding, with their boxes; None where the source has none of them."""
    samples = source.copy_ready_images(indices, out)
    if samples is None:
        return None
    # Ready images are synthetic and all of one size.
    width, height = source.size(0) or (out.shape[2], out.shape[1])
    return [_objects(*_learnable(source.boxes(i), height, width), (height, width)) for i in samples.tolist()]


class BoxTrainReader(_TrainImages):
    """Augmented training images and their boxes."""

    _source: BoxSource

    def __init__(self, source: BoxSource, data: Data, augment: Augment, seed: int, decoder: str = "native") -> None:
        super().__init__(source, data, augment, decoder, lazy=augment.crop != "none")
        self._augment_boxes, self._own = BoxAugment(data, augment, seed), OwnTransforms(augment, seed)

    def fill(self, epoch: int, indices: Indices, out: Image) -> list[_Objects]:
        if (ready := _fill_ready(self._source, indices, out)) is not None:
            return ready
        return [
            self._read_row(indices, row, partial(self._augmented, epoch, index, out[row]))
            for row, index in enumerate(indices.tolist())
        ]

    def _augmented(self, epoch: int, index: int, out: Image, sample: int) -> _Objects:
        """Sample `sample` with the draws of `index`."""
        image: Croppable = self._open(sample)
        height, width = image.shape[:2]
        self._source.check_size(sample, width, height)
        ltrb, classes = _learnable(self._source.boxes(sample), height, width)
        # The index, not the sample: copies of a repeated sample are cropped differently.
        ltrb, inside = self._augment_boxes(epoch, index, image, ltrb, out)
        self._own(epoch, index, out, ltrb)
        return _objects(ltrb, classes[inside], (height, width))

    def targets(self, indices: Indices, filled: list[Any]) -> BoxTargets:
        return _targets(self._source, indices, filled)


class BoxEvalReader(_EvalImages):
    """Whole images at the network's size, their sides scaled separately, and their boxes."""

    _source: BoxSource

    def fill(self, epoch: int, indices: Indices, out: Image) -> list[_Objects]:
        if (ready := _fill_ready(self._source, indices, out)) is not None:
            return ready
        return [self._read(index, pixels) for index, pixels in zip(indices.tolist(), out, strict=True)]

    def _read(self, index: int, out: Image) -> _Objects:
        """A bad image becomes black. Where its size is unknown too, the size of the network's input is taken."""
        try:
            image = self._source.image(index)
            height, width = image.shape[:2]
            self._source.check_size(index, width, height)
            resize_into(image, out, self._data.interpolation)
        except (BadImage, OSError) as error:
            self.bad.report(index, error)
            # The boxes stay, so each object in the black image counts as a miss.
            out[...] = 0
            width, height = self._source.size(index) or (self.shape[1], self.shape[0])
        return _objects(*_learnable(self._source.boxes(index), height, width), (height, width))

    def targets(self, indices: Indices, filled: list[Any]) -> BoxTargets:
        return _targets(self._source, indices, filled)
