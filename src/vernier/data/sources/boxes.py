"""Images with boxes from annotation files: COCO's instances json, Pascal VOC's xml, YOLO's txt.

All become one kind of source: bytes, boxes as left, top, right, bottom in pixels, and classes from 0. Boxes without area
are dropped and counted. For training, images without boxes are left out; for evaluation all stay.
"""

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np

from vernier.data.decode import BadImage, size_of
from vernier.data.sources.base import Boxes, EncodedSource, Indices, fingerprint_classes, fingerprint_of
from vernier.data.sources.folder import IMAGE_SUFFIXES
from vernier.errors import ConfigError

SPLITS = {"train": ("train", "train2017", "trainval"), "val": ("val", "val2017", "valid", "validation", "test")}
Row = tuple[float, float, float, float, int, bool]


@dataclass(frozen=True)
class Annotated:
    """One image and its boxes: left, top, right, bottom, class, crowd."""

    path: Path
    image_id: int
    rows: tuple[Row, ...]


class AnnotatedSource(EncodedSource):
    """Images with boxes. It has no label of its own for a whole image."""

    labels: Indices

    def __init__(self, samples: list[Annotated], classes: tuple[str, ...], *, training: bool, where: str) -> None:
        self.dropped_boxes = sum(not _has_area(r) for s in samples for r in s.rows)
        kept = [Annotated(s.path, s.image_id, tuple(r for r in s.rows if _has_area(r))) for s in samples]
        self.without_boxes = sum(not s.rows for s in kept)
        self._samples = [s for s in kept if s.rows] if training else kept
        if not self._samples:
            raise ConfigError(f"{where}: no images{' with boxes' if training else ''} were found.")
        self.classes = classes
        self.labels = np.full(len(self._samples), -1, np.int64)

    def __len__(self) -> int:
        return len(self._samples)

    def read(self, index: int) -> bytes:
        return self._samples[index].path.read_bytes()

    def boxes(self, index: int) -> Boxes:
        rows = self._samples[index].rows
        if not rows:
            return Boxes.none()
        return Boxes(
            np.array([r[:4] for r in rows], np.float32), np.array([r[4] for r in rows], np.int64), np.array([r[5] for r in rows], np.bool_)
        )  # fmt: skip

    def image_id(self, index: int) -> int:
        """The id in the annotations; where they have none, the position in the whole list."""
        return self._samples[index].image_id

    def name(self, index: int) -> str:
        return self._samples[index].path.name

    def describe(self, index: int) -> str:
        return str(self._samples[index].path)

    def fingerprint(self) -> str:
        listed = json.dumps([(s.path.name, s.rows) for s in self._samples])
        return fingerprint_of(listed.encode(), fingerprint_classes(self.classes))


def _has_area(row: Row) -> bool:
    return all(math.isfinite(v) for v in row[:4]) and row[2] > row[0] and row[3] > row[1]


# ---------------------------------------------------------------------------------------------------------------- COCO


def find_coco(root: Path, split: str) -> tuple[Path, Path] | None:
    """The annotations and the folder of images of a split."""
    for name in SPLITS[split]:
        for file in (root / "annotations" / f"instances_{name}.json", root / name / "_annotations.coco.json"):
            folders = (root / name, root / "images" / name, root / "images", root)
            folder = next((f for f in folders if f.is_dir()), None)
            if file.is_file() and folder is not None:
                return file, folder
    return None


def open_coco(annotations: Path, images: Path, *, training: bool) -> AnnotatedSource:
    """COCO's instances. Categories are numbered from 0 in the order of their ids."""
    try:
        tree = json.loads(annotations.read_bytes())
        categories = sorted(tree["categories"], key=lambda c: c["id"])
        number = {c["id"]: i for i, c in enumerate(categories)}
        rows: dict[int, list[Row]] = {}
        for a in tree["annotations"]:
            x, y, w, h = a["bbox"]
            rows.setdefault(a["image_id"], []).append(
                (x, y, x + w, y + h, number[a["category_id"]], bool(a.get("iscrowd", 0)))
            )
        samples = [
            Annotated(_inside(images, i["file_name"]), int(i["id"]), tuple(rows.get(i["id"], ())))
            for i in tree["images"]
        ]
    except (ValueError, KeyError, TypeError) as error:
        if isinstance(error, ConfigError):
            raise
        raise ConfigError(f"{annotations} is not a file of COCO instances: {error!r}.") from None
    return AnnotatedSource(samples, tuple(c["name"] for c in categories), training=training, where=str(annotations))


