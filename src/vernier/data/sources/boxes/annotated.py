"""Images with boxes as one kind of source, whichever format the annotations have.

Boxes without area are dropped. Boxes that reach more than a pixel out of their image are cut at its edge; COCO's own
boxes reach out by less and stay as they are, so that results agree with other people's. Training leaves out images
without boxes, evaluation uses all. `notes` counts everything that was changed. Reading annotation files is up to
`coco`, `voc` and `yolo`.
"""

import json
import math
import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from vernier.data.decoding.decode import BadImage, read_size
from vernier.data.sources.base import Boxes, BoxSource, EncodedSource, Files, Indices, choose_validation
from vernier.data.sources.values import check_class_names
from vernier.errors import ConfigError
from vernier.frozen import frozen
from vernier.wording import plural

SPLITS = {
    "train": ("train", "train2017", "trainval"),
    "val": ("val", "val2017", "valid", "validation"),
    "test": ("test", "test2017"),
}
"""The names under which annotations have each split."""
_TOLERANCE_PX = 1.0  # COCO's own boxes reach out by less


class Row(NamedTuple):
    """One object: edges in pixels, class from 0, crowd, and its area in pixels if the annotation has one.

    A tuple, because COCO has 860,000 of them.
    """

    left: float
    top: float
    right: float
    bottom: float
    label: int
    crowd: bool = False
    area: float | None = None

    @property
    def has_area(self) -> bool:
        # False for NaN, too.
        return 0 < self.right - self.left < math.inf and 0 < self.bottom - self.top < math.inf


@frozen
class AnnotatedImage:
    """One image and its objects; `size` is width and height if the annotation has them.

    `shares`: edges are fractions of the image, as in YOLO's files; `AnnotatedSource` reads its size.
    """

    path: Path
    image_id: int
    rows: tuple[Row, ...] = ()
    size: tuple[int, int] | None = None
    shares: bool = False


@frozen
class Annotations:
    """The images of one split, or of a whole set, and their classes."""

    samples: list[AnnotatedImage]
    classes: tuple[str, ...]
    where: str
    """The file or folder of the annotations, for messages."""
    category_ids: tuple[int, ...] | None = None
    """The numbers that the annotations give to the classes; None: 1, 2, ..."""


Reader = Callable[[], Annotations]


def path_inside(folder: Path, name: str) -> Path:
    """A file that an annotation names. Raises ConfigError if the name leads out of the folder, or is none."""
    # Annotations may be untrusted: they must not make Vernier read files elsewhere.
    if name.startswith("/") or ".." in name.split("/"):
        raise ConfigError(f"An annotation of images in {folder} names a file outside its folder: {name}.")
    try:
        # fsencode raises ValueError for half a character (a lone surrogate); no path has a NUL.
        if b"\0" in os.fsencode(name):
            raise ValueError
    except ValueError:
        raise ConfigError(f"An annotation of images in {folder} names a file that cannot exist: {name!r}.") from None
    return folder / name


