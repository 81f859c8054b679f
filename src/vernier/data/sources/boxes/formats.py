"""Annotation files: COCO's instances json, Pascal VOC's xml, YOLO's txt. Finds those of a split, or of a set without splits.

All become `Annotations`: boxes as left, top, right, bottom in pixels, and classes from 0. What becomes of them is up to
`annotated`.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from vernier.data.decoding.decode import BadImage, size_of
from vernier.data.sources.boxes.annotated import Annotated, Row
from vernier.data.sources.folder import IMAGE_SUFFIXES
from vernier.errors import ConfigError

SPLITS = {
    "train": ("train", "train2017", "trainval"),
    "val": ("val", "val2017", "valid", "validation", "test"),
    "test": ("test", "test2017"),
}
_NAMES = tuple(dict.fromkeys(name for names in SPLITS.values() for name in names))


@dataclass(frozen=True)
class Annotations:
    """The images of one split, or of a whole set, and what their classes are."""

    samples: list[Annotated]
    classes: tuple[str, ...]
    where: str
    category_ids: tuple[int, ...] | None = None
    """The annotations' own numbers of the classes; None: 1, 2, ..."""


def find_annotations(root: Path, split: str) -> Annotations | None:
    """Those of a split: COCO, then Pascal VOC, then YOLO."""
    if coco := _find_coco(root, split):
        return read_coco(*coco)
    if voc := _find_voc(root, split):
        return read_voc(*voc)
    if yolo := _find_yolo(root, split):
        return read_yolo(root, *yolo)
    return None


def find_undivided(root: Path) -> Callable[[], Annotations] | None:
    """What reads a set without splits: one json, one folder of xml files, or images/ and labels/ side by side."""
    for folder in (root, root / "annotations"):
        for name in _COCO_ALONE:
            if (folder / name).is_file():
                return partial(read_coco, folder / name, [root / "images", root / "data", root])
    if (xml := _voc_xml(root)) is not None:
        every = sorted(xml.glob("*.xml"))
        return partial(read_voc, VocFolder(xml, _voc_images(root)), [p.stem for p in every], every)
    images, labels = root / "images", root / "labels"
    if images.is_dir() and labels.is_dir() and any(p.is_file() for p in images.iterdir()):
        return partial(read_yolo, root, images, labels)
    return None


def has_splits(root: Path) -> bool:
    """Whether a folder looks like a detection set with splits."""
    return any(find(root, split) for find in (_find_coco, _find_voc, _find_yolo) for split in SPLITS)


def _inside(folder: Path, name: str) -> Path:
    """A file named by an annotation, which must not lead out of its folder."""
    if name.startswith("/") or ".." in name.split("/"):
        raise ConfigError(f"An annotation names a file outside its folder: {name}.")
    return folder / name


# ---------------------------------------------------------------------------------------------------------------- COCO

_COCO_ALONE = (
    "annotations.json", "_annotations.coco.json", "instances.json", "instances_default.json", "labels.json", "result.json",
)  # fmt: skip


def _find_coco(root: Path, split: str) -> tuple[Path, list[Path]] | None:
    """The annotations of a split, and the folders in which its images may be."""
    for name in SPLITS[split]:
        for file in (
            root / "annotations" / f"instances_{name}.json", root / name / "_annotations.coco.json",
            root / "annotations" / f"{name}.json", root / f"{name}.json",
        ):  # fmt: skip
            if file.is_file():
                return file, [root / name, root / "images" / name, root / "images", root]
    return None


def read_coco(file: Path, folders: list[Path]) -> Annotations:
    """COCO's instances. Categories are numbered from 0 in the order of their ids."""
    try:
        tree = json.loads(file.read_bytes())
        categories = sorted(tree["categories"], key=lambda c: c["id"])
        rows = _coco_rows(file, tree["annotations"], {c["id"]: i for i, c in enumerate(categories)})
        folder = _coco_folder(folders, tree["images"])
        samples = [
            Annotated(_inside(folder, i["file_name"]), int(i["id"]), tuple(rows.pop(i["id"], ())), _coco_size(i))
            for i in tree["images"]
        ]
        names = tuple(str(c["name"]) for c in categories)
        ids = tuple(int(c["id"]) for c in categories)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        if isinstance(error, ConfigError):
            raise
        raise ConfigError(f"{file} is not a file of COCO instances: {error!r}.") from None
    if rows:
        raise ConfigError(f"{file}: an annotation is about image {next(iter(rows))}, which is not among its images.")
    return Annotations(samples, names, str(file), ids)


