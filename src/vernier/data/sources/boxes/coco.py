"""COCO's instances json: finds the file of a split, or the single file of a set without splits, and reads it."""

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NotRequired, TypedDict

from vernier.data.sources.base import positive_size
from vernier.errors import ConfigError

from .annotated import SPLITS, AnnotatedImage, Annotations, Row, path_inside

_UNSPLIT_NAMES = (
    "annotations.json",
    "_annotations.coco.json",
    "instances.json",
    "instances_default.json",
    "labels.json",
    "result.json",
)


class _Image(TypedDict):
    id: int
    file_name: str
    width: NotRequired[int | None]
    height: NotRequired[int | None]


class _Object(TypedDict):
    image_id: int
    category_id: int
    bbox: list[float]
    area: NotRequired[float | None]
    iscrowd: NotRequired[int]


class _Category(TypedDict):
    id: int
    name: str


class _Instances(TypedDict):
    """The keys of the file that are read."""

    images: list[_Image]
    annotations: list[_Object]
    categories: list[_Category]


def find_coco(root: Path, split: str) -> Callable[[], Annotations] | None:
    """A reader of the split's annotations; None where there are none."""
    for name in SPLITS[split]:
        for file in (
            root / "annotations" / f"instances_{name}.json",
            root / name / "_annotations.coco.json",
            root / "annotations" / f"{name}.json",
            root / f"{name}.json",
        ):
            if file.is_file():
                return partial(read_coco, file, [root / name, root / "images" / name, root / "images", root])
    return None


def find_unsplit_coco(root: Path) -> Callable[[], Annotations] | None:
    """A reader of the one file of a set without splits; None where there is none."""
    for folder in (root, root / "annotations"):
        for name in _UNSPLIT_NAMES:
            if (folder / name).is_file():
                return partial(read_coco, folder / name, [root / "images", root / "data", root])
    return None


def read_coco(file: Path, folders: list[Path]) -> Annotations:
    """Read COCO's instances; images are in the first of `folders` that has them.

    Categories are numbered from 0 in the order of their ids.
    """
    try:
        tree: _Instances = json.loads(file.read_bytes())
        categories = sorted(tree["categories"], key=lambda c: c["id"])
        rows = _read_rows(file, tree["annotations"], {c["id"]: i for i, c in enumerate(categories)})
        folder = _find_image_folder(folders, tree["images"])
        samples = [
            AnnotatedImage(
                path=path_inside(folder, image["file_name"]),
                image_id=int(image["id"]),
                rows=tuple(rows.pop(image["id"], ())),
                size=positive_size(int(image.get("width") or 0), int(image.get("height") or 0)),
            )
            for image in tree["images"]
        ]
        names = tuple(str(c["name"]) for c in categories)
        ids = tuple(int(c["id"]) for c in categories)
    except ConfigError:
        raise
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ConfigError(f"{file} is not a file of COCO instances: {error!r}.") from None
    if rows:
        raise ConfigError(f"{file}: an annotation is about image {next(iter(rows))}, which is not among its images.")
    return Annotations(samples=samples, classes=names, where=str(file), category_ids=ids)


def _read_rows(file: Path, annotations: list[_Object], label_of: dict[int, int]) -> dict[int, list[Row]]:
    """The objects of each image id."""
    rows: dict[int, list[Row]] = {}
    for item in annotations:
        if item["category_id"] not in label_of:
            raise ConfigError(
                f"{file}: an annotation of image {item['image_id']} has the category {item['category_id']}, which is "
                f"not among its {len(label_of)} categories. Add it to them, or remove the annotation."
            )
        x, y, w, h = map(float, item["bbox"])
        area = item.get("area")
        rows.setdefault(item["image_id"], []).append(
            Row(
                x,
                y,
                x + w,
                y + h,
                label_of[item["category_id"]],
                bool(item.get("iscrowd", 0)),
                None if area is None else float(area),
            )
        )
    return rows


def _find_image_folder(folders: list[Path], images: list[_Image]) -> Path:
    """The first folder that has the first image; if none has it, the first folder that exists."""
    existing = [f for f in folders if f.is_dir()]
    name = images[0]["file_name"] if images else ""
    return next((f for f in existing if name and path_inside(f, name).is_file()), existing[0])
