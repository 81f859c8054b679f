"""Images with boxes as one kind of source, whatever kind of file the annotations came in.

Boxes without area are dropped; boxes that reach more than a pixel out of their image are cut at its edge (COCO's own reach
out by less: they stay as they are, so that figures agree with other people's). For training, images without boxes are
left out; for evaluation all stay. Everything that was changed is counted and said in `notes`.
"""

import hashlib
import json
import math
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from vernier.data.sources.base import Boxes, BoxSource, EncodedSource, Indices, fingerprint_classes, fingerprint_of
from vernier.errors import ConfigError

_SLACK_PX = 1.0


class Row(NamedTuple):
    """One object: edges in pixels, class from 0, crowd, and its area in pixels where the annotation has one."""

    left: float
    top: float
    right: float
    bottom: float
    kind: int
    crowd: bool = False
    area: float | None = None

    @property
    def has_area(self) -> bool:
        return 0 < self.right - self.left < math.inf and 0 < self.bottom - self.top < math.inf


@dataclass(frozen=True)
class Annotated:
    """One image and its objects; `size` is width and height, where the annotation tells."""

    path: Path
    image_id: int
    rows: tuple[Row, ...]
    size: tuple[int, int] | None = None


class AnnotatedSource(EncodedSource, BoxSource):
    """Images with boxes. It has no label of its own for a whole image."""

    labels: Indices

    def __init__(
        self, samples: list[Annotated], classes: tuple[str, ...], *, training: bool, where: str,
        category_ids: tuple[int, ...] | None = None,
    ) -> None:  # fmt: skip
        if not classes:
            raise ConfigError(f"{where}: the annotations name no class, so there is nothing to detect.")
        inside = [_cut(s) for s in samples]
        self.cut_boxes = sum(
            a is not b for s, t in zip(samples, inside, strict=True) for a, b in zip(s.rows, t.rows, strict=True)
        )
        kept = [_with_area(s) for s in inside]
        self.dropped_boxes = sum(len(s.rows) for s in samples) - sum(len(s.rows) for s in kept)
        self.without_boxes = sum(not s.rows for s in kept)
        chosen = [s for s in kept if s.rows] if training else kept
        if not chosen:
            raise ConfigError(f"{where}: no images{' with boxes' if training else ''} were found.")
        self.classes = classes
        self.category_ids = tuple(range(1, len(classes) + 1)) if category_ids is None else category_ids
        self.notes = self._notes(training)
        self._paths = [s.path for s in chosen]
        self._ids = [s.image_id for s in chosen]
        self._sizes = [s.size for s in chosen]
        self._take([r for s in chosen for r in s.rows])
        self._ends = np.cumsum([0, *(len(s.rows) for s in chosen)])
        self.labels = np.full(len(chosen), -1, np.int64)

    def _take(self, rows: list[Row]) -> None:
        """Numbers, not objects: COCO has 860,000 of them."""
        self._ltrb = np.array([(r.left, r.top, r.right, r.bottom) for r in rows], np.float64).reshape(-1, 4)
        self._classes = np.array([r.kind for r in rows], np.int64)
        self._crowd = np.array([r.crowd for r in rows], np.bool_)
        box_area = (self._ltrb[:, 2:] - self._ltrb[:, :2]).prod(axis=1)
        own = np.array([np.nan if r.area is None else r.area for r in rows], np.float64)
        self._areas = np.where(np.isnan(own), box_area, own)

    def _notes(self, training: bool) -> tuple[str, ...]:
        said = (
            (self.cut_boxes, "box(es) reached out of their image and were cut at its edge"),
            (self.dropped_boxes, "box(es) without area inside their image were left out"),
            (self.without_boxes if training else 0, "image(s) without boxes are left out of training"),
        )
        return tuple(f"{count:,} {what}" for count, what in said if count)

    def __len__(self) -> int:
        return len(self._paths)

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

    def fingerprint(self) -> str:
        names = json.dumps([p.name for p in self._paths])
        numbers = (self._ltrb, self._classes, self._crowd, self._ends)
        return fingerprint_of(names.encode(), *(n.tobytes() for n in numbers), fingerprint_classes(self.classes))


def _cut(sample: Annotated) -> Annotated:
    """Boxes that reach out of the image by more than the slack become new ones."""
    if sample.size is None:
        return sample
    width, height = sample.size

    def cut(row: Row) -> Row:
        out = max(-row.left, -row.top, row.right - width, row.bottom - height)
        if not out > _SLACK_PX:
            return row
        left, right = (min(max(v, 0.0), width) for v in (row.left, row.right))
        top, bottom = (min(max(v, 0.0), height) for v in (row.top, row.bottom))
        return Row(left, top, right, bottom, row.kind, row.crowd, None)

    if all(r.left >= 0 and r.top >= 0 and r.right <= width and r.bottom <= height for r in sample.rows):
        return sample
    return replace(sample, rows=tuple(cut(r) for r in sample.rows))


def _with_area(sample: Annotated) -> Annotated:
    if all(r.has_area for r in sample.rows):
        return sample
    return replace(sample, rows=tuple(r for r in sample.rows if r.has_area))


def divided(samples: list[Annotated], split: str, val_share: float, where: str) -> list[Annotated]:
    """Of annotations without splits a share goes to validation, chosen by a hash of the file's name."""
    if len(samples) < 2:
        raise ConfigError(
            f"{where}: {len(samples)} image(s); two are needed to divide them into training and validation."
        )
    drawn = sorted(samples, key=lambda s: hashlib.sha256(os.fsencode(s.path.name)).digest())
    held = {s.path for s in drawn[: min(len(samples) - 1, max(1, round(val_share * len(samples))))]}
    return [s for s in samples if (s.path in held) == (split == "val")]
