"""TFRecord files of ImageNet and COCO, as the TensorFlow models' preparation scripts write them, without TensorFlow.

A file is a row of records: length, its masked CRC-32C, an Example message, its masked CRC-32C. The first time a file is
opened every record is checked and a table of where the images are is kept beside it or in Vernier's cache; after that an
image is one read. ImageNet's labels 1..1000 become 0..999, and the synsets become the names of the classes.
"""

import itertools
import json
import math
import os
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from vernier.data.decoding.decode import size_of
from vernier.data.sources.base import (
    Boxes,
    BoxSource,
    EncodedSource,
    Indices,
    fingerprint_classes,
    fingerprint_of,
)
from vernier.data.sources.containers.tables import Columns, kept_table
from vernier.errors import ConfigError
from vernier.folders import data_home

VERSION = "2"
SPLIT_PREFIXES = {"train": ("train",), "val": ("val", "validation"), "test": ("test",)}
_MASK = 0xA282EAD8
_COLUMNS = ("offset", "size", "label", "boxes", "id", "width", "height")
Feature = list[Any]


def find_tfrecords(root: Path, split: str) -> list[Path]:
    """The files of a split: `train-00000-of-01024`, or `train*.tfrecord`, here or in a folder of the split's name."""
    for prefix in SPLIT_PREFIXES[split]:
        for folder in (root, root / prefix):
            patterns = (f"{prefix}*-of-*", f"{prefix}*.tfrecord", f"{prefix}*.tfrecords")
            found = sorted(
                p for pattern in patterns for p in folder.glob(pattern) if p.suffix != ".table" and p.is_file()
            )
            if found:
                return found
    return []


# ------------------------------------------------------------------------------------------------ the container format


def _crc32c() -> Callable[[bytes], int]:
    try:
        import google_crc32c
    except ImportError:
        raise ConfigError(
            "Reading TFRecord files needs the package google-crc32c: pip install 'vernier[tfrecord]'"
        ) from None
    compute: Callable[[bytes], int] = google_crc32c.value
    return compute


def masked(crc: int) -> int:
    """The form in which TFRecord stores a checksum."""
    return (((crc >> 15) | (crc << 17)) + _MASK) & 0xFFFFFFFF


def records(path: Path) -> Iterator[tuple[int, bytes]]:
    """Position and content of every record, both checksums checked. Raises ConfigError where the file is damaged."""
    crc32c, size = _crc32c(), path.stat().st_size
    with path.open("rb") as f:
        while head := f.read(12):
            at = f.tell()
            length, length_crc = struct.unpack("<QI", head) if len(head) == 12 else (0, -1)
            if length_crc != masked(crc32c(head[:8])):
                raise ConfigError(
                    f"{path} is damaged at byte {at - len(head):,}: the checksum of a record's length is wrong."
                )
            if at + length + 4 > size:
                raise ConfigError(f"{path} is truncated: the record at byte {at:,} goes on behind the end of the file.")
            content, tail = f.read(length), f.read(4)
            if struct.unpack("<I", tail)[0] != masked(crc32c(content)):
                raise ConfigError(f"{path} is damaged: the checksum of the record at byte {at:,} is wrong.")
            yield at, content


def write_record(content: bytes) -> bytes:
    """A record as it stands in a file."""
    crc32c, length = _crc32c(), struct.pack("<Q", len(content))
    return length + struct.pack("<I", masked(crc32c(length))) + content + struct.pack("<I", masked(crc32c(content)))


# --------------------------------------------------------------------------------------------------- the Example message


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at += 1
        if byte < 0x80:
            return value, at
        shift += 7
        if shift > 63:
            raise ValueError("a number longer than 64 bits")


def _fields(data: bytes, at: int, end: int) -> Iterator[tuple[int, int, int, int]]:
    """Field number, wire type, and where its content begins and ends (for numbers: the value, twice)."""
    while at < end:
        tag, at = _varint(data, at)
        number, kind = tag >> 3, tag & 7
        if kind == 2:
            length, at = _varint(data, at)
            if at + length > end:
                raise ValueError("a field longer than its message")
            yield number, kind, at, at + length
            at += length
        elif kind == 0:
            value, at = _varint(data, at)
            yield number, kind, value, value
        elif kind in (1, 5):
            width = 8 if kind == 1 else 4
            yield number, kind, at, at + width
            at += width
        else:
            raise ValueError(f"wire type {kind}")


