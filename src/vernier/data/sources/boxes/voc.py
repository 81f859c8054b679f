"""Pascal VOC's xml files: finds those of a split, or of a set without splits, and reads them."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

from vernier.data.sources.base import positive_size, read_lines
from vernier.data.sources.boxes.annotated import SPLITS, AnnotatedImage, Annotations, Row, path_inside
from vernier.errors import ConfigError
from vernier.frozen import frozen

_SPLIT_NAMES = tuple(dict.fromkeys(name for names in SPLITS.values() for name in names))
_IMAGE_SUFFIXES = (".jpg", ".jpeg", ".png", ".JPG", ".bmp", ".webp")


@frozen
class VocFolders:
    """Where the xml files are, and where the images."""

    xml: Path
    images: Path


class _Object(NamedTuple):
    """An object as the file has it: inclusive pixels counted from 1."""

    name: str
    left: float
    top: float
    right: float
    bottom: float
    difficult: bool


def find_voc(root: Path, split: str) -> Callable[[], Annotations] | None:
    """A reader of the split: listed in ImageSets/, or one folder per split; None where there is neither."""
    base = next((p for p in (root, *sorted(root.glob("VOC*"))) if _find_xml_folder(p) is not None), None)
    for name in SPLITS[split]:
        if base is not None and (xml := _find_xml_folder(base)) is not None:
            for listing in (base / "ImageSets" / "Main" / f"{name}.txt", base / "ImageSets" / f"{name}.txt"):
                if listing.is_file():
                    folders = VocFolders(xml=xml, images=_find_image_folder(base))
                    return partial(_read_listed, folders, listing)
        elif files := sorted((root / name).glob("*.xml")):
            every = [p for n in _SPLIT_NAMES for p in (root / n).glob("*.xml")]
            folders = VocFolders(xml=root / name, images=root / name)
            return partial(read_voc, folders, [p.stem for p in files], every)
    return None


def find_unsplit_voc(root: Path) -> Callable[[], Annotations] | None:
    """A reader of a set without splits: one folder of xml files; None where there is none."""
    if (xml := _find_xml_folder(root)) is None:
        return None
    files = sorted(xml.glob("*.xml"))
    return partial(read_voc, VocFolders(xml=xml, images=_find_image_folder(root)), [p.stem for p in files], files)


def _find_xml_folder(base: Path) -> Path | None:
    return next((p for p in (base / "Annotations", base / "annotations") if next(p.glob("*.xml"), None)), None)


def _find_image_folder(base: Path) -> Path:
    return next((p for p in (base / "JPEGImages", base / "images") if p.is_dir()), base)


def _read_listed(folders: VocFolders, listing: Path) -> Annotations:
    names = [line.split()[0] for line in read_lines(listing)]
    return read_voc(folders, names, list(folders.xml.glob("*.xml")))


def read_voc(folders: VocFolders, names: list[str], every: list[Path]) -> Annotations:
    """Read the images called `names`. Classes are sorted by name over `every` xml file of the set, so that all splits
    agree.

    Objects marked difficult count as crowd: neither learned nor held against a detector.
    """
    parsed = {path: _parse(path) for path in every}
    classes = tuple(sorted({item.name for objects, _ in parsed.values() for item in objects}))
    label_of = {name: i for i, name in enumerate(classes)}
    samples = []
    for position, name in enumerate(names):
        path = path_inside(folders.xml, f"{name}.xml")
        objects, size = parsed[path] if path in parsed else _parse(path)
        rows = tuple(_convert_object(item, label_of[item.name]) for item in objects)
        samples.append(AnnotatedImage(path=_find_image(folders.images, name), image_id=position, rows=rows, size=size))
    return Annotations(samples=samples, classes=classes, where=str(folders.xml))


def _convert_object(item: _Object, label: int) -> Row:
    """Edges from 0, right and bottom exclusive; a box without area in the file stays without area."""
    if item.right <= item.left or item.bottom <= item.top:
        return Row(item.left, item.top, item.left, item.top, label, item.difficult)
    return Row(max(0.0, item.left - 1), max(0.0, item.top - 1), item.right, item.bottom, label, item.difficult)


def _find_image(folder: Path, name: str) -> Path:
    candidates = (path_inside(folder, name + suffix) for suffix in _IMAGE_SUFFIXES)
    return next((p for p in candidates if p.is_file()), folder / f"{name}.jpg")


def _parse(path: Path) -> tuple[list[_Object], tuple[int, int] | None]:
    """The objects of one file, and the image's width and height if it has them."""
    try:
        root = ElementTree.parse(path).getroot()
        objects: list[_Object] = []
        for item in root.iter("object"):
            box = item.find("bndbox")
            if box is not None:
                left, top, right, bottom = (float(box.findtext(k) or "nan") for k in ("xmin", "ymin", "xmax", "ymax"))
                name = (item.findtext("name") or "").strip()
                difficult = item.findtext("difficult", "0").strip() == "1"
                objects.append(_Object(name, left, top, right, bottom, difficult))
        width, height = (int(float(root.findtext(f"size/{k}") or 0)) for k in ("width", "height"))
        return objects, positive_size(width, height)
    except (OSError, ElementTree.ParseError, ValueError) as error:
        raise ConfigError(f"Cannot read the annotation {path}: {error}.") from None
