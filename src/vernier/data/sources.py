"""Where samples come from: one small reader per format, all giving an image and a label by index.

A source knows nothing of order, epochs, processes or augmentation. Encoded sources give bytes; array sources hold
decoded images. `open_split` turns what a recipe or `--data` names into one.
"""

import gzip
import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import numpy as np
import numpy.typing as npt

from vernier.errors import ConfigError, did_you_mean

IMAGE_SUFFIXES = frozenset({".jpg", ".jpeg", ".png", ".bmp", ".webp", ".ppm", ".tif", ".tiff"})
SPLIT_FOLDERS = {"train": ("train",), "val": ("val", "validation", "test")}


class Source(Protocol):
    """Images and labels by index."""

    classes: tuple[str, ...]
    labels: npt.NDArray[np.int64]
    channels: int

    def __len__(self) -> int: ...

    def describe(self, index: int) -> str:
        """The sample's name for messages: a path, or a position in a file."""
        ...

    def fingerprint(self) -> str:
        """Changes when the samples, their order or their classes do (not when only pixels do)."""
        ...


class EncodedSource(Source, Protocol):
    def read(self, index: int) -> bytes:
        """The encoded image."""
        ...


def _fingerprint(*parts: bytes) -> str:
    total = hashlib.sha256()
    for part in parts:
        total.update(len(part).to_bytes(8, "little"))
        total.update(part)
    return total.hexdigest()[:16]


class FolderSource:
    """The ImageNet layout: one folder per class, in sorted order. Paths are kept as one byte string, not as objects."""

    channels = 3

    def __init__(self, root: Path) -> None:
        self.root = root
        folders = sorted(p for p in root.iterdir() if p.is_dir() and not p.name.startswith("."))
        self.classes = tuple(p.name for p in folders)
        names: list[str] = []
        labels: list[int] = []
        for label, folder in enumerate(folders):
            found = sorted(_images_below(folder))
            names += [f"{folder.name}/{name}" for name in found]
            labels += [label] * len(found)
        if not names:
            raise ConfigError(
                f"{root} holds no images: expected one folder per class with {', '.join(sorted(IMAGE_SUFFIXES))} files."
            )
        empty = [c for i, c in enumerate(self.classes) if i not in set(labels)]
        if empty:
            raise ConfigError(
                f"{root}: the class folder(s) {', '.join(empty[:5])} hold no images. Remove or fill them."
            )
        encoded = [n.encode() for n in names]
        self._names = b"".join(encoded)
        self._ends = np.cumsum([len(n) for n in encoded])
        self.labels = np.asarray(labels, dtype=np.int64)

    def __len__(self) -> int:
        return len(self.labels)

    def _name(self, index: int) -> str:
        start = int(self._ends[index - 1]) if index else 0
        return self._names[start : int(self._ends[index])].decode()

    def read(self, index: int) -> bytes:
        with open(os.path.join(self.root, self._name(index)), "rb", buffering=0) as f:
            return f.read()

    def describe(self, index: int) -> str:
        return str(self.root / self._name(index))

    def fingerprint(self) -> str:
        return _fingerprint(self._names, self.labels.tobytes(), "\0".join(self.classes).encode())


def _images_below(folder: Path) -> list[str]:
    """Image files of a class folder, relative to it, following its subfolders."""
    found = []
    for here, _, files in os.walk(folder):
        prefix = os.path.relpath(here, folder)
        found += [
            name if prefix == "." else f"{prefix}/{name}"
            for name in files
            if os.path.splitext(name)[1].lower() in IMAGE_SUFFIXES
        ]
    return found


class ArraySource:
    """Decoded uint8 images in memory, [samples, height, width, channels]."""

    def __init__(
        self, images: npt.NDArray[np.uint8], labels: npt.NDArray[np.int64], classes: tuple[str, ...], name: str
    ) -> None:
        if images.ndim != 4 or len(images) != len(labels):
            raise ConfigError(f"{name}: {len(images)} images but {len(labels)} labels.")
        if len(labels) and not 0 <= labels.min() <= labels.max() < len(classes):
            raise ConfigError(
                f"{name}: labels run from {labels.min()} to {labels.max()}, but there are {len(classes)} classes."
            )
        self.images, self.labels, self.classes, self._origin = images, labels, classes, name
        self.channels = images.shape[3]

    def __len__(self) -> int:
        return len(self.labels)

    def describe(self, index: int) -> str:
        return f"{self._origin}[{index}]"

    def fingerprint(self) -> str:
        return _fingerprint(self.labels.tobytes(), "\0".join(self.classes).encode(), str(self.images.shape).encode())


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


