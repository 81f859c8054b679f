"""TFRecord files of ImageNet and COCO as TensorFlow's preparation scripts write them, read without TensorFlow.

When a file is opened for the first time, every record is checked, and a table of the positions of its images is
stored beside it or in Vernier's cache; after that, an image is one read. ImageNet's labels 1..1000 become 0..999, and
the synsets become the names of the classes. The bytes of records and messages are up to `example`.
"""

import json
import math
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from vernier.data.decoding.decode import BadImage, read_size
from vernier.data.sources.base import Boxes, BoxSource, EncodedSource, Indices, OpenFiles
from vernier.data.sources.containers.tables import Columns, file_stamp, load_or_scan, report_scan
from vernier.data.sources.values import LARGEST_ID, LARGEST_LABEL, UNREADABLE, positive_size, whole_number
from vernier.errors import ConfigError
from vernier.frozen import frozen

from .example import Feature, parse_example, read_records

VERSION = "4"  # in the stamp of every table: tables of other versions are made again
_LARGEST_CATEGORY = 1 << 24
"""Categories are stored as 32-bit floats."""
_NO_ID = -1
_TOLERANCE_PX = 1.0  # COCO's own boxes reach out by less, and stay as they are
SPLIT_PREFIXES = {
    "train": ("train", "imagenet_train_subset"),
    "val": ("val", "validation", "imagenet_val_subset"),
    "test": ("test",),
}
"""With the names of Habana's mini-ImageNet."""
_COLUMNS = ("offset", "size", "label", "boxes", "id", "width", "height")
_LEFT, _TOP, _RIGHT, _BOTTOM, _CATEGORY, _CROWD, _AREA = range(7)
"""The numbers of one box in the column `box`: edges as shares of the image, area in pixels (NaN if there is none)."""


def find_tfrecords(root: Path, split: str) -> list[Path]:
    """The files of a split: `train-00000-of-01024`, or `train*.tfrecord`, here or in a folder of the split's name."""
    for prefix in SPLIT_PREFIXES[split]:
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


class _Image(NamedTuple):
    """What a record says about its image, in the order of the columns; `boxes` in that of the column `box`."""

    begin: int
    size: int
    label: int
    boxes: list[tuple[float, ...]]
    image_id: int | None
    width: int
    height: int


def _scan(path: Path) -> tuple[Columns, dict[str, str]]:
    """Positions, labels and boxes of the images; and as metadata the name of each label or category that has one."""
    rows: list[tuple[int, ...]] = []
    boxes: list[tuple[float, ...]] = []
    names: dict[str, str] = {}
    size = path.stat().st_size
    for position, content in read_records(path):
        report_scan(path, position, size)
        try:
            image = _read_image(content, names)
        except UNREADABLE as error:
            raise ConfigError(f"{path}: the record at byte {position:,} is not an image Example ({error}).") from None
        image_id = _NO_ID if image.image_id is None else image.image_id
        # The span is relative to the record, the table's positions to the file.
        position += image.begin
        rows.append((position, image.size, image.label, len(image.boxes), image_id, image.width, image.height))
        boxes += image.boxes
    # reshape: an empty list has no second dimension.
    values = np.array(rows, dtype=np.int64).reshape(-1, len(_COLUMNS))
    columns = {name: values[:, i].copy() for i, name in enumerate(_COLUMNS)}
    return {**columns, "box": np.array(boxes, dtype=np.float32).reshape(-1, 7)}, {"names": json.dumps(names)}


def _read_image(content: bytes, names: dict[str, str]) -> _Image:
    """One record. Adds the names of its label and categories to `names`. Raises one of UNREADABLE."""
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
    size = positive_size(*(_first(example, f"image/{side}", 0) for side in ("width", "height")))
    return _Image(
        begin=span[0],
        size=span[1] - span[0],
        label=label,
        boxes=_read_boxes(example, content, names),
        image_id=int(source_id) if is_number else None,
        width=size[0] if size else 0,
        height=size[1] if size else 0,
    )


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
        self._paths, self._starts, self._records = paths, tables.starts, records
        self._offset, self._size = (tables.columns[key][records] for key in ("offset", "size"))
        self._files = OpenFiles()

    def _find_file(self, index: int) -> int:
        # right: an empty file starts where the next one does, and must not be chosen.
        return int(np.searchsorted(self._starts, self._records[index], side="right")) - 1

    def read(self, index: int) -> bytes:
        path = self._paths[self._find_file(index)]
        return self._files.read(str(path), int(self._offset[index]), int(self._size[index]))

    def describe(self, index: int) -> str:
        file = self._find_file(index)
        return f"{self._paths[file]}[{int(self._records[index]) - int(self._starts[file])}]"

    def fingerprint(self) -> str:
        names = "\0".join(p.name for p in self._paths).encode()
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


