"""Recognises the layout of a detection set's folder and opens a split of it.

Reading each format is up to `coco`, `voc`, `yolo` and layouts that plug in (`sources.plugged`); names and addresses are
resolved in `sources.opening`.
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from vernier.data.sources.base import BoxSource, note_held_out, note_test_as_validation, note_undivided
from vernier.data.sources.folder import has_class_folders
from vernier.data.sources.plugged import open_plugged_boxes
from vernier.errors import NoSuchSplit

from .annotated import SPLITS, AnnotatedSource, Annotations, split_by_name
from .coco import find_coco, find_unsplit_coco
from .voc import find_unsplit_voc, find_voc
from .yolo import find_unsplit_yolo, find_yolo

Reader = Callable[[], Annotations]


def describe_layouts(split: str) -> str:
    """The layouts that are recognised, for messages."""
    return (
        f"COCO (annotations/instances_{split}.json), Pascal VOC (Annotations/, ImageSets/Main/), "
        f"YOLO (images/{split}, labels/{split}) or TFRecord; or one of the first three without splits"
    )


def _find_split(root: Path, split: str) -> Reader | None:
    # The first format that has the split is used; `name_layout` looks in the same order.
    return find_coco(root, split) or find_voc(root, split) or find_yolo(root, split)


def _find_unsplit(root: Path) -> Reader | None:
    """Reads a set without splits: one json, one folder of xml files, or images/ and labels/ side by side."""
    return find_unsplit_coco(root) or find_unsplit_voc(root) or find_unsplit_yolo(root)


def find_splits(root: Path) -> tuple[str, ...]:
    """The splits that a detection set has annotations for; none where it has no splits."""
    return tuple(split for split in SPLITS if _find_split(root, split) is not None)


def _has_splits(root: Path) -> bool:
    return bool(find_splits(root))


def name_layout(root: Path) -> str:
    """The format of a detection set's annotations, in the order in which they are looked for."""
    split = next(iter(find_splits(root)), None)
    finders = {
        "COCO": (find_coco, find_unsplit_coco),
        "Pascal VOC": (find_voc, find_unsplit_voc),
        "YOLO": (find_yolo, find_unsplit_yolo),
    }
    formats = (
        name for name, (by_split, unsplit) in finders.items() if (by_split(root, split) if split else unsplit(root))
    )
    return next(formats, "TFRecord")


def has_boxes(root: Path) -> bool:
    """Whether a folder looks like a detection set."""
    # Not TFRecord: file names do not show whether records have boxes.
    return root.is_dir() and (_has_splits(root) or _find_unsplit(root) is not None)


def open_folder(root: Path, split: str, val_share: float, whole: bool = False) -> BoxSource:
    """Open a split of the detection set in a folder; `whole`: a set without splits as it is.

    Raises ConfigError, or NoSuchSplit if the split is not there.
    """
    if (read := _find_split(root, split)) is not None:
        return AnnotatedSource(read(), training=split == "train")
    # The test split stands in for validation. The note warns that no independent test is left then.
    if split == "val" and (read := _find_split(root, "test")) is not None:
        return _with_note(AnnotatedSource(read(), training=False), note_test_as_validation(root))
    if (plugged := open_plugged_boxes(root, split)) is not None:
        return plugged
    # If any split exists, a missing one is an error: the rest of the folder is not a set without splits.
    if not _has_splits(root) and (read := _find_unsplit(root)) is not None:
        return _open_undivided(root, read(), split, val_share, whole)
    raise NoSuchSplit(_explain_missing_split(root, split))


def open_held_out(root: Path, split: str, val_share: float) -> BoxSource:
    """A part of the training split, or of a set without splits, whatever other splits there are."""
    read = _find_split(root, "train") or (None if _has_splits(root) else _find_unsplit(root))
    if read is None:
        raise NoSuchSplit(_explain_missing_split(root, "train"))
    return _open_part(root, read(), split, val_share, has_splits=_has_splits(root))


def _open_undivided(root: Path, annotations: Annotations, split: str, val_share: float, whole: bool) -> AnnotatedSource:
    if whole:
        note = note_undivided(root, len(annotations.samples))
        # Not for training: images without boxes are included.
        source = _with_note(AnnotatedSource(annotations, training=False), note)
        source.undivided = True
        return source
    if split == "test":
        raise NoSuchSplit(f"{root} is not divided into splits: it has no test split. Use train or val.")
    return _open_part(root, annotations, split, val_share)


def _open_part(
    root: Path, annotations: Annotations, split: str, val_share: float, *, has_splits: bool = False
) -> AnnotatedSource:
    """The part of annotations that belongs to `train` or `val`."""
    total = len(annotations.samples)
    samples = split_by_name(annotations.samples, split, val_share, annotations.where)
    # The note reports the number of validation images, whichever of the two parts is opened.
    val = len(samples) if split == "val" else total - len(samples)
    source = AnnotatedSource(replace(annotations, samples=samples), training=split == "train")
    source.held_out = split == "val"
    return _with_note(source, note_held_out(root, val, total, has_splits=has_splits))


def _with_note(source: AnnotatedSource, note: str) -> AnnotatedSource:
    source.notes = (*source.notes, note)
    return source


def list_some(root: Path) -> str:
    """The first entries of a folder, for messages."""
    return ", ".join(sorted(p.name for p in root.iterdir())[:6]) or "nothing"


def _explain_missing_split(root: Path, split: str) -> str:
    content, layouts = list_some(root), describe_layouts(split)
    if _has_splits(root):
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