def _inside(folder: Path, name: str) -> Path:
    """A file named by an annotation, which must not lead out of its folder."""
    if name.startswith("/") or ".." in Path(name).parts:
        raise ConfigError(f"An annotation names a file outside its folder: {name}.")
    return folder / name


# ---------------------------------------------------------------------------------------------------------- Pascal VOC


def find_voc(root: Path, split: str) -> tuple[Path, list[str]] | None:
    """The folder with Annotations/ and JPEGImages/, and the names of a split."""
    base = next((p for p in (root, *sorted(root.glob("VOC*"))) if (p / "Annotations").is_dir()), None)
    if base is None:
        return None
    for name in SPLITS[split]:
        listing = base / "ImageSets" / "Main" / f"{name}.txt"
        listing = listing if listing.is_file() else base / "ImageSets" / f"{name}.txt"
        if listing.is_file():
            return base, [line.split()[0] for line in listing.read_text().splitlines() if line.strip()]
    return None


def open_voc(base: Path, names: list[str], *, training: bool) -> AnnotatedSource:
    """Pascal VOC. Classes are sorted by name over the whole set, so that every split agrees; pixel 1 is the first one.

    Objects marked difficult count as crowd: neither learned nor held against a detector.
    """
    classes = sorted({name for p in (base / "Annotations").glob("*.xml") for name, *_ in _voc_objects(p)})
    number = {name: i for i, name in enumerate(classes)}
    samples = []
    for position, name in enumerate(names):
        found = _voc_objects(_inside(base / "Annotations", f"{name}.xml"))
        rows = tuple(_voc_row(a, b, c, d, number[kind], hard) for kind, a, b, c, d, hard in found)
        samples.append(Annotated(_voc_image(base, name), position, rows))
    return AnnotatedSource(samples, tuple(classes), training=training, where=str(base))


def _voc_row(left: float, top: float, right: float, bottom: float, kind: int, hard: bool) -> Row:
    """From inclusive pixels counted from 1; a box without area in the file stays one."""
    if right <= left or bottom <= top:
        return left, top, left, top, kind, hard
    return max(0.0, left - 1), max(0.0, top - 1), right, bottom, kind, hard


def _voc_image(base: Path, name: str) -> Path:
    folder = base / "JPEGImages"
    return next(
        (p for p in (_inside(folder, name + s) for s in (".jpg", ".jpeg", ".png")) if p.is_file()),
        folder / f"{name}.jpg",
    )


def _voc_objects(path: Path) -> list[tuple[str, float, float, float, float, bool]]:
    try:
        out = []
        for item in ElementTree.parse(path).getroot().iter("object"):
            box = item.find("bndbox")
            edges = (
                [float(box.findtext(k) or "nan") for k in ("xmin", "ymin", "xmax", "ymax")] if box is not None else []
            )
            if len(edges) == 4:
                name = (item.findtext("name") or "").strip()
                out.append(
                    (name, edges[0], edges[1], edges[2], edges[3], item.findtext("difficult", "0").strip() == "1")
                )
        return out
    except (OSError, ElementTree.ParseError, ValueError) as error:
        raise ConfigError(f"Cannot read the annotation {path}: {error}.") from None


# ---------------------------------------------------------------------------------------------------------------- YOLO


def find_yolo(root: Path, split: str) -> tuple[Path, Path] | None:
    """The folders of images and of labels of a split: images/train + labels/train, or train/images + train/labels."""
    for name in SPLITS[split]:
        for images, labels in (
            (root / "images" / name, root / "labels" / name),
            (root / name / "images", root / name / "labels"),
        ):
            if images.is_dir() and labels.is_dir():
                return images, labels
    return None


