"""TFRecord files of ImageNet and COCO as TensorFlow's preparation scripts write them, read without TensorFlow.

A record is its length, the masked CRC-32C of the length, an Example message, and the masked CRC-32C of the message.
When a file is opened for the first time, every record is checked, and a table of the positions of its images is
stored beside it or in Vernier's cache; after that, an image is one read. ImageNet's labels 1..1000 become 0..999, and
the synsets become the names of the classes.
"""

import json
import math
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from vernier.compat.protobuf import crc32c, mask_crc, read_fields, read_varint, to_signed
from vernier.data.decoding.decode import BadImage, read_size
from vernier.data.sources.base import EncodedSource, Files, Indices, OpenFiles
from vernier.data.sources.boxes.annotated import AnnotatedImage, AnnotatedSource, Annotations, Row
from vernier.data.sources.containers.tables import Columns, file_stamp, load_or_scan, report_scan
from vernier.data.sources.values import LARGEST_ID, LARGEST_LABEL, UNREADABLE, positive_size, whole_number
from vernier.errors import ConfigError
from vernier.frozen import frozen

Feature = list[Any]
"""The values of one feature: whole numbers, floats, or (start, stop) of byte strings."""


def read_records(path: Path) -> Iterator[tuple[int, bytes]]:
    """Position and content of every record. Raises ConfigError if a checksum is wrong or the file is truncated."""
    checksum, size = crc32c(), path.stat().st_size
    with path.open("rb") as f:
        while head := f.read(12):
            start = f.tell()
            length, length_crc = struct.unpack("<QI", head) if len(head) == 12 else (0, -1)
            if length_crc != mask_crc(checksum(head[:8])):
                raise ConfigError(
                    f"{path} is damaged at byte {start - len(head):,}: the checksum of a record's length is wrong."
                )
            if start + length + 4 > size:
                raise ConfigError(
                    f"{path} is truncated: the record at byte {start:,} continues beyond the end of the file."
                )
            content, tail = f.read(length), f.read(4)
            if struct.unpack("<I", tail)[0] != mask_crc(checksum(content)):
                raise ConfigError(f"{path} is damaged: the checksum of the record at byte {start:,} is wrong.")
            yield start, content


def parse_example(data: bytes) -> dict[str, Feature]:
    """The features of an Example message by name. Raises ValueError."""
    features: dict[str, Feature] = {}
    try:
        for number, _, start, stop in read_fields(data, 0, len(data)):
            for inner, _, entry_start, entry_stop in read_fields(data, start, stop) if number == 1 else ():
                if inner == 1:
                    parts = {n: (a, b) for n, _, a, b in read_fields(data, entry_start, entry_stop)}
                    name = data[slice(*parts[1])].decode()
                    features[name] = _read_values(data, *parts[2]) if 2 in parts else []
    except (IndexError, KeyError, UnicodeDecodeError, struct.error) as error:
        raise ValueError(f"not an Example message: {error!r}") from None
    return features


def _read_values(data: bytes, at: int, end: int) -> Feature:
    values: Feature = []
    for kind, _, list_start, list_stop in read_fields(data, at, end):
        for _, wire_type, start, stop in read_fields(data, list_start, list_stop):
            if kind == 1:
                values.append((start, stop))
            elif kind == 2:
                values += struct.unpack_from(f"<{(stop - start) // 4}f", data, start)
            elif wire_type == 0:
                values.append(to_signed(start))
            else:
                position = start
                while position < stop:
                    value, position = read_varint(data, position)
                    values.append(to_signed(value))
    return values


# -------------------------------------------------------------------------------------------------------------- records


VERSION = "4"  # in the stamp of every table: tables of other versions are made again
_LARGEST_CATEGORY = 1 << 24
"""Categories are stored as 32-bit floats."""
_NO_ID = -1
_SPLIT_PREFIXES = {
    "train": ("train", "imagenet_train_subset"),
    "val": ("val", "validation", "imagenet_val_subset"),
    "test": ("test",),
}
"""With the names of Habana's mini-ImageNet."""
_COLUMNS = ("offset", "size", "label", "boxes", "id", "width", "height")
_CATEGORY = 4
"""A box in the column `box` has four edges as shares of the image, its category, crowd, and its area in pixels (NaN if
there is none)."""


