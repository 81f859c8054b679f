"""Another view of a source: its classes under the numbers of a model's outputs, or its images in grey or in colour.

The samples and their order stay those of the source; reading them is up to it.
"""

from typing import Any

import numpy as np

from vernier.data.decoding.decode import Image

from .arrays import ArraySource
from .base import Boxes, BoxSource, Indices, Labels, Source

_LUMA = np.array([19595, 38470, 7471], np.uint32)  # ITU-R 601 in 1/65536, as Pillow has it


class SourceView(Source):
    """The samples of another source."""

    def __init__(self, inner: Source) -> None:
        self._inner = inner
        self.classes, self.labels, self.channels = inner.classes, inner.labels, inner.channels
        self.notes, self.undivided, self.held_out = inner.notes, inner.undivided, inner.held_out

    def image(self, index: int) -> Image:
        return self._inner.image(index)

    def copy_ready_images(self, indices: Indices, out: Image) -> Indices | None:
        return self._inner.copy_ready_images(indices, out)

    def describe(self, index: int) -> str:
        return self._inner.describe(index)

    def name(self, index: int) -> str:
        return self._inner.name(index)

    def fingerprint(self) -> str:
        return self._inner.fingerprint()


class BoxView(SourceView, BoxSource):
    """The same for images with boxes."""

    _inner: BoxSource

    def __init__(self, inner: BoxSource) -> None:
        super().__init__(inner)
        self.category_ids = inner.category_ids

    def boxes(self, index: int) -> Boxes:
        return self._inner.boxes(index)

    def image_id(self, index: int) -> int:
        return self._inner.image_id(index)

    def size(self, index: int) -> tuple[int, int] | None:
        return self._inner.size(index)


# ------------------------------------------------------------------------------------------------------------- classes


class _MappedLabels:
    """Labels under other numbers."""

    def __init__(self, inner: Labels, numbers: Indices) -> None:
        self._inner, self._numbers = inner, numbers

    def __len__(self) -> int:
        return len(self._inner)

    def __getitem__(self, samples: Any) -> Any:
        return self._numbers[np.asarray(self._inner[samples], dtype=np.int64)]


class RenumberedSource(SourceView):
    """A source whose labels are those of other classes."""

    def __init__(self, inner: Source, classes: tuple[str, ...], numbers: tuple[int, ...]) -> None:
        super().__init__(inner)
        self.classes, self.labels = classes, _MappedLabels(inner.labels, np.array(numbers, np.int64))


class RenumberedBoxSource(BoxView):
    """The same for images with boxes."""

    def __init__(self, inner: BoxSource, classes: tuple[str, ...], numbers: tuple[int, ...]) -> None:
        super().__init__(inner)
        self.classes, self._numbers = classes, np.array(numbers, np.int64)
        free = iter(range(max(inner.category_ids) + 1, max(inner.category_ids) + 1 + len(classes)))
        ids = dict(zip(numbers, inner.category_ids, strict=True))
        self.category_ids = tuple(ids[i] if i in ids else next(free) for i in range(len(classes)))

    def boxes(self, index: int) -> Boxes:
        boxes = self._inner.boxes(index)
        return Boxes(boxes.ltrb, self._numbers[boxes.classes], boxes.crowd, boxes.areas)


def renumber_classes(source: Source, classes: tuple[str, ...], numbers: tuple[int, ...]) -> Source:
    """The source with other `classes`, of which its own are those at the positions `numbers`.

    Categories keep the ids of the annotations; classes that the source does not have get unused ids.
    """
    view = RenumberedBoxSource if isinstance(source, BoxSource) else RenumberedSource
    return view(source, classes, numbers)  # type: ignore[arg-type]


# ------------------------------------------------------------------------------------------------------------ channels


def to_grey(images: Image) -> Image:
    """The luma of one image or of many, rounded as Pillow does; the last axis has one channel."""
    return ((images @ _LUMA + 0x8000) >> 16).astype(np.uint8)[..., None]


def _convert(images: Image, channels: int) -> Image:
    return to_grey(images) if channels == 1 else np.repeat(images, 3, axis=-1)


class ConvertedSource(SourceView):
    """A source whose images are converted to grey or to colour."""

    def __init__(self, inner: Source, channels: int) -> None:
        super().__init__(inner)
        self.channels = channels

    def image(self, index: int) -> Image:
        return _convert(self._inner.image(index), self.channels)


class ConvertedBoxSource(ConvertedSource, BoxView):
    """The same for images with boxes."""


def with_channels(source: Source, channels: int) -> Source:
    """The source in grey (1 channel) or in colour (3), with a note where its images are not so themselves.

    A network of another number of channels is left to the checks of the model.
    """
    if {source.channels, channels} != {1, 3}:
        return source
    if isinstance(source, ArraySource):
        converted: Source = ArraySource(_convert(source.images, channels), source.labels, source.classes, source.origin)
    else:
        converted = (ConvertedBoxSource if isinstance(source, BoxSource) else ConvertedSource)(source, channels)
    change = (
        "the images are in colour, the network takes grey ones: they are converted (ITU-R 601 luma)"
        if channels == 1
        else "the images are grey, the network takes colour: the one channel is used for red, green and blue"
    )
    converted.notes = (*source.notes, change)
    return converted