def _has_area(rows: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    """Which boxes have an area, of any width or height that is a number."""
    finite = np.isfinite(rows[:, :4]).all(axis=1)
    area: npt.NDArray[np.bool_] = finite & (rows[:, _RIGHT] > rows[:, _LEFT]) & (rows[:, _BOTTOM] > rows[:, _TOP])
    return area


class TFRecordBoxSource(_Records, BoxSource):
    """Images with boxes. Raises ConfigError if no record has any; `only_with_boxes` leaves out images without boxes."""

    def __init__(self, paths: list[Path], other_splits: list[Path], *, only_with_boxes: bool) -> None:
        tables = _Tables.load(paths, other_splits)
        columns = tables.columns
        if not len(columns["box"]):
            raise ConfigError(
                f"{paths[0].parent}: the TFRecord files have no boxes (image/object/bbox/...); a detector needs them."
            )
        count = len(columns["offset"])
        records = np.flatnonzero(columns["boxes"] > 0) if only_with_boxes else np.arange(count)
        super().__init__(paths, tables, records)
        self.without_boxes = int((columns["boxes"] == 0).sum())
        # An image without an id has its position in the whole set. Evaluators tell images apart by their ids, so if two
        # share one, all have their positions.
        ids = np.where(columns["id"] == _NO_ID, np.arange(count), columns["id"])
        self._ids = ids[records] if len(np.unique(ids)) == count else records
        self._sizes = np.stack([columns["width"], columns["height"]], axis=1)[records]
        # Both cover all records, also those that training leaves out: they are indexed by record, not by sample.
        self._boxes, self._box_starts = columns["box"], np.concatenate(([0], np.cumsum(columns["boxes"])))
        self._cut_boxes()
        # Counted after cutting, which leaves no area of a box outside of its image.
        self.dropped_boxes = len(self._boxes) - int(_has_area(self._boxes).sum())
        self.notes = self.describe_changes(training=only_with_boxes)
        self._categories = np.unique(tables.all_categories).astype(np.int64)
        self.category_ids = tuple(self._categories.tolist())
        self.classes = tuple(tables.names.get(str(c), str(c)) for c in self.category_ids)
        self.labels = np.full(len(records), -1, np.int64)

    def _cut_boxes(self) -> None:
        """Cut boxes that reach more than a pixel out of their image at its edge, as those of other formats are.

        The size of an image that its record does not have is read only where a box may have to be cut.
        """
        edges = self._boxes[:, :4]
        reaching_out = np.flatnonzero(((edges < 0) | (edges > 1)).any(axis=1))
        records = np.unique(np.searchsorted(self._box_starts, reaching_out, side="right") - 1)
        # Every record that has a box is in `_records`, so the search finds exactly it.
        for index in np.searchsorted(self._records, records).tolist():
            record = int(self._records[index])
            part = slice(int(self._box_starts[record]), int(self._box_starts[record + 1]))
            try:
                width, height = self.size(index) or read_size(self.read(index))
            except (BadImage, OSError):
                continue  # the image is bad, whatever its boxes are
            overhang = np.maximum(-edges[part], edges[part] - 1) * np.array([width, height, width, height])
            cut = np.flatnonzero((overhang > _TOLERANCE_PX).any(axis=1)) + part.start
            self._boxes[cut, :4] = edges[cut].clip(0, 1)
            self._boxes[cut, _AREA] = np.nan  # the annotated area is no longer true; `boxes` computes it
            self.cut_boxes += len(cut)

    def boxes(self, index: int) -> Boxes:
        """In pixels; the file has shares of the image. None for an image whose size cannot be found out."""
        record = int(self._records[index])
        rows = self._boxes[self._box_starts[record] : self._box_starts[record + 1]].astype(np.float64)
        rows = rows[_has_area(rows)]
        if not len(rows):
            return Boxes.empty()
        try:
            width, height = self.size(index) or read_size(self.read(index))
        except (BadImage, OSError):
            return Boxes.empty()  # the image is bad, whatever its boxes are
        ltrb = rows[:, :4] * np.array([width, height, width, height])
        classes = np.searchsorted(self._categories, rows[:, _CATEGORY].astype(np.int64)).astype(np.int64)
        areas = np.where(np.isnan(rows[:, _AREA]), (ltrb[:, 2:] - ltrb[:, :2]).prod(axis=1), rows[:, _AREA])
        return Boxes(ltrb, classes, rows[:, _CROWD] > 0, areas)

    def size(self, index: int) -> tuple[int, int] | None:
        return positive_size(*self._sizes[index].tolist())

    def image_id(self, index: int) -> int:
        return int(self._ids[index])