class AnnotatedSource(EncodedSource, BoxSource):
    """Images with boxes. All labels are -1: an image has no class as a whole."""

    labels: Indices

    def __init__(self, annotations: Annotations, *, training: bool, exif: bool = True) -> None:
        self.exif = exif
        classes, where = annotations.classes, annotations.where
        if not classes:
            raise ConfigError(f"{where}: the annotations name no class, so there is nothing to detect.")
        try:
            check_class_names(classes)
        except ValueError as error:
            raise ConfigError(f"{where}: a class has a name that cannot be written: {error}.") from None
        whole = [_in_pixels(s, exif) if s.shares else s for s in annotations.samples]
        # Cut before dropping: a box outside of its image has no area once it is cut.
        cut = [_cut_boxes(s) for s in whole]
        self.cut_boxes = sum(
            # Boxes that are not cut stay the same objects.
            before is not after
            for sample, cut_sample in zip(whole, cut, strict=True)
            for before, after in zip(sample.rows, cut_sample.rows, strict=True)
        )
        samples = [replace(s, rows=tuple(r for r in s.rows if r.has_area)) for s in cut]
        self.dropped_boxes = sum(len(s.rows) for s in cut) - sum(len(s.rows) for s in samples)
        self.without_boxes = sum(not s.rows for s in samples)
        if training:
            samples = [s for s in samples if s.rows]
        if not samples:
            raise ConfigError(f"{where}: there are no images{' with boxes' if training else ''}.")
        self.classes = classes
        self.category_ids = annotations.category_ids or tuple(range(1, len(classes) + 1))
        self.notes = self.describe_changes(training=training)
        self._paths = [s.path for s in samples]
        self._ids = [s.image_id for s in samples]
        self._sizes = [s.size for s in samples]
        self._store_rows([r for s in samples for r in s.rows])
        # The boxes of image i are _ends[i] to _ends[i + 1].
        self._ends = np.cumsum([0, *(len(s.rows) for s in samples)])
        self.labels = np.full(len(samples), -1, np.int64)

    def _store_rows(self, rows: list[Row]) -> None:
        """Numbers take far less memory than objects."""
        self._ltrb = np.array([(r.left, r.top, r.right, r.bottom) for r in rows], np.float64).reshape(-1, 4)
        self._classes = np.array([r.label for r in rows], np.int64)
        self._crowd = np.array([r.crowd for r in rows], np.bool_)
        box_areas = (self._ltrb[:, 2:] - self._ltrb[:, :2]).prod(axis=1)
        # COCO's area is that of the outline, not of the box; its small, medium and large objects are told apart by it.
        annotated_areas = np.array([np.nan if r.area is None else r.area for r in rows], np.float64)
        self._areas = np.where(np.isnan(annotated_areas), box_areas, annotated_areas)

    def read(self, index: int) -> bytes:
        return self._paths[index].read_bytes()

    def boxes(self, index: int) -> Boxes:
        part = slice(int(self._ends[index]), int(self._ends[index + 1]))
        return Boxes(self._ltrb[part], self._classes[part], self._crowd[part], self._areas[part])

    def image_id(self, index: int) -> int:
        return self._ids[index]

    def size(self, index: int) -> tuple[int, int] | None:
        return self._sizes[index]

    def name(self, index: int) -> str:
        return self._paths[index].name

    def describe(self, index: int) -> str:
        return str(self._paths[index])

    def files(self) -> Files:
        return len(self), self.describe

    def fingerprint(self) -> str:
        names = json.dumps([p.name for p in self._paths])
        numbers = (self._ltrb, self._classes, self._crowd, self._ends)
        return self._fingerprint(names.encode(), *(n.tobytes() for n in numbers))


def _in_pixels(sample: AnnotatedImage, exif: bool) -> AnnotatedImage:
    """Boxes of fractions in pixels of the image. One that cannot be read keeps its boxes, and counts as bad when it is
    used."""
    size: tuple[int, int] | None = None
    with suppress(BadImage, OSError):
        size = read_size(sample.path.read_bytes(), exif=exif)
    width, height = size or (1, 1)
    rows = tuple(
        r._replace(left=r.left * width, top=r.top * height, right=r.right * width, bottom=r.bottom * height)
        for r in sample.rows
    )
    return replace(sample, rows=rows, size=size)


def _cut_boxes(sample: AnnotatedImage) -> AnnotatedImage:
    """Replace boxes that reach out of the image by more than the tolerance; the others stay the same objects."""
    if sample.size is None:
        return sample
    width, height = sample.size

    def cut(row: Row) -> Row:
        overhang = max(-row.left, -row.top, row.right - width, row.bottom - height)
        # Not `<=`: a box with NaN stays as it is, and `has_area` drops it.
        if not overhang > _TOLERANCE_PX:
            return row
        left, right = (min(max(v, 0.0), width) for v in (row.left, row.right))
        top, bottom = (min(max(v, 0.0), height) for v in (row.top, row.bottom))
        return Row(left, top, right, bottom, row.label, row.crowd, None)  # None: the annotated area is no longer true

    return replace(sample, rows=tuple(cut(r) for r in sample.rows))


def split_by_name(samples: list[AnnotatedImage], split: str, val_share: float, where: str) -> list[AnnotatedImage]:
    """The part of annotations without splits that belongs to `split`, chosen by a hash of each file's name."""
    if len(samples) < 2:
        raise ConfigError(
            f"{where}: {plural(len(samples), 'image')}; two are needed to divide them into training and validation."
        )
    # By name alone, so that the same images are held out wherever the folder is.
    val_paths = {samples[i].path for i in choose_validation([s.path.name for s in samples], val_share)}
    return [s for s in samples if (s.path in val_paths) == (split == "val")]