def find_tfrecords(root: Path, split: str) -> list[Path]:
    """The files of a split: `train-00000-of-01024`, or `train*.tfrecord`, here or in a folder of the split's name."""
    for prefix in _SPLIT_PREFIXES[split]:
        patterns = (f"{prefix}*-of-*", f"{prefix}*.tfrecord", f"{prefix}*.tfrecords")
        for folder in (root, root / prefix):
            # A set, because `train-00000-of-00002.tfrecord` fits two patterns, and its images would count twice.
            paths = {p for pattern in patterns for p in folder.glob(pattern)}
            # The table of `train-00000-of-01024` is stored beside it and matches the first pattern, too.
            if files := sorted(p for p in paths if p.suffix != ".table" and p.is_file()):
                return files
    return []


def _load_table(path: Path) -> tuple[Columns, dict[str, str]]:
    return load_or_scan(path, {"version": VERSION, **file_stamp(path)}, lambda: _scan(path))


def _scan(path: Path) -> tuple[Columns, dict[str, str]]:
    """Positions, labels and boxes of the images; and as metadata the name of each label or category that has one."""
    rows: list[tuple[int, ...]] = []
    boxes: list[tuple[float, ...]] = []
    names: dict[str, str] = {}
    size = path.stat().st_size
    for position, content in read_records(path):
        report_scan(path, position, size)
        try:
            row, own_boxes = _read_image(content, names)
        except UNREADABLE as error:
            raise ConfigError(f"{path}: the record at byte {position:,} is not an image Example ({error}).") from None
        # The span is relative to the record, the table's positions to the file.
        rows.append((position + row[0], *row[1:]))
        boxes += own_boxes
    # reshape: an empty list has no second dimension.
    values = np.array(rows, dtype=np.int64).reshape(-1, len(_COLUMNS))
    columns = {name: values[:, i].copy() for i, name in enumerate(_COLUMNS)}
    return {**columns, "box": np.array(boxes, dtype=np.float32).reshape(-1, 7)}, {"names": json.dumps(names)}


def _read_image(content: bytes, names: dict[str, str]) -> tuple[tuple[int, ...], list[tuple[float, ...]]]:
    """What a record says about its image, in the order of `_COLUMNS`, and its boxes, in that of the column `box`.

    Adds the names of its label and categories to `names`. Raises one of UNREADABLE.
    """
    example = parse_example(content)
    span = _first(example, "image/encoded", None)
    if not isinstance(span, tuple):
        raise ValueError("image/encoded is missing or no bytes")
    # -1: no label, as in COCO's records.
    label = whole_number(_first(example, "image/class/label", -1))
    if not -1 <= label <= LARGEST_LABEL:
        raise ValueError(f"image/class/label is {label}; class numbers go from 0 to {LARGEST_LABEL:,}")
    synset = _read_text(content, example, "image/class/synset") or _read_text(content, example, "image/class/text")
    if label >= 0 and synset:
        names[str(label)] = synset
    source_id = _read_text(content, example, "image/source_id")
    # Twenty digits are enough to exceed LARGEST_ID; int() refuses text of more than 4,300.
    is_number = source_id.isascii() and source_id.isdecimal() and len(source_id) <= 20 and int(source_id) <= LARGEST_ID
    image_id = int(source_id) if is_number else _NO_ID
    size = positive_size(*(_first(example, f"image/{side}", 0) for side in ("width", "height"))) or (0, 0)
    boxes = _read_boxes(example, content, names)
    return (span[0], span[1] - span[0], label, len(boxes), image_id, *size), boxes


def _first(example: dict[str, Feature], name: str, default: Any) -> Any:
    values = example.get(name)
    return values[0] if values else default


