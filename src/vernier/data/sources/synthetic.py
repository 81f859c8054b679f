"""Images that are no pictures: made once from a seed, for measuring everything but the loader.

`synthetic` gives a different batch each step out of a small pool; `static` the same batch every time. Neither is augmented:
what a step costs is a copy.
"""

import threading

import numpy as np

from vernier.data.decode import Croppable, Image
from vernier.data.sources.base import Indices, Source, fingerprint_of

CLASSES = 1000
SAMPLES = {"train": 12_800, "val": 1_280}
POOL = 256


class SyntheticSource(Source):
    """Random pixels in whatever size is asked for."""

    labels: Indices

    def __init__(self, split: str, *, static: bool = False) -> None:
        self._split, self._static = split, static
        self.classes = tuple(f"class-{i:04d}" for i in range(CLASSES))
        self.labels = np.arange(SAMPLES[split], dtype=np.int64) % CLASSES
        self._pools: dict[tuple[int, ...], Image] = {}
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self.labels)

    def fill(self, indices: Indices, out: Image) -> None:
        """Copy images of the size of `out`."""
        pool = self._pool(out.shape[1:])
        np.take(pool, np.arange(len(out)) % POOL if self._static else indices % POOL, axis=0, out=out)

    def _pool(self, shape: tuple[int, ...]) -> Image:
        with self._lock:
            if shape not in self._pools:
                self._pools[shape] = np.random.default_rng(0).integers(0, 256, (POOL, *shape), dtype=np.uint8)
            pool: Image = self._pools[shape]
        return pool

    def image(self, index: int) -> Image:
        out = np.empty((1, 224, 224, 3), np.uint8)
        self.fill(np.array([index]), out)
        image: Image = out[0]
        return image

    def picture(self, index: int) -> Croppable:
        return self.image(index)

    def describe(self, index: int) -> str:
        return f"{'static' if self._static else 'synthetic'}/{self._split}[{index}]"

    def fingerprint(self) -> str:
        return fingerprint_of(b"synthetic", self._split.encode(), bytes([self._static]))
