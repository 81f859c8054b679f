"""Recognises the layout of a detection set's folder and opens a split of it.

Reading each format is up to `coco`, `voc`, `yolo` and layouts that plug in (`sources.base.DataLayout`); names and
addresses are resolved in `sources.opening`.
"""

from dataclasses import replace
from pathlib import Path

from vernier.data.sources.base import BoxSource, EncodedSource, open_plugged
from vernier.data.sources.folder import has_class_folders
from vernier.errors import NoSuchSplit

from .annotated import SPLITS, AnnotatedSource, Annotations, Reader, split_by_name
from .coco import find_coco
from .voc import find_voc
from .yolo import find_yolo


def describe_layouts(split: str) -> str:
    """Returns the layouts that are recognized, for messages."""
    return (
        f"COCO (annotations/instances_{split}.json), Pascal VOC (Annotations/, ImageSets/Main/), "
        f"YOLO (images/{split}, labels/{split}) or TFRecord; or one of the first three without splits"
    )


# By name: finds the reader of a split, or of a set without splits. The first format that a folder has is used.
_FORMATS = {"COCO": find_coco, "Pascal VOC": find_voc, "YOLO": find_yolo}


def _find_reader(root: Path, split: str | None) -> Reader | None:
    """The reader of a split; without one, that of a set without splits."""
    return next(filter(None, (find(root, split) for find in _FORMATS.values())), None)


def _find_splits(root: Path) -> tuple[str, ...]:
    """The splits that a detection set has annotations for; empty if it has no splits."""
    return tuple(split for split in SPLITS if _find_reader(root, split) is not None)


def recognise_set(root: Path) -> tuple[tuple[str, ...], str]:
    """The splits of a detection set, and the format of its annotations, in the order in which they are looked for."""
    splits = _find_splits(root)
    split = next(iter(splits), None)
    return splits, next((name for name, find in _FORMATS.items() if find(root, split)), "TFRecord")


def has_boxes(root: Path) -> bool:
    """Whether a folder looks like a detection set."""
    # Not TFRecord: file names do not show whether records have boxes.
    return root.is_dir() and (bool(_find_splits(root)) or _find_reader(root, None) is not None)


def open_folder(
    root: Path, split: str, val_share: float, whole: bool = False, exif: bool = True, hold_out: bool = False
) -> BoxSource:
    """Open a split of the detection set in a folder; `whole`: a set without splits as it is.

    `hold_out`: a part of the training split, or of a set without splits, whatever other splits there are. Raises
    ConfigError, or NoSuchSplit if the split is not there.
    """
    if hold_out:
        has_splits = bool(_find_splits(root))
        read = _find_reader(root, "train") or (None if has_splits else _find_reader(root, None))
        if read is None:
            raise NoSuchSplit(_explain_missing_split(root, "train"))
        return _open_part(root, read(), split, val_share, exif, has_splits=has_splits)
    if (read := _find_reader(root, split)) is not None:
        return AnnotatedSource(read(), training=split == "train", exif=exif)
    # The test split stands in for validation. The note warns that no independent test is left then.
    if split == "val" and (read := _find_reader(root, "test")) is not None:
        source = AnnotatedSource(read(), training=False, exif=exif)
        source.note_test_as_validation(root)
        return source
    if isinstance(plugged := open_plugged(root, split, boxes=True), BoxSource):
        if isinstance(plugged, EncodedSource):
            plugged.exif = exif
        return plugged
    # If any split exists, a missing one is an error: the rest of the folder is not a set without splits.
    if not _find_splits(root) and (read := _find_reader(root, None)) is not None:
        annotations = read()
        if whole:
            # Not for training: images without boxes are included.
            source = AnnotatedSource(annotations, training=False, exif=exif)
            source.note_undivided(root)
            return source
        if split == "test":
            raise NoSuchSplit(f"{root} is not divided into splits: it has no test split. Use train or val.")
        return _open_part(root, annotations, split, val_share, exif)
    raise NoSuchSplit(_explain_missing_split(root, split))


def _open_part(
    root: Path, annotations: Annotations, split: str, val_share: float, exif: bool, *, has_splits: bool = False
) -> AnnotatedSource:
    """The part of annotations that belongs to `train` or `val`."""
    total = len(annotations.samples)
    samples = split_by_name(annotations.samples, split, val_share, annotations.where)
    # The note reports the number of validation images, whichever of the two parts is opened.
    val = len(samples) if split == "val" else total - len(samples)
    source = AnnotatedSource(replace(annotations, samples=samples), training=split == "train", exif=exif)
    source.note_held_out(root, split, val, total, has_splits=has_splits)
    return source


def list_some(root: Path) -> str:
    """The first entries of a folder, for messages."""
    return ", ".join(sorted(p.name for p in root.iterdir())[:6]) or "nothing"


def _explain_missing_split(root: Path, split: str) -> str:
    content, layouts = list_some(root), describe_layouts(split)
    if _find_splits(root):
        return f"{root} is a detection set, but it has no {split} split. It contains: {content}."
    images = [p for p in (root / "images", root / "JPEGImages", root / split / "images") if p.is_dir()]
    if images:
        return (
            f"{images[0]} has images, but no annotations were found. Known layouts: {layouts}. "
            f"{root} contains: {content}."
        )
    if any(has_class_folders(folder) for folder in (root, root / "train", root / "val") if folder.is_dir()):
        return (
            f"{root} is a classification set (one folder per class); a detector needs boxes: {layouts}. "
            f"To train a classifier on it, choose a recipe for one: vernier recipes."
        )
    return f"{root} has no {split} split with boxes: {layouts}. It contains: {content}."