def _read_text(content: bytes, example: dict[str, Feature], name: str) -> str:
    span = _first(example, name, None)
    return content[slice(*span)].decode(errors="replace") if isinstance(span, tuple) else ""


def _read_boxes(example: dict[str, Feature], content: bytes, names: dict[str, str]) -> list[tuple[float, ...]]:
    """The boxes of an image in the order of the column `box`. Adds the names of their categories to `names`.

    Raises ValueError for features of unequal lengths or wrong types.
    """
    categories = [whole_number(value, _LARGEST_CATEGORY) for value in example.get("image/object/class/label", [])]
    if not categories:
        return []
    # The order of the keys counts: four edges, crowd and area are unpacked below.
    features = {edge: example.get(f"image/object/bbox/{edge}", []) for edge in ("xmin", "ymin", "xmax", "ymax")}
    for name, missing in (("is_crowd", 0), ("area", math.nan)):
        features[name] = example.get(f"image/object/{name}") or [missing] * len(categories)
    texts = example.get("image/object/class/text") or [None] * len(categories)
    for name, values in (*features.items(), ("class/text", texts)):
        if len(values) != len(categories):
            raise ValueError(f"{len(categories)} boxes have a class/label, and {len(values)} a {name}")
    for category, span in zip(categories, texts, strict=True):
        if isinstance(span, tuple):
            names[str(category)] = content[slice(*span)].decode(errors="replace")
    columns = zip(*features.values(), strict=True)
    return [
        (*map(float, edges), float(category), float(crowd), float(area))
        for category, (*edges, crowd, area) in zip(categories, columns, strict=True)
    ]


# ------------------------------------------------------------------------------------------------------------- sources


@frozen
class _Tables:
    """The tables of a split's files as one, and what all splits together say about the classes."""

    columns: Columns
    starts: Indices
    """The first record of each file, and the number of records last."""
    all_labels: Indices
    all_categories: npt.NDArray[np.float32]
    names: dict[str, str]
    """The name of each label or category that has one."""

    @classmethod
    def load(cls, paths: list[Path], other_splits: list[Path]) -> "_Tables":
        # All splits, so that a class has the same number in each, even if a split lacks some classes.
        tables = [_load_table(path) for path in (*paths, *other_splits)]
        own = [columns for columns, _ in tables[: len(paths)]]
        names: dict[str, str] = {}
        for _, metadata in tables:
            names |= json.loads(metadata["names"])
        return cls(
            # concatenate copies. `_cut_boxes` changes the copy; the tables themselves are mapped read-only.
            columns={key: np.concatenate([columns[key] for columns in own]) for key in (*_COLUMNS, "box")},
            starts=np.cumsum([0, *(len(columns["offset"]) for columns in own)]),
            all_labels=np.concatenate([columns["label"] for columns, _ in tables]),
            all_categories=np.concatenate([columns["box"][:, _CATEGORY] for columns, _ in tables]),
            names=names,
        )


class _Records(EncodedSource):
    """Some records of TFRecord files, whichever kind of annotation they have."""

    labels: Indices

    def __init__(self, paths: list[Path], tables: _Tables, records: Indices) -> None:
        self._tfrecords, self._starts, self._records = paths, tables.starts, records
        self._offset, self._size = (tables.columns[key][records] for key in ("offset", "size"))
        self._files = OpenFiles()

    def _find_file(self, index: int) -> int:
        # right: an empty file starts where the next one does, and must not be chosen.
        return int(np.searchsorted(self._starts, self._records[index], side="right")) - 1

    def read(self, index: int) -> bytes:
        path = self._tfrecords[self._find_file(index)]
        return self._files.read(str(path), int(self._offset[index]), int(self._size[index]))

    def describe(self, index: int) -> str:
        file = self._find_file(index)
        return f"{self._tfrecords[file]}[{int(self._records[index]) - int(self._starts[file])}]"

    def files(self) -> Files:
        return len(self._tfrecords), lambda number: str(self._tfrecords[number])

    def fingerprint(self) -> str:
        names = "\0".join(p.name for p in self._tfrecords).encode()
        return self._fingerprint(names, self._size.tobytes(), self.labels.tobytes())