def read_idx(path: Path) -> npt.NDArray[np.uint8]:
    """An IDX file of unsigned bytes, gzipped or not."""
    try:
        raw = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    except (OSError, EOFError) as error:
        raise ConfigError(f"Cannot read {path}: {error}.") from None
    if len(raw) < 4 or raw[:3] != b"\x00\x00\x08":
        raise ConfigError(f"{path} is not an IDX file of unsigned bytes.")
    rank = raw[3]
    shape = tuple(int.from_bytes(raw[4 + 4 * i : 8 + 4 * i], "big") for i in range(rank))
    body = np.frombuffer(raw, dtype=np.uint8, offset=4 + 4 * rank)
    if body.size != int(np.prod(shape)):
        raise ConfigError(
            f"{path} is truncated: its header promises {int(np.prod(shape))} bytes, {body.size} are there."
        )
    return body.reshape(shape)


def open_fashion_mnist(root: Path, split: str) -> ArraySource:
    """Fashion-MNIST (or MNIST) as published: two IDX files a split."""
    stem = "train" if split == "train" else "t10k"
    images = read_idx(_one_of(root, f"{stem}-images-idx3-ubyte.gz", f"{stem}-images-idx3-ubyte"))
    labels = read_idx(_one_of(root, f"{stem}-labels-idx1-ubyte.gz", f"{stem}-labels-idx1-ubyte"))
    return ArraySource(images[..., None], labels.astype(np.int64), FASHION_CLASSES, f"{root.name}/{stem}")


def open_cifar10(root: Path, split: str) -> ArraySource:
    """CIFAR-10's binary version: records of one label byte and 3 x 32 x 32 pixels."""
    root = root / "cifar-10-batches-bin" if (root / "cifar-10-batches-bin").is_dir() else root
    names = [f"data_batch_{i}.bin" for i in range(1, 6)] if split == "train" else ["test_batch.bin"]
    parts = [np.frombuffer(_one_of(root, name).read_bytes(), dtype=np.uint8) for name in names]
    if any(p.size == 0 or p.size % 3073 for p in parts):
        raise ConfigError(f"{root}: a CIFAR-10 file is not a whole number of 3,073-byte records.")
    records = np.concatenate(parts).reshape(-1, 3073)
    images = np.ascontiguousarray(records[:, 1:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1))
    return ArraySource(images, records[:, 0].astype(np.int64), CIFAR10_CLASSES, f"{root.name}/{split}")


def _one_of(root: Path, *names: str) -> Path:
    for name in names:
        if (root / name).is_file():
            return root / name
    raise ConfigError(f"{root} has no {names[0]}. Point --data at the folder that holds it.")


# ---------------------------------------------------------------------------------------------- from a name to a source


def open_split(source: str, split: str, *, search: tuple[Path, ...] = ()) -> ArraySource | FolderSource:
    """The `train` or `val` split of what `--data` names: a built-in set, or a folder whose layout is recognised.

    `search` holds folders in which a built-in name such as `fashion-mnist` is looked for.
    """
    if not source:
        raise ConfigError("This recipe brings no data of its own. Say where the images are: --data PATH.")
    if source == "shapes":
        from vernier.data import shapes

        return FolderSource(shapes.cached(shapes.ShapesSpec()) / split)
    if source in NAMED:
        for folder in (*search, data_home()):
            if (folder / source).is_dir():
                return NAMED[source](folder / source, split)
        raise ConfigError(
            f"The data set {source!r} is not in {data_home()}. Put its files into {data_home() / source}, "
            f"or say where they are: --data PATH."
        )
    root = Path(source).expanduser()
    if not root.exists():
        near = did_you_mean(source, ["shapes", *NAMED]) if os.sep not in source else ""
        raise ConfigError(f"The data path {source} does not exist. {near}".rstrip())
    return _open_folder(root, split)


def _open_folder(root: Path, split: str) -> ArraySource | FolderSource:
    if root.is_file():
        raise ConfigError(
            f"--data {root} is a file; a folder is needed (class folders, or the files of Fashion-MNIST or CIFAR-10)."
        )
    if any(root.glob("*-images-idx3-ubyte*")):
        return open_fashion_mnist(root, split)
    if (root / "cifar-10-batches-bin").is_dir() or any(root.glob("*_batch*.bin")):
        return open_cifar10(root, split)
    for name in SPLIT_FOLDERS[split]:
        if (root / name).is_dir():
            return FolderSource(root / name)
    inside = ", ".join(sorted(p.name for p in root.iterdir())[:6]) or "nothing"
    raise ConfigError(
        f"{root} has no {split}/ folder with one folder per class, nor files of Fashion-MNIST or CIFAR-10. It holds: {inside}."
    )


NAMED: dict[str, Callable[[Path, str], ArraySource]] = {"fashion-mnist": open_fashion_mnist, "cifar10": open_cifar10}


def data_home() -> Path:
    """Where data sets are kept: $VERNIER_HOME/data, by default ~/.cache/vernier/data."""
    home = os.environ.get("VERNIER_HOME")
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return (Path(home) if home else cache / "vernier") / "data"