def parse_example(data: bytes) -> dict[str, Feature]:
    """The features of an Example. Byte strings are given as (start, stop) in `data`. Raises ValueError."""
    out: dict[str, Feature] = {}
    try:
        for number, _, a, b in _fields(data, 0, len(data)):
            for inner, _, c, d in _fields(data, a, b) if number == 1 else ():
                if inner == 1:
                    parts = {n: (e, f) for n, _, e, f in _fields(data, c, d)}
                    name = data[slice(*parts[1])].decode()
                    out[name] = _values(data, *parts[2]) if 2 in parts else []
    except (IndexError, KeyError, UnicodeDecodeError, struct.error) as error:
        raise ValueError(f"not an Example message: {error!r}") from None
    return out


def _values(data: bytes, at: int, end: int) -> Feature:
    values: Feature = []
    for kind, _, a, b in _fields(data, at, end):
        for _, wire, c, d in _fields(data, a, b):
            if kind == 1:
                values.append((c, d))
            elif kind == 2:
                values += struct.unpack_from(f"<{(d - c) // 4}f", data, c)
            elif wire == 0:
                values.append(_signed(c))
            else:
                while c < d:
                    value, c = _varint(data, c)
                    values.append(_signed(value))
    return values


def _signed(value: int) -> int:
    return value - (1 << 64) if value >= 1 << 63 else value


# ------------------------------------------------------------------------------------------------------------ the table


def _table(path: Path) -> tuple[Columns, dict[str, str]]:
    """The table of a file, kept or made now."""
    stamp = {"version": VERSION, "bytes": str(path.stat().st_size), "modified": str(path.stat().st_mtime_ns)}
    return kept_table(path, data_home() / "tables", stamp, lambda: _scan(path))


def _scan(path: Path) -> tuple[Columns, dict[str, str]]:
    """Where the images are, their labels and boxes; and the name of each label or category, where one is given."""
    rows: list[tuple[int, ...]] = []
    boxes: list[tuple[float, ...]] = []
    names: dict[str, str] = {}
    for at, content in records(path):
        try:
            example = parse_example(content)
            begin, end = example["image/encoded"][0]
        except (ValueError, KeyError, IndexError) as error:
            raise ConfigError(f"{path}: the record at byte {at:,} is no image Example ({error}).") from None
        label = int(_first(example, "image/class/label", -1))
        found = _boxes(example, content, names)
        synset = _text(content, example, "image/class/synset") or _text(content, example, "image/class/text")
        if label >= 0 and synset:
            names[str(label)] = synset
        number = _text(content, example, "image/source_id")
        size = (int(_first(example, f"image/{side}", 0)) for side in ("width", "height"))
        rows.append((at + begin, end - begin, label, len(found), int(number) if number.isdigit() else len(rows), *size))
        boxes += found
    values = np.array(rows, dtype=np.int64).reshape(-1, len(_COLUMNS))
    columns = {name: values[:, i].copy() for i, name in enumerate(_COLUMNS)}
    return {**columns, "box": np.array(boxes, dtype=np.float32).reshape(-1, 7)}, {"names": json.dumps(names)}


def _first(example: dict[str, Feature], name: str, default: Any) -> Any:
    values = example.get(name)
    return values[0] if values else default


def _text(content: bytes, example: dict[str, Feature], name: str) -> str:
    place = _first(example, name, None)
    return content[slice(*place)].decode(errors="replace") if isinstance(place, tuple) else ""


def _boxes(example: dict[str, Feature], content: bytes, names: dict[str, str]) -> list[tuple[float, ...]]:
    """left, top, right, bottom as shares of the image, category, crowd, area in pixels (not a number where it is not given)."""
    edges = [example.get(f"image/object/bbox/{edge}", []) for edge in ("xmin", "ymin", "xmax", "ymax")]
    kinds = example.get("image/object/class/label", [])
    crowd = example.get("image/object/is_crowd", [])
    texts = example.get("image/object/class/text", [])
    if not kinds:
        return []
    for kind, text in zip(kinds, texts, strict=False):
        if isinstance(text, tuple):
            names[str(kind)] = content[slice(*text)].decode(errors="replace")
    crowds = itertools.chain(crowd, itertools.repeat(0))
    areas = itertools.chain(example.get("image/object/area", []), itertools.repeat(math.nan))
    return [
        (*box, float(kind), float(c), float(area))
        for *box, kind, c, area in zip(*edges, kinds, crowds, areas, strict=False)
    ]


# ------------------------------------------------------------------------------------------------------------- sources


