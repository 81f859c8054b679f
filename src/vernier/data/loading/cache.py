"""A cache of decoded images in memory, for sets that are small enough: from the second epoch on nothing is decoded.

Decided once, when the set is opened, from the sizes of a sample of its images; pixels and order are the same with and
without. A set that does not fit is not cached at all: a part of it would help little and cost all of the memory.
"""

from typing import Literal

import numpy as np

from vernier.data.decoding.decode import BadImage, Image, read_size
from vernier.data.sources.base import BoxSource, EncodedSource, Source, spread_evenly
from vernier.data.sources.containers.shards import ShardSource
from vernier.data.sources.views import BoxView, SourceView
from vernier.frozen import frozen
from vernier.host_memory import available_bytes
from vernier.records.codec import omitted

_SAMPLE = 200
_SHARDS = 4
_OVERHEAD_BYTES = 200  # of an array and its slot in the list
_CAUTION = 1.1  # the sample may have missed large ones


class CachedSource(SourceView):
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


class CachedBoxSource(CachedSource, BoxView):
    """The same for images with boxes."""


def decoded_bytes(source: EncodedSource) -> int:
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
    limit, needed = int(share * available_bytes() / processes), decoded_bytes(source)
    if not needed or needed * _CAUTION > limit:
        return source, CacheDecision(cache="does not fit", cache_needs_bytes=needed, cache_limit_bytes=limit)
    cached = CachedBoxSource(source, limit) if isinstance(source, BoxSource) else CachedSource(source, limit)
    return cached, CacheDecision(cache="memory", cache_needs_bytes=needed, cache_limit_bytes=limit)
