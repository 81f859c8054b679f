"""What every source of samples can do: `Source`, `EncodedSource`, `BoxSource`, and the boxes of an image.

Imports nothing of the other sources; they all import this.
"""

import hashlib
import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from vernier.data.decoding.decode import Croppable, Image, decode, lazy_image
from vernier.wording import plural

Indices = npt.NDArray[np.int64]
VAL_SHARE = 0.1
"""The share of a set without splits that is set aside for validation, by default."""


class Labels(Protocol):
    """Class numbers by sample: an array, or an object that looks them up."""

    def __len__(self) -> int: ...

    def __getitem__(self, samples: Any, /) -> Any: ...


class Source(ABC):
    """Images and labels by index. Order, epochs, processes and augmentation are up to `data.loading`."""

    classes: tuple[str, ...]
    labels: Labels
    channels: int = 3
    notes: tuple[str, ...] = ()
    """What the user should know about the set before it is used."""
    undivided: bool = False
    """All of a set that has no splits."""
    held_out: bool = False
    """A part of a set, or of its training split, that `choose_validation` set aside."""

    def __len__(self) -> int:
        return len(self.labels)

    @abstractmethod
    def describe(self, index: int) -> str:
        """The sample's name for messages: a path, or a position in a file."""

    def name(self, index: int) -> str:
        """A short name that stays with the sample when it is written elsewhere."""
        return f"{index:08d}"

    @abstractmethod
    def fingerprint(self) -> str:
        """Changes when the samples, their order or their classes do (not when only pixels do)."""

    def _fingerprint(self, *parts: bytes) -> str:
        """A hash of the parts and of the names of the classes."""
        return fingerprint_of(*parts, "\0".join(self.classes).encode())

    @abstractmethod
    def image(self, index: int) -> Image:
        """The decoded image [height, width, channels]. Raises BadImage or OSError."""

    def lazy_image(self, index: int) -> Croppable:
        """The image for taking one crop; may decode only that, when it is sliced. Raises like `image`."""
        return self.image(index)

    def copy_ready_images(self, indices: Indices, out: Image) -> Indices | None:
        """Fill `out` [samples, height, width, channels] with images that need neither decoding nor augmentation.

        Returns the samples that they are; None where every image has to be decoded, which is the rule.
        """
        return None

    def all_labels(self) -> Indices:
        """The label of every sample, as one array."""
        return np.asarray(self.labels[np.arange(len(self))], dtype=np.int64)


class EncodedSource(Source):
    """A source of encoded images, such as JPEG files."""

    @abstractmethod
    def read(self, index: int) -> bytes:
        """The encoded image."""

    def image(self, index: int) -> Image:
        return decode(self.read(index))

    def lazy_image(self, index: int) -> Croppable:
        return lazy_image(self.read(index))


@dataclass(frozen=True)
class Boxes:
    """The objects of one image: boxes in pixels, classes from 0, crowds and areas."""

    ltrb: npt.NDArray[np.float64]
    classes: Indices
    crowd: npt.NDArray[np.bool_]
    areas: npt.NDArray[np.float64]
    """In pixels: of the object's outline if the annotation has one, otherwise of the box."""

    @staticmethod
    def empty() -> "Boxes":
        """The boxes of an image without objects."""
        return Boxes(np.zeros((0, 4)), np.zeros(0, np.int64), np.zeros(0, np.bool_), np.zeros(0))


class BoxSource(Source):
    """A source whose images have boxes. Classes are numbered from 0, without a background class."""

    category_ids: tuple[int, ...]
    """The number that the annotations give to each class."""
    cut_boxes: int = 0
    """Boxes that reached out of their image and were cut at its edge."""
    dropped_boxes: int = 0
    """Boxes without area, which were left out."""
    without_boxes: int = 0
    """Images without boxes, which training leaves out."""

    def describe_changes(self, *, training: bool) -> tuple[str, ...]:
        """Notes about boxes and images that were changed or left out."""
        changes = (
            (self.cut_boxes, "box", "cut at the edge of the image"),
            (self.dropped_boxes, "box", "without area inside the image left out"),
            (self.without_boxes if training else 0, "image", "without boxes left out of training"),
        )
        return tuple(f"{plural(count, noun)} {change}" for count, noun, change in changes if count)

    @abstractmethod
    def boxes(self, index: int) -> Boxes:
        """The objects of an image."""

    def image_id(self, index: int) -> int:
        """The image's number in the annotations; its position if they have none."""
        return index

    def size(self, index: int) -> tuple[int, int] | None:
        """Width and height, if the annotations have them."""
        return None