def _coco_rows(file: Path, annotations: list[dict[str, Any]], number: dict[int, int]) -> dict[int, list[Row]]:
    rows: dict[int, list[Row]] = {}
    for a in annotations:
        if a["category_id"] not in number:
            raise ConfigError(
                f"{file}: an annotation of image {a['image_id']} has the category {a['category_id']}, which is not among its "
                f"{len(number)} categories. Add it to them, or remove the annotation."
            )
        x, y, w, h = map(float, a["bbox"])
        area = None if a.get("area") is None else float(a["area"])
        rows.setdefault(a["image_id"], []).append(
            Row(x, y, x + w, y + h, number[a["category_id"]], bool(a.get("iscrowd", 0)), area)
        )
    return rows


def _coco_folder(folders: list[Path], images: list[dict[str, Any]]) -> Path:
    """Where the first image is; where none has it, the first folder there is."""
    there = [f for f in folders if f.is_dir()]
    name = images[0]["file_name"] if images else ""
    return next((f for f in there if name and _inside(f, name).is_file()), there[0])


def _coco_size(image: dict[str, Any]) -> tuple[int, int] | None:
    width, height = int(image.get("width") or 0), int(image.get("height") or 0)
    return (width, height) if width > 0 and height > 0 else None


# ---------------------------------------------------------------------------------------------------------- Pascal VOC


@dataclass(frozen=True)
class VocFolder:
    """Where the xml files are, and where the images."""

    xml: Path
    images: Path


def _voc_xml(base: Path) -> Path | None:
    return next((p for p in (base / "Annotations", base / "annotations") if next(p.glob("*.xml"), None)), None)


def _voc_images(base: Path) -> Path:
    return next((p for p in (base / "JPEGImages", base / "images") if p.is_dir()), base)


def _find_voc(root: Path, split: str) -> tuple[VocFolder, list[str], list[Path]] | None:
    """The folders, the names of a split's images, and every xml file of the set: ImageSets/ lists, or a folder a split."""
    base = next((p for p in (root, *sorted(root.glob("VOC*"))) if _voc_xml(p) is not None), None)
    for name in SPLITS[split]:
        if base is not None and (xml := _voc_xml(base)) is not None:
            for listing in (base / "ImageSets" / "Main" / f"{name}.txt", base / "ImageSets" / f"{name}.txt"):
                if listing.is_file():
                    names = [line.split()[0] for line in listing.read_text().splitlines() if line.strip()]
                    return VocFolder(xml, _voc_images(base)), names, list(xml.glob("*.xml"))
        elif here := sorted((root / name).glob("*.xml")):
            every = [p for n in _NAMES for p in (root / n).glob("*.xml")]
            return VocFolder(root / name, root / name), [p.stem for p in here], every
    return None


def read_voc(folder: VocFolder, names: list[str], every: list[Path]) -> Annotations:
    """Pascal VOC. Classes are sorted by name over the whole set, so that every split agrees; pixel 1 is the first one.

    Objects marked difficult count as crowd: neither learned nor held against a detector.
    """
    parsed = {path: _voc_objects(path) for path in every}
    classes = tuple(sorted({name for found, _ in parsed.values() for name, *_ in found}))
    number = {name: i for i, name in enumerate(classes)}
    samples = []
    for position, name in enumerate(names):
        path = _inside(folder.xml, f"{name}.xml")
        found, size = parsed[path] if path in parsed else _voc_objects(path)
        rows = tuple(_voc_row(a, b, c, d, number[kind], hard) for kind, a, b, c, d, hard in found)
        samples.append(Annotated(_voc_image(folder.images, name), position, rows, size))
    return Annotations(samples, classes, str(folder.xml))


