"""Small sets that are read into memory as a whole: Fashion-MNIST's IDX files and CIFAR-10's binary records."""

import gzip
import math
import zlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from vernier.data.decoding.decode import Image
from vernier.errors import ConfigError, NoSuchSplit
from vernier.references import use

from .base import Files, Indices, Source, fingerprint_of


class ArraySource(Source):
    """Decoded uint8 images in memory, [samples, height, width, channels]."""

    labels: Indices
    paths: Sequence[Path] = ()
    """The files that it was read from."""

    def __init__(self, images: Image, labels: Indices, classes: tuple[str, ...], name: str) -> None:
        if images.ndim != 4 or len(images) != len(labels):
            raise ConfigError(f"{name}: {len(images)} images but {len(labels)} labels.")
        if len(labels) and not 0 <= labels.min() <= labels.max() < len(classes):
            raise ConfigError(
                f"{name}: labels run from {labels.min()} to {labels.max()}, but there are {len(classes)} classes."
            )
        self.images, self.labels, self.classes, self.origin = images, labels, classes, name
        self.channels = images.shape[3]

    def image(self, index: int) -> Image:
        image: Image = self.images[index]
        return image

    def describe(self, index: int) -> str:
        return f"{self.origin}[{index}]"

    def files(self) -> Files:
        return len(self.paths), lambda number: str(self.paths[number])

    def fingerprint(self) -> str:
        classes = "\0".join(self.classes).encode()
        return fingerprint_of(self.labels.tobytes(), classes, str(self.images.shape).encode())


FASHION_CLASSES = (
    "T-shirt/top",
    "Trouser",
    "Pullover",
    "Dress",
    "Coat",
    "Sandal",
    "Shirt",
    "Sneaker",
    "Bag",
    "Ankle boot",
)
CIFAR10_CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")


def _read_idx(path: Path) -> Image:
    """An IDX file of unsigned bytes, gzipped or not."""
    try:
        raw = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    except (OSError, EOFError, zlib.error) as error:
        raise ConfigError(f"Cannot read {path}: {error}.") from None
    # Two zeros, the type (8 is unsigned bytes), the number of axes, then the length of each axis in four bytes.
    if len(raw) < 4 or raw[:3] != b"\x00\x00\x08" or len(raw) < 4 + 4 * raw[3]:
        raise ConfigError(f"{path} is not an IDX file of unsigned bytes.")
    rank = raw[3]
    shape = tuple(int.from_bytes(raw[4 + 4 * i : 8 + 4 * i], "big") for i in range(rank))
    body = np.frombuffer(raw, dtype=np.uint8, offset=4 + 4 * rank)
    if body.size != math.prod(shape):
        raise ConfigError(f"{path} is truncated: its header says {math.prod(shape)} bytes, but it has {body.size}.")
    return body.reshape(shape)


def open_fashion_mnist(root: Path, split: str) -> ArraySource:
    """Fashion-MNIST (or MNIST) as published: two IDX files per split."""
    stem = "train" if split == "train" else "t10k"
    if not any(root.glob(f"{stem}-*-ubyte*")):
        raise NoSuchSplit(_missing(root, f"{stem}-images-idx3-ubyte.gz"))
    names = f"{stem}-images-idx3-ubyte", f"{stem}-labels-idx1-ubyte"
    paths = [_find_one(root, f"{name}.gz", name) for name in names]
    images, labels = map(_read_idx, paths)
    if images.ndim != 3 or labels.shape != images.shape[:1] or not len(labels):
        raise ConfigError(f"{root}: the images {images.shape} and labels {labels.shape} of {stem} are not one set.")
    return _source(images[..., None], labels, FASHION_CLASSES, paths, f"{root.name}/{stem}", split)


def open_cifar10(root: Path, split: str) -> ArraySource:
    """CIFAR-10's binary version: records of one label byte and 3 x 32 x 32 pixels."""
    root = root / "cifar-10-batches-bin" if (root / "cifar-10-batches-bin").is_dir() else root
    names = [f"data_batch_{i}.bin" for i in range(1, 6)] if split == "train" else ["test_batch.bin"]
    if not any((root / name).is_file() for name in names):
        raise NoSuchSplit(_missing(root, names[0]))
    paths = [_find_one(root, name) for name in names]
    parts = [np.frombuffer(path.read_bytes(), dtype=np.uint8) for path in paths]
    if any(p.size == 0 or p.size % 3073 for p in parts):
        raise ConfigError(f"{root}: a CIFAR-10 file is not a whole number of 3,073-byte records.")
    records = np.concatenate(parts).reshape(-1, 3073)
    images = np.ascontiguousarray(records[:, 1:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1))
    name = f"{root.name}/{'train' if split == 'train' else 'test'}"
    return _source(images, records[:, 0], CIFAR10_CLASSES, paths, name, split)


def _source(
    images: Image, labels: Image, classes: tuple[str, ...], paths: list[Path], name: str, split: str
) -> ArraySource:
    """A split of a set with ten classes. Raises ConfigError for any other label."""
    root = paths[0].parent
    if labels.max() > 9:
        raise ConfigError(f"{root}: a label is {labels.max()}; there are ten classes, 0 to 9. The files are damaged.")
    source = ArraySource(images, labels.astype(np.int64), classes, name)
    source.paths = paths
    if split == "val":
        source.note_test_as_validation(root)
    return source


def _find_one(root: Path, *names: str) -> Path:
    for name in names:
        if (root / name).is_file():
            return root / name
    raise ConfigError(_missing(root, names[0]))


def _missing(root: Path, name: str) -> str:
    return f"{root} has no {name}. Give the folder that contains it: {use('data.source', slot='PATH')}."