class TFRecordSource(EncodedSource, BoxSource):
    """The images of TFRecord files in the order of the files; a classifier's source, and a detector's where there are boxes."""

    labels: Indices

    def __init__(self, paths: list[Path], others: list[Path] | None = None, *, only_boxed: bool = False) -> None:
        """`others` are the files of the other splits: together they say which classes there are. `only_boxed` leaves images
        without boxes out.
        """
        self._paths = paths
        tables = [_table(p) for p in paths]
        beside = [_table(p) for p in others or []]
        self._counts = [len(c["offset"]) for c, _ in tables]
        self._starts = np.concatenate(([0], np.cumsum(self._counts)))
        joined = {k: np.concatenate([c[k] for c, _ in tables]) for k in (*_COLUMNS, "box")}
        self._place = np.flatnonzero(joined["boxes"] > 0) if only_boxed else np.arange(len(joined["offset"]))
        left_out = len(joined["offset"]) - len(self._place)
        self.notes = (f"{left_out:,} image(s) without boxes are left out of training",) if left_out else ()
        self._offset, self._size, self._ids = (joined[k][self._place] for k in ("offset", "size", "id"))
        self._sizes = np.stack([joined["width"], joined["height"]], axis=1)[self._place]
        self._box, self._box_at = joined["box"], np.concatenate(([0], np.cumsum(joined["boxes"])))
        names: dict[str, str] = {}
        for _, about in tables + beside:
            names |= json.loads(about["names"])
        self.has_boxes = len(self._box) > 0
        if self.has_boxes:
            self._categories = np.unique(np.concatenate([c["box"][:, 4] for c, _ in tables + beside])).astype(np.int64)
            self.category_ids = tuple(self._categories.tolist())
            self.classes = tuple(names.get(str(c), str(c)) for c in self.category_ids)
            self.labels = np.full(len(self._place), -1, np.int64)
        else:
            self.category_ids = ()
            every = np.concatenate([c["label"] for c, _ in tables + beside])
            self.classes, self.labels = self._image_classes(joined["label"], every, names)
        self._open: dict[int, int] = {}

    def _image_classes(self, labels: Indices, every: Indices, names: dict[str, str]) -> tuple[tuple[str, ...], Indices]:
        """TensorFlow's preparation counts from 1 and keeps 0 for a background that no image has."""
        if not len(labels) or labels.min() < 0:
            raise ConfigError(f"{self._paths[0].parent}: records without image/class/label cannot train a classifier.")
        first = int(every.min() >= 1)
        count = max(int(every.max()), *(int(k) for k in names), 0) + 1 - first
        return tuple(names.get(str(i + first), str(i + first)) for i in range(count)), labels.astype(np.int64) - first

    def __len__(self) -> int:
        return len(self._offset)

    def read(self, index: int) -> bytes:
        which = int(np.searchsorted(self._starts, self._place[index], side="right")) - 1
        handle = self._open.get(which)
        if handle is None:
            handle = self._open.setdefault(which, os.open(self._paths[which], os.O_RDONLY))
        return os.pread(handle, int(self._size[index]), int(self._offset[index]))

    def boxes(self, index: int) -> Boxes:
        """In pixels; the file keeps shares of the image."""
        place = int(self._place[index])
        rows = self._box[self._box_at[place] : self._box_at[place + 1]].astype(np.float64)
        rows = rows[(rows[:, 2] > rows[:, 0]) & (rows[:, 3] > rows[:, 1])]
        if not len(rows):
            return Boxes.none()
        width, height = self.size(index) or size_of(self.read(index))
        ltrb = rows[:, :4] * np.array([width, height, width, height])
        classes = np.searchsorted(self._categories, rows[:, 4].astype(np.int64)).astype(np.int64)
        areas = np.where(np.isnan(rows[:, 6]), (ltrb[:, 2:] - ltrb[:, :2]).prod(axis=1), rows[:, 6])
        return Boxes(ltrb, classes, rows[:, 5] > 0, areas)

    def size(self, index: int) -> tuple[int, int] | None:
        width, height = self._sizes[index].tolist()
        return (width, height) if width > 0 and height > 0 else None

    def image_id(self, index: int) -> int:
        return int(self._ids[index])

    def describe(self, index: int) -> str:
        place = int(self._place[index])
        which = int(np.searchsorted(self._starts, place, side="right")) - 1
        return f"{self._paths[which]}[{place - int(self._starts[which])}]"

    def fingerprint(self) -> str:
        names = "\0".join(p.name for p in self._paths).encode()
        return fingerprint_of(names, self._size.tobytes(), self.labels.tobytes(), fingerprint_classes(self.classes))

    def __del__(self) -> None:
        for handle in getattr(self, "_open", {}).values():
            os.close(handle)