def fingerprint_of(*parts: bytes) -> str:
    """A short hash of byte strings, each with its length."""
    total = hashlib.sha256()
    for part in parts:
        total.update(len(part).to_bytes(8, "little"))
        total.update(part)
    return total.hexdigest()[:16]


def spread_evenly(total: int, count: int) -> list[int]:
    """Up to `count` positions, evenly spread over `total`."""
    positions: list[int] = np.unique(np.linspace(0, total - 1, min(count, total)).astype(int)).tolist()
    return positions


def note_test_as_validation(where: object) -> str:
    """The note about a set that has no validation split, but a test split."""
    return (
        f"{where} has no validation split; its test split is used instead, so weights that a training chooses by it "
        "(best) have no independent test"
    )


def note_held_out(where: object, val: int, total: int, *, has_splits: bool = False) -> str:
    """The note about a set, or a training split, of which a part is held out for validation."""
    images = f"{val:,} of its {total:,} {'training ' if has_splits else ''}images"
    return f"{where}{'' if has_splits else ' has no splits'}: {images} are held out for validation (data.val_share)"


def note_undivided(where: object, total: int) -> str:
    """The note about a set without splits that is used whole."""
    return f"{where} has no splits: all of its {total:,} images are used"


def choose_validation(names: Sequence[str], val_share: float) -> list[int]:
    """The positions of the files that a set without splits uses for validation, chosen by the hashes of their names."""
    shuffled = sorted(range(len(names)), key=lambda i: hashlib.sha256(os.fsencode(names[i])).digest())
    return shuffled[: count_validation(len(names), val_share)]


def count_validation(total: int, val_share: float) -> int:
    """How many of so many images are used for validation: at least one, and not all."""
    return min(total - 1, max(1, round(val_share * total)))


class Names:
    """Many names as one byte string: millions of them as objects would take gigabytes."""

    def __init__(self, joined: bytes | npt.NDArray[np.uint8], ends: npt.NDArray[np.int64]) -> None:
        self._bytes, self.ends = joined, ends

    @property
    def joined(self) -> bytes:
        return bytes(self._bytes)

    @classmethod
    def of(cls, names: list[str]) -> "Names":
        encoded = [os.fsencode(n) for n in names]
        return cls(b"".join(encoded), np.cumsum([len(n) for n in encoded], dtype=np.int64))

    def __len__(self) -> int:
        return len(self.ends)

    def __getitem__(self, index: int) -> str:
        start = int(self.ends[index - 1]) if index else 0
        return os.fsdecode(bytes(self._bytes[start : int(self.ends[index])]))


class NamedSource(Source):
    """A source whose samples have names; they and the labels tell it from others."""

    labels: Indices
    _names: Names

    def fingerprint(self) -> str:
        return self._fingerprint(self._names.joined, self.labels.tobytes())


class OpenFiles:
    """Reads parts of files, which stay open as long as the object lives; threads can share it."""

    def __init__(self, root: Path = Path()) -> None:
        self.root = root
        self._handles: dict[str, int] = {}
        self._lock = threading.Lock()

    def read(self, name: str, start: int, length: int) -> bytes:
        """Bytes of the file `name` below the root; fewer at the end of the file."""
        handle = self._handles.get(name)
        if handle is None:
            with self._lock:
                handle = self._handles.get(name)
                if handle is None:
                    handle = self._handles[name] = os.open(self.root / name, os.O_RDONLY)
        return os.pread(handle, length, start)

    def __del__(self) -> None:
        for handle in self._handles.values():
            os.close(handle)
