"""Readers of images with boxes: they fill batches as `loader`'s readers do, and say where the boxes have gone.

Targets have classes from 1 (0 is the background) and boxes as shares of the image. Crowds are no objects to learn: they
are left out. An image may be left without any box. An image of another size than its annotation says counts as bad, as
its boxes would be in the wrong places.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from vernier.config import Augment, Data, train_px
from vernier.data.augment.boxes import BoxAugment, Shares
from vernier.data.augment.crop_flip import resize_into
from vernier.data.decoding.decode import BadImage, Croppable, Image
from vernier.data.loading.bad_images import BadImages, parse_limit, substitutes
from vernier.data.loading.targets import BoxTargets
from vernier.data.sources.base import Boxes, BoxSource, Indices
from vernier.errors import RunFailed


@dataclass(frozen=True)
class Seen:
    """What became of one image's objects: boxes as shares, classes from 1, and the original height and width."""

    ltrb: npt.NDArray[np.float32]
    classes: Indices
    size: tuple[int, int]


def _seen(ltrb: Shares, classes: Indices, size: tuple[int, int]) -> Seen:
    """Boxes so thin that 32 bits do not see their area are left out."""
    rounded = ltrb.astype(np.float32)
    visible = (rounded[:, 2:] > rounded[:, :2]).all(axis=1)
    return Seen(rounded[visible], classes[visible] + 1, size)


def _agrees(source: BoxSource, index: int, width: int, height: int) -> None:
    """Raises BadImage where boxes and pixels cannot belong together."""
    said = source.size(index)
    if said is not None and said != (width, height):
        raise BadImage(
            f"it has {width} x {height} pixels, but its annotation says {said[0]} x {said[1]} "
            "(turned by its EXIF orientation, or resized after it was annotated?)"
        )


def _objects(boxes: Boxes, height: int, width: int) -> tuple[Shares, Indices]:
    """Boxes as shares of the image as it is, and their classes; without crowds and what lies outside."""
    shares = np.clip(boxes.ltrb / np.array([width, height, width, height]), 0, 1)
    real = ~boxes.crowd & (shares[:, 2:] > shares[:, :2]).all(axis=1)
    return shares[real], boxes.classes[real]


def _targets(source: BoxSource, indices: Indices, filled: Iterable[list[Seen]]) -> BoxTargets:
    seen = [one for part in filled for one in part]
    return BoxTargets.pad(
        [torch.from_numpy(s.ltrb) for s in seen],
        [torch.from_numpy(s.classes) for s in seen],
        (indices % len(source)).tolist(),
        [s.size for s in seen],
    )


def _fill_ready(source: BoxSource, indices: Indices, out: Image) -> list[Seen] | None:
    """Images that need no decoding, with their boxes; None where the source has none of them."""
    samples = source.copy_ready_images(indices, out)
    if samples is None:
        return None
    width, height = source.size(0) or (out.shape[2], out.shape[1])
    return [_seen(*_objects(source.boxes(i), height, width), (height, width)) for i in samples.tolist()]


class BoxTrainReader:
    """Augmented training images and their boxes."""

    def __init__(self, source: BoxSource, data: Data, augment: Augment, seed: int) -> None:
        self._source, self._data, self._augment = source, data, augment
        self.bad = BadImages(parse_limit(data.max_bad_images, len(source)), len(source))
        self._change = BoxAugment(data, augment, seed)
        self._open = source.image if augment.crop == "none" else source.lazy_image
        self.shape = (data.image_px, data.image_px, source.channels)

    def shape_at(self, epoch: int) -> tuple[int, int, int]:
        px = train_px(self._data, self._augment, epoch)
        return px, px, self._source.channels

    def fill(self, epoch: int, indices: Indices, out: Image) -> list[Seen]:
        if (ready := _fill_ready(self._source, indices, out)) is not None:
            return ready
        seen = []
        for place, index in enumerate(indices.tolist()):
            sample = index % len(self._source)
            try:
                seen.append(self._one(epoch, index, sample, out[place]))
            except (BadImage, OSError) as error:
                indices[place], other = self._substitute(epoch, index, error, out[place])
                seen.append(other)
        return seen

    def _one(self, epoch: int, index: int, sample: int, out: Image) -> Seen:
        """Sample `sample` with the draws of `index`."""
        image: Croppable = self._open(sample)
        height, width = image.shape[:2]
        _agrees(self._source, sample, width, height)
        ltrb, classes = _objects(self._source.boxes(sample), height, width)
        ltrb, kept = self._change(epoch, index, image, ltrb, out)
        return _seen(ltrb, classes[kept], (height, width))

    def _substitute(self, epoch: int, index: int, error: Exception, out: Image) -> tuple[int, Seen]:
        """Another image with its boxes in the place of a bad one, and which it is."""
        sample = index % len(self._source)
        self.bad.report(sample, self._source.describe(sample), str(error))
        for other in substitutes(sample, len(self._source)):
            try:
                return other, self._one(epoch, index, other, out)
            except (BadImage, OSError) as also_bad:
                self.bad.report(other, self._source.describe(other), str(also_bad))
        raise RunFailed(f"No image that can be read was found to stand in for {self._source.describe(sample)}.")

    def targets(self, indices: Indices, filled: list[Any]) -> BoxTargets:
        return _targets(self._source, indices, filled)


class BoxEvalReader:
    """Whole images at the network's size, their sides scaled separately, and their boxes; the epoch plays no part."""

    def __init__(self, source: BoxSource, data: Data) -> None:
        self._source, self._mode = source, data.interpolation
        self.bad = BadImages(parse_limit(data.max_bad_images, len(source)), len(source))
        self.shape = (data.eval_px, data.eval_px, source.channels)

    def shape_at(self, epoch: int) -> tuple[int, int, int]:
        return self.shape

    def fill(self, epoch: int, indices: Indices, out: Image) -> list[Seen]:
        if (ready := _fill_ready(self._source, indices, out)) is not None:
            return ready
        return [self._one(index, out[place]) for place, index in enumerate(indices.tolist())]

    def _one(self, index: int, out: Image) -> Seen:
        """A bad image is black and keeps its place; without a known size it counts as large as the network's input."""
        try:
            image = self._source.image(index)
            height, width = image.shape[:2]
            _agrees(self._source, index, width, height)
            resize_into(image, out, self._mode)
        except (BadImage, OSError) as error:
            self.bad.report(index, self._source.describe(index), str(error))
            out[...] = 0
            width, height = self._source.size(index) or (self.shape[1], self.shape[0])
        return _seen(*_objects(self._source.boxes(index), height, width), (height, width))

    def targets(self, indices: Indices, filled: list[Any]) -> BoxTargets:
        return _targets(self._source, indices, filled)
