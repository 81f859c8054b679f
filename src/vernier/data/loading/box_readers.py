"""The detector's readers: they fill batches as `readers` do, and move the boxes with the pixels.

Targets have classes from 1 (0 is the background) and boxes as shares of the image. Crowds are left out. An image may
end up without any box. An image whose size differs from its annotation counts as bad, because its boxes
would be wrong.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from vernier.config import Augment, Data
from vernier.data.augment.boxes import BoxAugment, Shares
from vernier.data.augment.crop_flip import resize_into
from vernier.data.decoding.base import open_with_plugin
from vernier.data.decoding.decode import BadImage, Croppable, Image
from vernier.data.sources.base import Boxes, BoxSource, Indices

from .readers import EvalImages, TrainImages, require_encoded
from .targets import BoxTargets


@dataclass(frozen=True)
class Objects:
    """The objects of one augmented image: boxes as shares, classes from 1, and the original height and width."""

    ltrb: npt.NDArray[np.float32]
    classes: Indices
    size: tuple[int, int]


def _objects(ltrb: Shares, classes: Indices, size: tuple[int, int]) -> Objects:
    """Leaves out boxes so thin that they have no area in 32 bits."""
    # After rounding: two edges that differ in 64 bits can be equal in 32.
    rounded = ltrb.astype(np.float32)
    visible = (rounded[:, 2:] > rounded[:, :2]).all(axis=1)
    return Objects(rounded[visible], classes[visible] + 1, size)


def _check_size(source: BoxSource, index: int, width: int, height: int) -> None:
    """Raises BadImage where the image has another size than its annotation."""
    annotated = source.size(index)
    if annotated is not None and annotated != (width, height):
        raise BadImage(
            f"it has {width} x {height} pixels, but its annotation says {annotated[0]} x {annotated[1]} "
            "(turned by its EXIF orientation, or resized after it was annotated?)"
        )


def _learnable(boxes: Boxes, height: int, width: int) -> tuple[Shares, Indices]:
    """Boxes as shares of the whole image, and their classes; without crowds and boxes outside of the image."""
    # Sources keep boxes that reach out by up to a pixel, as COCO's do; a target must lie inside.
    shares = np.clip(boxes.ltrb / np.array([width, height, width, height]), 0, 1)
    real = ~boxes.crowd & (shares[:, 2:] > shares[:, :2]).all(axis=1)
    return shares[real], boxes.classes[real]


def _targets(source: BoxSource, indices: Indices, filled: Iterable[list[Objects]]) -> BoxTargets:
    images = [objects for part in filled for objects in part]
    return BoxTargets.pad(
        [torch.from_numpy(o.ltrb) for o in images],
        [torch.from_numpy(o.classes) for o in images],
        # In an epoch longer than the set, indices continue beyond it and samples repeat.
        (indices % len(source)).tolist(),
        [o.size for o in images],
    )


def _fill_ready(source: BoxSource, indices: Indices, out: Image) -> list[Objects] | None:
    """Images that need no decoding, with their boxes; None where the source has none of them."""
    samples = source.copy_ready_images(indices, out)
    if samples is None:
        return None
    # Ready images are synthetic and all of one size.
    width, height = source.size(0) or (out.shape[2], out.shape[1])
    return [_objects(*_learnable(source.boxes(i), height, width), (height, width)) for i in samples.tolist()]


class BoxTrainReader(TrainImages):
    """Augmented training images and their boxes."""

    _source: BoxSource

    def __init__(self, source: BoxSource, data: Data, augment: Augment, seed: int, *, compiled: bool = False) -> None:
        super().__init__(source, data, augment)
        self._augment_boxes = BoxAugment(data, augment, seed)
        # Without a crop every pixel is needed, and a lazy image would save nothing.
        self._open: Callable[[int], Croppable] = source.image if augment.crop == "none" else source.lazy_image
        if compiled:
            self._open = open_with_plugin("compiled", require_encoded(source, "compiled").lazy_image)

    def fill(self, epoch: int, indices: Indices, out: Image) -> list[Objects]:
        if (ready := _fill_ready(self._source, indices, out)) is not None:
            return ready
        return [
            self._read_row(indices, row, partial(self._augmented, epoch, index, out[row]))
            for row, index in enumerate(indices.tolist())
        ]

    def _augmented(self, epoch: int, index: int, out: Image, sample: int) -> Objects:
        """Sample `sample` with the draws of `index`."""
        image: Croppable = self._open(sample)
        height, width = image.shape[:2]
        _check_size(self._source, sample, width, height)
        ltrb, classes = _learnable(self._source.boxes(sample), height, width)
        # The index, not the sample: copies of a repeated sample are cropped differently.
        ltrb, inside = self._augment_boxes(epoch, index, image, ltrb, out)
        return _objects(ltrb, classes[inside], (height, width))

    def targets(self, indices: Indices, filled: list[Any]) -> BoxTargets:
        return _targets(self._source, indices, filled)


class BoxEvalReader(EvalImages):
    """Whole images at the network's size, their sides scaled separately, and their boxes."""

    _source: BoxSource

    def fill(self, epoch: int, indices: Indices, out: Image) -> list[Objects]:
        if (ready := _fill_ready(self._source, indices, out)) is not None:
            return ready
        return [self._read(index, pixels) for index, pixels in zip(indices.tolist(), out, strict=True)]

    def _read(self, index: int, out: Image) -> Objects:
        """A bad image becomes black. Where its size is unknown too, the size of the network's input is taken."""
        try:
            image = self._source.image(index)
            height, width = image.shape[:2]
            _check_size(self._source, index, width, height)
            resize_into(image, out, self._data.interpolation)
        except (BadImage, OSError) as error:
            self.bad.report(index, error)
            # The boxes stay, so each object in the black image counts as a miss.
            out[...] = 0
            width, height = self._source.size(index) or (self.shape[1], self.shape[0])
        return _objects(*_learnable(self._source.boxes(index), height, width), (height, width))

    def targets(self, indices: Indices, filled: list[Any]) -> BoxTargets:
        return _targets(self._source, indices, filled)
