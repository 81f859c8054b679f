"""The contract of sources of samples: `Source`, `EncodedSource`, `BoxSource`, and the boxes of an image.

Imports nothing of the other sources; they all import this. Layouts of other packages plug in as entry points of
`vernier.data_layouts` (`DataLayout`), such as TFRecord files.
"""

import hashlib
import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from vernier.data.decoding.decode import BadImage, Croppable, Image, decode, lazy_image
from vernier.frozen import frozen
from vernier.plugins import load_group
from vernier.wording import plural

Indices = npt.NDArray[np.int64]
Files = tuple[int, Callable[[int], str]]
"""How many there are, and the path of each."""
Stored = list[str] | tuple[Sequence[tuple[int, int, Mapping[str, npt.NDArray[Any]]]], list[int]]
"""Of each image, its file; or the shard it is in (open file, bytes, table) and its row in the shard's table."""
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
    """Notes about the set that users see before it is used."""
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
        """Changes when the samples, their order or their classes do. Pixels: see `content`."""

    def files(self) -> Files:
        """The files on this machine that contain the samples."""
        return 0, str

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

    def note_test_as_validation(self, where: object) -> None:
        """Note that the set has no validation split, and that this test split stands in for it."""
        self.notes += (
            f"{where} has no validation split; its test split is used instead, so weights that a training chooses by "
            "it (best) have no independent test",
        )

    def note_held_out(self, where: object, split: str, val: int, total: int, *, has_splits: bool = False) -> None:
        """Note that this is a part of a set, or of its training split, of which `val` images are for validation."""
        self.held_out = split == "val"
        images = f"{val:,} of its {total:,} {'training ' if has_splits else ''}images"
        what = "" if has_splits else " has no splits"
        self.notes += (f"{where}{what}: {images} are held out for validation (data.val_share)",)

    def note_undivided(self, where: object) -> None:
        """Note that this is all of a set without splits."""
        self.undivided = True
        self.notes += (f"{where} has no splits: all of its {len(self):,} images are used",)

    def all_labels(self) -> Indices:
        """The label of every sample, as one array."""
        return np.asarray(self.labels[np.arange(len(self))], dtype=np.int64)


class EncodedSource(Source):
    """A source of encoded images, such as JPEG files."""

    exif: bool = True
    """Whether images are turned by their EXIF orientation (data.exif)."""

    def stored(self, samples: Indices) -> "Stored | None":
        """Where the encoded images are, for decoders that read files themselves; None if only `read` has them."""
        return None

    @abstractmethod
    def read(self, index: int) -> bytes:
        """The encoded image."""

    def image(self, index: int) -> Image:
        return decode(self.read(index), exif=self.exif)

    def lazy_image(self, index: int) -> Croppable:
        return lazy_image(self.read(index), exif=self.exif)


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
    """Boxes without area, which were dropped."""
    without_boxes: int = 0
    """Images without boxes, which are not used for training."""

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

    def check_size(self, index: int, width: int, height: int) -> None:
        """Raise BadImage if the image has another size than its annotation: its boxes would be wrong."""
        annotated = self.size(index)
        if annotated is None or annotated == (width, height):
            return
        # Only sides that are swapped show that boxes were drawn by a tool that ignores the orientation.
        swapped = annotated == (height, width)
        why = "its boxes are those of the stored pixels (data.exif=ignore)" if swapped else "it was resized afterwards"
        size = f"{annotated[0]} x {annotated[1]}"
        raise BadImage(f"it has {width} x {height} pixels, but its annotation says {size}: perhaps {why}")


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


def choose_validation(names: Sequence[str], val_share: float) -> list[int]:
    """The positions of the files that a set without splits uses for validation, chosen by the hashes of their names."""
    # By hashes: the order of the files does not matter, and new images move few of the others to the other part.
    shuffled = sorted(range(len(names)), key=lambda i: hashlib.sha256(os.fsencode(names[i])).digest())
    return shuffled[: count_validation(len(names), val_share)]


def count_validation(total: int, val_share: float) -> int:
    """Number of validation images out of `total`: at least one, and not all."""
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
        # pread, since threads share the handle and with it the position of `read`.
        return os.pread(self.handle(name), length, start)

    def handle(self, name: str) -> int:
        """The open file `name` below the root."""
        handle = self._handles.get(name)
        if handle is None:
            # Again with the lock: another thread may have opened the file meanwhile.
            with self._lock:
                handle = self._handles.get(name)
                if handle is None:
                    handle = self._handles[name] = os.open(self.root / name, os.O_RDONLY)
        return handle

    def __del__(self) -> None:
        for handle in self._handles.values():
            os.close(handle)


@frozen
class DataLayout:
    """How a layout is read and written. Functions that open give None for a folder that is not in this layout."""

    open_classes: Callable[[Path, str], Source | None]
    """The split of a classification set in a folder."""
    open_boxes: Callable[[Path, str], BoxSource | None]
    """The split of a detection set in a folder."""
    write: Callable[..., Any]
    """Write a split: `write(source, out, split, files=, workers=, progress=)`, and give its `PackedSplit`."""
    files: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """Usual numbers of files by kind of set and split; others follow from the number of images."""


def open_plugged(root: Path, split: str, *, boxes: bool) -> Source | None:
    """The split of a folder in the first layout that recognizes it; None if none does."""
    layouts = load_group("vernier.data_layouts", DataLayout).values()
    openers = (each.open_boxes if boxes else each.open_classes for each in layouts)
    return next((source for open_in in openers if (source := open_in(root, split)) is not None), None)
