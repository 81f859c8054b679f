"""Pascal VOC's xml files: finds those of a split, or of a set without splits, and reads them."""

import math
from functools import partial
from pathlib import Path
from xml.etree import ElementTree

from vernier.data.sources.folder import IMAGE_SUFFIXES, visible_paths
from vernier.data.sources.values import UNREADABLE, positive_size, read_lines
from vernier.errors import ConfigError

from .annotated import SPLITS, AnnotatedImage, Annotations, Reader, Row, path_inside

_XML_FOLDERS = ("Annotations", "annotations", "annots", "Annots")
_SPLIT_NAMES = tuple(dict.fromkeys(name for names in SPLITS.values() for name in names))
# Tried first: each ending that is wrong costs a look-up in the file system per image.
_COMMON_SUFFIXES = (".jpg", ".jpeg", ".png", ".JPG")
_IMAGE_SUFFIXES = (*_COMMON_SUFFIXES, *sorted(IMAGE_SUFFIXES.difference(_COMMON_SUFFIXES)))


def find_voc(root: Path, split: str | None) -> Reader | None:
    """A reader of the split: listed in ImageSets/, or one folder per split; None if there is neither.

    Of a set without splits: one folder of xml files.
    """
    if split is None:
        if (xml := _find_xml_folder(root)) is None:
            return None
        files = sorted(visible_paths(xml, "*.xml"))
        return partial(_read_voc, xml, _find_image_folder(root), [p.stem for p in files], files)
    # The archives of the challenge unpack to VOC2007/, VOC2012/ and so on.
    base = next((p for p in (root, *sorted(root.glob("VOC*"))) if _find_xml_folder(p) is not None), None)
    for name in SPLITS[split]:
        if base is not None and (xml := _find_xml_folder(base)) is not None:
            for listing in (base / "ImageSets" / "Main" / f"{name}.txt", base / "ImageSets" / f"{name}.txt"):
                if listing.is_file():
                    return partial(_read_listed, xml, _find_image_folder(base), listing)
        elif files := sorted(visible_paths(root / name, "*.xml")):
            every = [p for n in _SPLIT_NAMES for p in visible_paths(root / n, "*.xml")]
            return partial(_read_voc, root / name, root / name, [p.stem for p in files], every)
    return None


def _find_xml_folder(base: Path) -> Path | None:
    return next((base / name for name in _XML_FOLDERS if any(visible_paths(base / name, "*.xml"))), None)


def _find_image_folder(base: Path) -> Path:
    return next((p for p in (base / "JPEGImages", base / "images") if p.is_dir()), base)


def _read_listed(xml: Path, images: Path, listing: Path) -> Annotations:
    return _read_voc(xml, images, [line.split()[0] for line in read_lines(listing)], list(visible_paths(xml, "*.xml")))


def _read_voc(xml: Path, images: Path, names: list[str], every: list[Path]) -> Annotations:
    """Read the images called `names` from a folder of xml files and a folder of images.

    Classes are sorted by name over `every` xml file of the set, so that all splits agree. Objects marked difficult
    count as crowd: neither learned nor held against a detector.
    """
    parsed = {path: _parse(path) for path in every}
    classes = tuple(sorted({name for objects, _ in parsed.values() for name, _ in objects}))
    label_of = {name: i for i, name in enumerate(classes)}
    samples = []
    for position, name in enumerate(names):
        path = path_inside(xml, f"{name}.xml")
        objects, size = parsed[path] if path in parsed else _parse(path)
        rows = tuple(row._replace(label=label_of[class_name]) for class_name, row in objects)
        samples.append(AnnotatedImage(path=_find_image(images, name), image_id=position, rows=rows, size=size))
    return Annotations(samples=samples, classes=classes, where=str(xml))


def _convert_edges(left: float, top: float, right: float, bottom: float) -> tuple[float, float, float, float]:
    """From inclusive pixels counted from 1 to edges from 0, right and bottom exclusive.

    A box without area in the file stays without area.
    """
    if right <= left or bottom <= top:
        return left, top, left, top
    return max(0.0, left - 1), max(0.0, top - 1), right, bottom


def _find_image(folder: Path, name: str) -> Path:
    candidates = (path_inside(folder, name + suffix) for suffix in _IMAGE_SUFFIXES)
    return next((p for p in candidates if p.is_file()), folder / f"{name}.jpg")


def _read_edge(box: ElementTree.Element, name: str) -> float:
    """One edge of a box. Raises ValueError where it is missing or no finite number."""
    value = float(box.findtext(name) or "nan")
    if not math.isfinite(value):
        raise ValueError(f"a box has no finite <{name}>")
    return value


def _parse(path: Path) -> tuple[list[tuple[str, Row]], tuple[int, int] | None]:
    """The class name and box of each object of one file, and the image's width and height if it has them."""
    try:
        text = path.read_bytes()
        if b"<!DOCTYPE" in text or b"<!ENTITY" in text:  # entities of entities grow a small file to gigabytes
            raise ValueError("it declares entities, which annotations never need")
        root = ElementTree.fromstring(text)  # noqa: S314
        objects: list[tuple[str, Row]] = []
        for item in root.iter("object"):
            box = item.find("bndbox")
            if box is not None:
                edges = (_read_edge(box, k) for k in ("xmin", "ymin", "xmax", "ymax"))
                name = (item.findtext("name") or "").strip()
                if not name:
                    raise ValueError("an object has no <name>")
                difficult = item.findtext("difficult", "0").strip() == "1"
                objects.append((name, Row(*_convert_edges(*edges), -1, difficult)))
        width, height = (int(float(root.findtext(f"size/{k}") or 0)) for k in ("width", "height"))
        return objects, positive_size(width, height)
    except (OSError, ElementTree.ParseError, *UNREADABLE) as error:
        raise ConfigError(f"Cannot read the annotation {path}: {error}.") from None