class TFRecordSource(_Records):
    """Images with one label each. Raises ConfigError for records without labels.

    `other_splits` are the files of the other splits: together they say which classes there are.
    """

    def __init__(self, paths: list[Path], other_splits: list[Path]) -> None:
        tables = _Tables.load(paths, other_splits)
        labels = tables.columns["label"]
        if not len(labels) or labels.min() < 0:
            raise ConfigError(f"{paths[0].parent}: records without image/class/label cannot train a classifier.")
        super().__init__(paths, tables, np.arange(len(labels)))
        # TensorFlow's preparation counts from 1 and reserves 0 for a background that no image has.
        first = int(tables.all_labels.min() >= 1)
        # `names` also has the categories of boxes, which may be larger than any label.
        named = (int(key) for key in tables.names if int(key) <= LARGEST_LABEL)
        count = max(int(tables.all_labels.max()), *named, 0) + 1 - first
        self.classes = tuple(tables.names.get(str(i + first), str(i + first)) for i in range(count))
        self.labels = labels.astype(np.int64) - first


class TFRecordBoxSource(_Records, AnnotatedSource):
    """Images with boxes. Raises ConfigError if no record has any; `only_with_boxes` leaves out images without boxes."""

    def __init__(self, paths: list[Path], other_splits: list[Path], *, only_with_boxes: bool) -> None:
        tables = _Tables.load(paths, other_splits)
        columns, where = tables.columns, str(paths[0].parent)
        if not len(columns["box"]):
            raise ConfigError(
                f"{where}: the TFRecord files have no boxes (image/object/bbox/...); a detector needs them."
            )
        records = np.arange(len(columns["offset"]))
        # An image without an id has its position in the whole set. Evaluators tell images apart by their ids, so if two
        # share one, all have their positions.
        ids = np.where(columns["id"] == _NO_ID, records, columns["id"])
        ids = ids if len(np.unique(ids)) == len(ids) else records
        if only_with_boxes:
            records = np.flatnonzero(columns["boxes"] > 0)
        _Records.__init__(self, paths, tables, records)
        categories = np.unique(tables.all_categories).astype(np.int64)
        labels = np.searchsorted(categories, columns["box"][:, _CATEGORY].astype(np.int64)).tolist()
        starts = np.cumsum(columns["boxes"]) - columns["boxes"]
        samples = []
        for index, record in enumerate(records.tolist()):
            part = slice(int(starts[record]), int(starts[record] + columns["boxes"][record]))
            size = self._read_size(index, columns, record)
            boxes = zip(columns["box"][part].tolist(), labels[part], strict=True)
            rows = tuple(_row(row, label, *size) for row, label in boxes if size)
            samples.append(
                AnnotatedImage(path=Path(self.describe(index)), image_id=int(ids[record]), rows=rows, size=size)
            )
        known = categories.tolist()
        classes = tuple(tables.names.get(str(c), str(c)) for c in known)
        annotations = Annotations(samples=samples, classes=classes, where=where, category_ids=tuple(known))
        AnnotatedSource.__init__(self, annotations, training=False)
        self.without_boxes = int((columns["boxes"] == 0).sum())
        self.notes = self.describe_changes(training=only_with_boxes)

    def _read_size(self, index: int, columns: Columns, record: int) -> tuple[int, int] | None:
        """That of the record, or else of the image; None for a bad image, whose boxes do not matter."""
        try:
            size = positive_size(*(int(columns[side][record]) for side in ("width", "height")))
            return size or read_size(self.read(index))
        except (BadImage, OSError):
            return None

    def name(self, index: int) -> str:
        return EncodedSource.name(self, index)


def _row(row: list[float], label: int, width: int, height: int) -> Row:
    left, top, right, bottom, _, crowd, area = row  # in the order of the column `box`; edges are fractions
    edges = left * width, top * height, right * width, bottom * height
    return Row(*edges, label, crowd > 0, None if math.isnan(area) else area)
