"""YOLO's text files: finds the folders of a split, or of a set without splits, and reads boxes and class names."""

from functools import partial
from pathlib import Path
from typing import Any

import yaml

from vernier.data.sources.folder import IMAGE_SUFFIXES, visible_paths
from vernier.data.sources.values import read_lines, read_text
from vernier.errors import ConfigError

from .annotated import SPLITS, AnnotatedImage, Annotations, Reader, Row

_DEEPEST_YAML = 32


def find_yolo(root: Path, split: str | None) -> Reader | None:
    """A reader of the split: images/train + labels/train, or train/images + train/labels; None if there is neither.

    Of a set without splits: images/ and labels/ side by side.
    """
    if split is None:
        images, labels = root / "images", root / "labels"
        if images.is_dir() and labels.is_dir() and any(p.is_file() for p in visible_paths(images)):
            return partial(_read_yolo, root, images, labels)
        return None
    # Both layouts are common: Ultralytics writes images/train, Roboflow exports train/images.
    for name in SPLITS[split]:
        for images, labels in (
            (root / "images" / name, root / "labels" / name),
            (root / name / "images", root / name / "labels"),
        ):
            if images.is_dir() and labels.is_dir():
                return partial(_read_yolo, root, images, labels)
    return None


def _read_yolo(root: Path, images: Path, labels: Path) -> Annotations:
    """Read one text file per image. A line is an object: its class, then centre, width and height as shares of the
    image.

    An outline (x and y of its points) may stand instead of centre, width and height.
    """
    classes = read_class_names(root)
    paths = sorted(p for p in visible_paths(images) if p.suffix.lower() in IMAGE_SUFFIXES)
    samples = [_read_sample(p, i, labels / f"{p.stem}.txt", len(classes)) for i, p in enumerate(paths)]
    return Annotations(samples=samples, classes=classes, where=str(images))


def _read_sample(image: Path, image_id: int, file: Path, class_count: int) -> AnnotatedImage:
    text = read_text(file) if file.is_file() else ""
    lines = [line.split() for line in text.splitlines() if line.strip()]
    # YOLO writes an empty file, or none, for an image without objects: a sample all the same.
    if not lines:
        return AnnotatedImage(path=image, image_id=image_id)
    try:
        rows = tuple(_read_row(file, line, class_count) for line in lines)
    except ConfigError:
        raise
    except (ValueError, OverflowError) as error:
        raise ConfigError(f"{file}: a line is not 'class x y width height': {error}.") from None
    return AnnotatedImage(path=image, image_id=image_id, rows=rows, shares=True)


def _read_row(file: Path, line: list[str], class_count: int) -> Row:
    label, values = int(line[0]), [float(v) for v in line[1:]]
    if not 0 <= label < class_count:
        raise ConfigError(f"{file}: class {label}, but there are {class_count} classes.")
    # The number of values tells the form: the format has no header.
    if len(values) >= 6 and len(values) % 2 == 0:
        left, top, right, bottom = min(values[::2]), min(values[1::2]), max(values[::2]), max(values[1::2])
    elif len(values) in (4, 5):  # the fifth is a confidence
        x, y, w, h = values[:4]
        left, top, right, bottom = x - w / 2, y - h / 2, x + w / 2, y + h / 2
    else:
        raise ValueError(f"{len(line)} values in {' '.join(line)[:60]}")
    return Row(left, top, right, bottom, label)


def read_class_names(root: Path) -> tuple[str, ...]:
    """The names in classes.txt, obj.names, or under `names:` in a .yaml file. Raises ConfigError if there are none."""
    for path in (root / "classes.txt", root / "obj.names"):
        if path.is_file():
            return read_lines(path)
    for path in (p for pattern in ("*.yaml", "*.yml") for p in sorted(visible_paths(root, pattern))):
        if names := _read_yaml_names(path):
            return names
    raise ConfigError(
        f"{root} has neither classes.txt nor a .yaml or .yml file with `names:`. One of them must list the classes."
    )


class _PlainLoader(yaml.BaseLoader):
    """Makes no objects but strings, lists and mappings: classes called `no` or `1.0` keep their names.

    Refuses what is nested deeply, on which the parser would spend time with the square of the depth.
    """

    _depth = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        self._depth += 1
        if self._depth > _DEEPEST_YAML:
            raise yaml.YAMLError(f"it is nested in more than {_DEEPEST_YAML} levels")
        node = super().compose_node(parent, index)
        self._depth -= 1
        return node


def _read_yaml_names(path: Path) -> tuple[str, ...]:
    """The names of a list, or of a mapping from 0, 1, ... to names; empty if the file has no `names`."""
    try:
        tree = yaml.load(read_text(path), Loader=_PlainLoader)  # noqa: S506
    except (yaml.YAMLError, RecursionError) as error:
        raise ConfigError(f"{path} is not a readable YAML file: {' '.join(str(error).split())}.") from None
    names = (tree.get("names") if isinstance(tree, dict) else None) or []
    if isinstance(names, dict):
        if names.keys() != {str(i) for i in range(len(names))}:
            raise ConfigError(f"{path}: `names` must number the classes from 0 to {len(names) - 1} without gaps.")
        names = [names[str(i)] for i in range(len(names))]
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ConfigError(f"{path}: `names` must be a list of class names, or a mapping such as 0: cat.")
    return tuple(names)
