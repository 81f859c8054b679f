"""Random pixels with labels or boxes, made once from a seed: for measuring everything except reading and decoding.

`synthetic` gives a different batch every step from a small pool, `static` the same batch every time. Neither is
augmented: a batch costs one copy.
"""

import threading

import numpy as np

from vernier.data.decoding.decode import Image

from .base import Boxes, BoxSource, Indices, Source, fingerprint_of

CLASSES = 1000
SAMPLES = {"train": 12_800, "val": 1_280}
POOL = 256
SIDE_PX = 224
BOX_CLASSES = 80
MAX_BOXES = 15


class SyntheticSource(Source):
    """Random images in any size."""

    labels: Indices

    def __init__(self, split: str, *, static: bool = False) -> None:
        self._split, self._static = split, static
        self.classes = tuple(f"class-{i:04d}" for i in range(CLASSES))
        self.labels = np.arange(SAMPLES[split], dtype=np.int64) % CLASSES
        self._pools: dict[tuple[int, ...], Image] = {}
        self._lock = threading.Lock()

    def copy_ready_images(self, indices: Indices, out: Image) -> Indices:
        """Copy images of the size of `out` from the pool and return their positions in it."""
        in_pool = np.arange(len(indices)) % POOL if self._static else indices % POOL
        np.take(self._pool(out.shape[1:]), in_pool, axis=0, out=out)
        return in_pool

    def _pool(self, shape: tuple[int, ...]) -> Image:
        # All threads of the loader ask at first, and a pool takes a while and some 40 MB.
        with self._lock:
            if shape not in self._pools:
                self._pools[shape] = np.random.default_rng(0).integers(0, 256, (POOL, *shape), dtype=np.uint8)
            pool: Image = self._pools[shape]
        return pool

    def image(self, index: int) -> Image:
        out = np.empty((1, SIDE_PX, SIDE_PX, 3), np.uint8)
        self.copy_ready_images(np.array([index]), out)
        image: Image = out[0]
        return image

    def describe(self, index: int) -> str:
        return f"{'static' if self._static else 'synthetic'}/{self._split}[{index}]"

    def fingerprint(self) -> str:
        return fingerprint_of(b"synthetic", self._split.encode(), bytes([self._static]))


class SyntheticBoxSource(SyntheticSource, BoxSource):
    """The same images with random boxes: 1 to 15 per image, of 80 classes, as many as COCO has."""

    def __init__(self, split: str, *, static: bool = False) -> None:
        super().__init__(split, static=static)
        self.classes = tuple(f"class-{i:02d}" for i in range(BOX_CLASSES))
        self.category_ids = tuple(range(1, BOX_CLASSES + 1))
        self.labels = np.full(len(self.labels), -1, np.int64)
        rng = np.random.default_rng(1)
        self._boxes = [_random_boxes(rng) for _ in range(POOL)]

    def boxes(self, index: int) -> Boxes:
        """The boxes of an image of SIDE_PX pixels."""
        return self._boxes[index % POOL]

    def size(self, index: int) -> tuple[int, int]:
        return SIDE_PX, SIDE_PX


def _random_boxes(rng: np.random.Generator) -> Boxes:
    count = int(rng.integers(1, MAX_BOXES + 1))
    sizes = rng.uniform(0.05, 0.6, (count, 2)) * SIDE_PX
    corner = rng.uniform(0, 1, (count, 2)) * (SIDE_PX - sizes)
    ltrb = np.concatenate([corner, corner + sizes], axis=1)
    return Boxes(ltrb, rng.integers(0, BOX_CLASSES, count), np.zeros(count, np.bool_), sizes.prod(axis=1))
