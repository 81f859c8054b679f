"""A quick look at a data set: sizes and classes of its images, and boxes drawn into images.

What `vernier data inspect` and `verify` add to it plugs in (`vernier.compat.preparing`).
"""

from collections import Counter

import numpy as np
import numpy.typing as npt

from vernier.frozen import frozen

from .decoding.decode import BadImage, decode, read_orientation, read_size
from .decoding.jpeg_slicing import EOI, SOI
from .sources import EncodedSource, Source
from .sources.base import BoxSource, spread_evenly

_BOX_COLORS = ((230, 60, 60), (60, 160, 230), (80, 190, 90), (235, 170, 40), (170, 90, 210), (40, 190, 190))


@frozen
class _Glance:
    """What the header of an image shows."""

    size: tuple[int, int] | None = None
    """Width and height; None if it cannot be used."""
    turned: bool = False
    """Its EXIF orientation turns it."""
    problem: str = ""


def _glance(source: Source, index: int) -> _Glance:
    """Look at an image. Reads its whole file, but decodes only one that ends early."""
    try:
        if not isinstance(source, EncodedSource):
            height, width = source.image(index).shape[:2]
            return _Glance(size=(width, height))
        encoded = source.read(index)
        width, height = read_size(encoded, exif=source.exif)
        # A JPEG without its end marker is decoded: only that tells whether the missing part matters.
        if encoded[:2] == SOI and not encoded.endswith(EOI):
            decode(encoded)
        if isinstance(source, BoxSource):
            source.check_size(index, width, height)
        return _Glance(size=(width, height), turned=source.exif and read_orientation(encoded) != 1)
    except (BadImage, OSError) as error:
        return _Glance(problem=f"{source.describe(index)}: {error}")


def glance_at_some(source: Source, sample: int) -> list[_Glance]:
    """Look at up to `sample` images, evenly spread over a set."""
    return [_glance(source, index) for index in spread_evenly(len(source), sample)]


def count_classes(source: Source) -> list[int]:
    """Boxes per class where the source has boxes, otherwise images per class."""
    counts: Counter[int] = Counter()
    if isinstance(source, BoxSource):
        for i in range(len(source)):
            counts.update(source.boxes(i).classes.tolist())
    else:
        counts.update(source.all_labels().tolist())
    # With zeros: a class without images must show up as the rarest.
    return [counts.get(i, 0) for i in range(len(source.classes))]


def outline_boxes(images: npt.NDArray[np.uint8], ltrb: npt.NDArray[np.float32], classes: npt.NDArray[np.int64]) -> None:
    """Draw the objects of a batch into its images, [samples, height, width, channels]; a class has one color.

    Boxes [samples, objects, 4] are shares of the image; objects of class 0 are padding.
    """
    height, width, channels = images.shape[1:]
    # Boxes are left, top, right, bottom.
    scale = np.array([width, height, width, height])
    for image, boxes, kinds in zip(images, np.rint(ltrb * scale).astype(int), classes.tolist(), strict=True):
        for box, kind in zip(boxes, kinds, strict=True):
            if not kind:
                continue
            # At least one pixel inside the image, also for a box thinner than that or at the edge.
            left, top = np.clip(box[:2], 0, (width - 1, height - 1))
            right, bottom = np.clip(box[2:] - 1, (left, top), (width - 1, height - 1))
            # Classes count from 1 here and from 0 in `_paste`: a class has the same color in both.
            colour = np.array(_BOX_COLORS[(kind - 1) % len(_BOX_COLORS)], np.uint8)[:channels]
            image[top : bottom + 1, [left, right]] = colour
            image[[top, bottom], left : right + 1] = colour