def open_yolo(root: Path, images: Path, labels: Path, *, training: bool) -> AnnotatedSource:
    """YOLO's text files: one line an object, class and centre, width, height as shares of the image."""
    classes = _yolo_classes(root)
    paths = sorted(p for p in images.iterdir() if p.suffix.lower() in IMAGE_SUFFIXES)
    samples = [Annotated(p, i, _yolo_rows(p, labels / f"{p.stem}.txt", len(classes))) for i, p in enumerate(paths)]
    return AnnotatedSource(samples, classes, training=training, where=str(images))


def _yolo_rows(image: Path, file: Path, classes: int) -> tuple[Row, ...]:
    if not file.is_file():
        return ()
    lines = [line.split() for line in file.read_text().splitlines() if line.strip()]
    if not lines:
        return ()
    try:
        with image.open("rb") as f:
            width, height = size_of(f.read())
        rows = []
        for kind, *rest in lines:
            x, y, w, h = (float(v) for v in rest[:4])
            if not 0 <= int(kind) < classes:
                raise ConfigError(f"{file}: class {kind}, but there are {classes} classes.")
            rows.append(
                ((x - w / 2) * width, (y - h / 2) * height, (x + w / 2) * width, (y + h / 2) * height, int(kind), False)
            )
        return tuple(rows)
    except BadImage as error:
        raise ConfigError(f"Cannot read the size of {image}: {error}.") from None
    except ValueError as error:
        if isinstance(error, ConfigError):
            raise
        raise ConfigError(f"{file}: a line is not 'class x y width height': {error}.") from None


def _yolo_classes(root: Path) -> tuple[str, ...]:
    """The names in data.yaml (a list, or numbers and names) or classes.txt."""
    for path in (root / "classes.txt", root / "obj.names"):
        if path.is_file():
            return tuple(line.strip() for line in path.read_text().splitlines() if line.strip())
    for path in sorted(root.glob("*.yaml")):
        if names := _yaml_names(path.read_text()):
            return names
    raise ConfigError(f"{root} has no classes.txt, and no data.yaml with names:, that says what the classes are.")


def _yaml_names(text: str) -> tuple[str, ...]:
    """`names: [a, b]`, or the indented lines below `names:`, as `- a` or `0: a`."""
    lines = [line.split("#")[0].rstrip() for line in text.splitlines()]
    at = next((i for i, line in enumerate(lines) if line.startswith("names:")), None)
    if at is None:
        return ()
    inline = lines[at].removeprefix("names:").strip()
    if inline:
        return tuple(_bare(n) for n in inline.strip("[]").split(",") if n.strip())
    out: list[str] = []
    for line in lines[at + 1 :]:
        if line.strip() and not line.startswith((" ", "-")):
            break
        if line.strip():
            out.append(_bare(line.strip().removeprefix("-").strip().split(":", 1)[-1]))
    return tuple(out)


def _bare(text: str) -> str:
    return text.strip().strip("'\"")


# ------------------------------------------------------------------------------------------------------------- opening


def open_boxes(source: str, split: str) -> Any:
    """The `train` or `val` split of a detection set whose layout is recognised: COCO, Pascal VOC, YOLO or TFRecord."""
    from vernier.data.sources.tfrecord import TFRecordSource, find_tfrecords

    root, training = Path(source).expanduser(), split == "train"
    if not root.is_dir():
        raise ConfigError(f"The data path {source} is not a folder.")
    if coco := find_coco(root, split):
        return open_coco(*coco, training=training)
    if voc := find_voc(root, split):
        return open_voc(*voc, training=training)
    if yolo := find_yolo(root, split):
        return open_yolo(root, *yolo, training=training)
    if records := find_tfrecords(root, split):
        found = TFRecordSource(records, find_tfrecords(root, "val" if training else "train"))
        if found.has_boxes:
            return found
    inside = ", ".join(sorted(p.name for p in root.iterdir())[:6]) or "nothing"
    raise ConfigError(
        f"{root} has no {split} split with boxes: COCO (annotations/instances_{split}.json), Pascal VOC (Annotations/, ImageSets/Main/), "
        f"YOLO (images/{split}, labels/{split}) or TFRecord. It holds: {inside}."
    )


def has_boxes(root: Path) -> bool:
    """Whether a folder looks like a detection set."""
    return any(find(root, split) for find in (find_coco, find_voc, find_yolo) for split in SPLITS)
