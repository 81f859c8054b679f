"""COCO's instances json: finds the file of a split, or the single file of a set without splits, and reads it."""

import math
from collections import Counter
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from vernier.data.sources.values import UNREADABLE, parse_json, positive_size, whole_number
from vernier.errors import ConfigError

from .annotated import SPLITS, AnnotatedImage, Annotations, Reader, Row, path_inside

_UNSPLIT_NAMES = (
    "annotations.json",
    "_annotations.coco.json",
    "instances.json",
    "instances_default.json",
    "labels.json",
    "result.json",
)


def find_coco(root: Path, split: str | None) -> Reader | None:
    """A reader of the split's annotations, or of the one file of a set without splits; None if there are none."""
    if split is None:
        files = (folder / name for folder in (root, root / "annotations") for name in _UNSPLIT_NAMES)
        file = next((file for file in files if file.is_file()), None)
        return None if file is None else partial(_read_coco, file, [root / "images", root / "data", root])
    for name in SPLITS[split]:
        for file in (
            root / "annotations" / f"instances_{name}.json",
            root / name / "_annotations.coco.json",
            root / "annotations" / f"{name}.json",
            root / f"{name}.json",
        ):
            if file.is_file():
                return partial(_read_coco, file, [root / name, root / "images" / name, root / "images", root])
    return None


def _read_coco(file: Path, folders: list[Path]) -> Annotations:
    """Read COCO's instances; images are in the first of `folders` that has them.

    Categories are numbered from 0 in the order of their ids.
    """
    try:
        tree: Any = parse_json(file.read_bytes())
        categories = sorted(tree["categories"], key=lambda c: whole_number(c["id"]))
        ids = _different_ids(categories, "categories")
        image_ids = _different_ids(tree["images"], "images")
        rows = _read_rows(file, tree["annotations"], {number: i for i, number in enumerate(ids)})
        folder = _find_image_folder(folders, tree["images"])
        samples = [
            AnnotatedImage(
                path=path_inside(folder, image["file_name"]),
                image_id=image_id,
                rows=tuple(rows.pop(image_id, ())),  # what is left over in the end belongs to no image
                size=positive_size(image.get("width"), image.get("height")),
            )
            for image_id, image in zip(image_ids, tree["images"], strict=True)
        ]
        names = tuple(str(c["name"]) for c in categories)
    except ConfigError:
        raise
    except (OSError, *UNREADABLE) as error:
        raise ConfigError(f"{file} is not a file of COCO instances: {error!r}.") from None
    if rows:
        raise ConfigError(f"{file}: an annotation is about image {next(iter(rows))}, which is not among its images.")
    return Annotations(samples=samples, classes=names, where=str(file), category_ids=ids)


def _different_ids(items: Sequence[Any], kind: str) -> tuple[int, ...]:
    """The ids of images or categories. Raises ValueError where two have the same."""
    ids = tuple(whole_number(item["id"]) for item in items)
    if len(set(ids)) < len(ids):
        twice = next(number for number, count in Counter(ids).items() if count > 1)
        raise ValueError(f"two of its {kind} have the id {twice}")
    return ids


def _is_crowd(value: int | str) -> bool:
    """0 or 1, also as text: some tools write "0". Raises ValueError for anything else."""
    number = whole_number(value)
    if number not in (0, 1):
        raise ValueError(f"iscrowd is {number}, not 0 or 1")
    return number == 1


def _read_rows(file: Path, annotations: list[Any], label_of: dict[int, int]) -> dict[int, list[Row]]:
    """The objects of each image id."""
    rows: dict[int, list[Row]] = {}
    for item in annotations:
        image_id, category = whole_number(item["image_id"]), whole_number(item["category_id"])
        if category not in label_of:
            raise ConfigError(
                f"{file}: an annotation of image {image_id} has the category {category}, which is "
                f"not among its {len(label_of)} categories. Add it to them, or remove the annotation."
            )
        x, y, w, h = map(float, item["bbox"])
        given = item.get("area")
        area = None if given is None else float(given)
        if area is not None and not math.isfinite(area):
            raise ConfigError(f"{file}: an annotation of image {image_id} has the area {area:g}.")
        crowd = _is_crowd(item.get("iscrowd") or 0)
        rows.setdefault(image_id, []).append(Row(x, y, x + w, y + h, label_of[category], crowd, area))
    return rows


def _find_image_folder(folders: list[Path], images: list[Any]) -> Path:
    """The first folder that has the first image; if none has it, the first folder that exists."""
    # Names of files do not tell: in exports of many tools they are relative to another folder than the annotations.
    existing = [f for f in folders if f.is_dir()]
    name = images[0]["file_name"] if images else ""
    return next((f for f in existing if name and path_inside(f, name).is_file()), existing[0])