def _voc_row(left: float, top: float, right: float, bottom: float, kind: int, hard: bool) -> Row:
    """From inclusive pixels counted from 1; a box without area in the file stays one."""
    if right <= left or bottom <= top:
        return Row(left, top, left, top, kind, hard)
    return Row(max(0.0, left - 1), max(0.0, top - 1), right, bottom, kind, hard)


def _voc_image(folder: Path, name: str) -> Path:
    endings = (".jpg", ".jpeg", ".png", ".JPG", ".bmp", ".webp")
    return next((p for p in (_inside(folder, name + s) for s in endings) if p.is_file()), folder / f"{name}.jpg")


_VocObject = tuple[str, float, float, float, float, bool]


def _voc_objects(path: Path) -> tuple[list[_VocObject], tuple[int, int] | None]:
    """The objects of one file, and the image's width and height where it has them."""
    try:
        root = ElementTree.parse(path).getroot()
        out: list[_VocObject] = []
        for item in root.iter("object"):
            box = item.find("bndbox")
            if box is not None:
                left, top, right, bottom = (float(box.findtext(k) or "nan") for k in ("xmin", "ymin", "xmax", "ymax"))
                name = (item.findtext("name") or "").strip()
                out.append((name, left, top, right, bottom, item.findtext("difficult", "0").strip() == "1"))
        width, height = (int(float(root.findtext(f"size/{k}") or 0)) for k in ("width", "height"))
        return out, (width, height) if width > 0 and height > 0 else None
    except (OSError, ElementTree.ParseError, ValueError) as error:
        raise ConfigError(f"Cannot read the annotation {path}: {error}.") from None


# ---------------------------------------------------------------------------------------------------------------- YOLO


def _find_yolo(root: Path, split: str) -> tuple[Path, Path] | None:
    """The folders of images and of labels of a split: images/train + labels/train, or train/images + train/labels."""
    for name in SPLITS[split]:
        for images, labels in (
            (root / "images" / name, root / "labels" / name),
            (root / name / "images", root / name / "labels"),
        ):
            if images.is_dir() and labels.is_dir():
                return images, labels
    return None


def read_yolo(root: Path, images: Path, labels: Path) -> Annotations:
    """YOLO's text files: one line an object, class and centre, width, height (or an outline) as shares of the image."""
    classes = _yolo_classes(root)
    paths = sorted(p for p in images.iterdir() if p.suffix.lower() in IMAGE_SUFFIXES)
    samples = [_yolo_sample(p, i, labels / f"{p.stem}.txt", len(classes)) for i, p in enumerate(paths)]
    return Annotations(samples, classes, str(images))


def _yolo_sample(image: Path, number: int, file: Path, classes: int) -> Annotated:
    text = file.read_text() if file.is_file() else ""
    lines = [line.split() for line in text.splitlines() if line.strip()]
    if not lines:
        return Annotated(image, number, ())
    try:
        with image.open("rb") as f:
            size = size_of(f.read())
        return Annotated(image, number, tuple(_yolo_row(file, line, size, classes) for line in lines), size)
    except BadImage as error:
        raise ConfigError(f"Cannot read the size of {image}: {error}.") from None
    except ValueError as error:
        if isinstance(error, ConfigError):
            raise
        raise ConfigError(f"{file}: a line is not 'class x y width height': {error}.") from None


def _yolo_row(file: Path, line: list[str], size: tuple[int, int], classes: int) -> Row:
    kind, values = int(line[0]), [float(v) for v in line[1:]]
    if not 0 <= kind < classes:
        raise ConfigError(f"{file}: class {kind}, but there are {classes} classes.")
    if len(values) >= 6 and len(values) % 2 == 0:
        left, top, right, bottom = min(values[::2]), min(values[1::2]), max(values[::2]), max(values[1::2])
    elif len(values) in (4, 5):  # a fifth one is a confidence
        x, y, w, h = values[:4]
        left, top, right, bottom = x - w / 2, y - h / 2, x + w / 2, y + h / 2
    else:
        raise ValueError(f"{len(line)} values in {' '.join(line)[:60]}")
    return Row(left * size[0], top * size[1], right * size[0], bottom * size[1], kind)


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
