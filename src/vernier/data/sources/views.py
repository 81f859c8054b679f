"""Another view of a source: classes under the numbers of a model's outputs, gray or color images, images in memory.

The samples and their order stay those of the source; reading them is up to it. A cache is for sets that are small
enough: from the second epoch on nothing is decoded. It is decided once, when the set is opened, from the sizes of a
sample of its images; pixels and order are the same with and without. A set that does not fit is not cached at all: a
part of it would help little and cost all of the memory.
"""

from typing import Any, Literal

import numpy as np

from vernier.data.decoding.decode import BadImage, Image, read_size
from vernier.frozen import frozen
from vernier.host_memory import available_bytes
from vernier.records.codec import omitted

from .arrays import ArraySource
from .base import Boxes, BoxSource, EncodedSource, Files, Indices, Labels, Source, spread_evenly
from .containers.shards import ShardSource

_LUMA = np.array([19595, 38470, 7471], np.uint32)  # ITU-R 601 in 1/65536, as Pillow has it


class _SourceView(Source):
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

    def files(self) -> Files:
        return self._inner.files()


class _BoxView(_SourceView, BoxSource):
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


class _RenumberedSource(_SourceView):
    """A source whose labels are those of other classes."""

    def __init__(self, inner: Source, classes: tuple[str, ...], numbers: tuple[int, ...]) -> None:
        super().__init__(inner)
        self.classes, self.labels = classes, _MappedLabels(inner.labels, np.array(numbers, np.int64))


class _RenumberedBoxSource(_BoxView):
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
    view = _RenumberedBoxSource if isinstance(source, BoxSource) else _RenumberedSource
    return view(source, classes, numbers)  # type: ignore[arg-type]


# ------------------------------------------------------------------------------------------------------------ channels


def to_grey(images: Image) -> Image:
    """The luma of one image or of many, rounded as Pillow does; the last axis has one channel."""
    return ((images @ _LUMA + 0x8000) >> 16).astype(np.uint8)[..., None]


def _convert(images: Image, channels: int) -> Image:
    return to_grey(images) if channels == 1 else np.repeat(images, 3, axis=-1)


class _ConvertedSource(_SourceView):
    """A source whose images are converted to gray or to color."""

    def __init__(self, inner: Source, channels: int) -> None:
        super().__init__(inner)
        self.channels = channels

    def image(self, index: int) -> Image:
        return _convert(self._inner.image(index), self.channels)


class _ConvertedBoxSource(_ConvertedSource, _BoxView):
    """The same for images with boxes."""


def with_channels(source: Source, channels: int) -> Source:
    """Returns the source in gray (1 channel) or in color (3), with a note if its images are converted.

    A network of another number of channels is left to the checks of the model.
    """
    if {source.channels, channels} != {1, 3}:
        return source
    if isinstance(source, ArraySource):
        converted: Source = ArraySource(_convert(source.images, channels), source.labels, source.classes, source.origin)
    else:
        converted = (_ConvertedBoxSource if isinstance(source, BoxSource) else _ConvertedSource)(source, channels)
    change = (
        "the images are in colour, the network takes grey ones: they are converted (ITU-R 601 luma)"
        if channels == 1
        else "the images are grey, the network takes colour: the one channel is used for red, green and blue"
    )
    converted.notes = (*source.notes, change)
    return converted


_SAMPLE = 200
_SHARDS = 4
_OVERHEAD_BYTES = 200  # of an array and its slot in the list
_CAUTION = 1.1  # the sample may have missed large ones


class _CachedSource(_SourceView):
    """A source whose decoded images stay in memory, up to a number of bytes."""

    def __init__(self, inner: Source, limit_bytes: int) -> None:
        super().__init__(inner)
        self._left = limit_bytes
        self._cache: list[Image | None] = [None] * len(inner)

    def image(self, index: int) -> Image:
        image = self._cache[index]
        if image is None:
            image = self._inner.image(index)
            if image.nbytes <= self._left:  # two threads may both add here: the limit is soft by one image each
                self._left -= image.nbytes
                self._cache[index] = image
        return image


class _CachedBoxSource(_CachedSource, _BoxView):
    """The same for images with boxes."""


def _decoded_bytes(source: EncodedSource) -> int:
    """The size of all decoded images, estimated from the headers of a sample or the tables of a few shards."""
    areas = _areas_in_tables(source) if isinstance(source, ShardSource) else _areas_of_headers(source)
    return int(len(source) * (float(np.mean(areas)) * source.channels + _OVERHEAD_BYTES)) if areas else 0


def _areas_in_tables(source: ShardSource) -> list[int]:
    """Without reading a shard, which may be remote."""
    tables = [source.table(which) for which in spread_evenly(len(source.shards), _SHARDS)]
    areas = np.concatenate([table["width"].astype(np.int64) * table["height"] for table in tables])
    return [area for area in areas.tolist() if area]


def _areas_of_headers(source: EncodedSource) -> list[int]:
    areas = []
    for index in spread_evenly(len(source), _SAMPLE):
        try:
            width, height = read_size(source.read(index))
            areas.append(width * height)
        except (BadImage, OSError):
            continue
    return areas


@frozen
class CacheDecision:
    """Whether decoded images stay in memory, and the two sizes that decided it."""

    cache: Literal["off", "memory", "does not fit"]
    cache_needs_bytes: int | None = omitted()
    cache_limit_bytes: int | None = omitted()


def cache_in_memory(source: Source, share: float, processes: int = 1) -> tuple[Source, CacheDecision]:
    """The source, cached in memory when all of it fits into `share` of the free memory, and the decision."""
    if share <= 0 or not isinstance(source, EncodedSource):
        return source, CacheDecision(cache="off")
    limit, needed = int(share * available_bytes() / processes), _decoded_bytes(source)
    if not needed or needed * _CAUTION > limit:
        return source, CacheDecision(cache="does not fit", cache_needs_bytes=needed, cache_limit_bytes=limit)
    cached = _CachedBoxSource(source, limit) if isinstance(source, BoxSource) else _CachedSource(source, limit)
    return cached, CacheDecision(cache="memory", cache_needs_bytes=needed, cache_limit_bytes=limit)
