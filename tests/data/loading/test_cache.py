from pathlib import Path

import numpy as np
import pytest

from vernier.config import Augment, Data
from vernier.data.loading import cache
from vernier.data.loading.cache import CachedSource, cache_in_memory, decoded_bytes
from vernier.data.loading.readers import TrainReader
from vernier.data.sources import EncodedSource, open_split


def _source(shapes: Path) -> EncodedSource:
    source = open_split(str(shapes), "train")
    assert isinstance(source, EncodedSource)
    return source


def test_pixels_are_the_same_with_and_without(shapes: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = _source(shapes)
    monkeypatch.setattr(cache, "available_bytes", lambda: 100_000_000)
    cached, decision = cache_in_memory(source, 0.25)
    assert isinstance(cached, CachedSource)
    assert decision.cache == "memory"
    batches = []
    for where in (source, cached, cached):
        out = np.empty((160, 24, 24, 3), np.uint8)
        TrainReader(where, Data(image_px=24), Augment(), 7).fill(1, np.arange(160), out)
        batches.append(out)
    assert np.array_equal(batches[0], batches[1])
    monkeypatch.setattr(type(source), "read", lambda *_: pytest.fail("decoded again"))
    TrainReader(cached, Data(image_px=24), Augment(), 7).fill(1, np.arange(160), out)
    assert np.array_equal(batches[0], out)


def test_what_does_not_fit_is_not_kept(shapes: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = _source(shapes)
    needed = decoded_bytes(source)
    assert 160 * 32 * 32 * 3 <= needed < 160 * 32 * 32 * 3.5
    for free, share, procs, fits in (
        (4 * needed, 0.25, 1, False),
        (8 * needed, 0.25, 1, True),
        (8 * needed, 0.25, 4, False),
    ):
        monkeypatch.setattr(cache, "available_bytes", lambda free=free: free)
        cached, _ = cache_in_memory(source, share, procs)
        assert isinstance(cached, CachedSource) == fits
    assert cache_in_memory(source, 0.0)[0] is source
    limited = CachedSource(source, 10 * 32 * 32 * 3)
    for i in range(160):
        limited.image(i)
    assert sum(k is not None for k in limited._cache) == 10
