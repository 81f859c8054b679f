"""Detection sets: turns what a recipe or `--data` names into a source of images with boxes, by looking at what is there."""

from pathlib import Path

from vernier.data.sources.base import VAL_SHARE, BoxSource
from vernier.data.sources.boxes.annotated import AnnotatedSource, divided
from vernier.data.sources.boxes.formats import SPLITS, Annotations, find_annotations, find_undivided, has_splits
from vernier.data.sources.containers.tfrecord import TFRecordSource, find_tfrecords
from vernier.data.sources.folder import has_class_folders
from vernier.data.sources.synthetic import SyntheticBoxSource
from vernier.data.unfinished import refuse_unfinished
from vernier.errors import ConfigError, NoSuchSplit, did_you_mean
from vernier.folders import data_home

BUILT_IN_BOXES = ("shapes", "coco", "synthetic", "static")
KNOWN_BOXES = (
    "COCO (annotations/instances_{split}.json), Pascal VOC (Annotations/, ImageSets/Main/), YOLO (images/{split}, labels/{split}) "
    "or TFRecord; or one of the first three without splits"
)
SHAPES_TRAIN, SHAPES_VAL = 4000, 500


def open_boxes(source: str, split: str, *, val_share: float = VAL_SHARE) -> BoxSource:
    """The `train`, `val` or `test` split of a detection set: a built-in one, or a folder whose layout is recognised.

    `val_share` is what a folder without splits of its own keeps for validation; it has no test split. A folder without
    a validation split but with a test split is validated on that.
    """
    if split not in SPLITS:
        raise ConfigError(f"There is no split {split!r}. {did_you_mean(split, SPLITS)}")
    if not source:
        raise ConfigError("This recipe brings no data of its own. Say where the images are: --data PATH.")
    if source in BUILT_IN_BOXES:
        return _open_built_in(source, split)
    if "://" in source:
        raise ConfigError(f"--data {source}: a detection set has to be in a folder here. Known: {_known(split)}.")
    root = Path(source).expanduser()
    if not root.exists():
        raise ConfigError(f"The data path {source} does not exist. {did_you_mean(source, BUILT_IN_BOXES)}".rstrip())
    if not root.is_dir():
        raise ConfigError(f"--data {source} is a file; a folder is needed: {_known(split)}.")
    refuse_unfinished(root)
    return open_folder(root, split, val_share)


def _known(split: str) -> str:
    return KNOWN_BOXES.format(split=split)


def _open_built_in(name: str, split: str) -> BoxSource:
    if name == "coco":
        root = data_home() / name
        if not (root / "annotations").is_dir():
            raise ConfigError(
                f"The data set 'coco' is not in {data_home()}. Fetch it (vernier data get coco), or say where its files are: --data PATH."
            )
        refuse_unfinished(root)
        return open_folder(root, split, VAL_SHARE)
    if split == "test":
        raise ConfigError(f"The built-in set {name} has no test split. Use train or val.")
    if name == "shapes":
        from vernier.data.shapes import files as shapes

        spec = shapes.ShapesSpec(kind="detect", train=SHAPES_TRAIN, val=SHAPES_VAL)
        return open_folder(shapes.cached(spec), split, VAL_SHARE)
    return SyntheticBoxSource(split, static=name == "static")


def open_folder(root: Path, split: str, val_share: float) -> BoxSource:
    """A split of a detection set that is this folder, by the layout that is recognised."""
    if (found := find_annotations(root, split)) is not None:
        return _source(found, split)
    if records := find_tfrecords(root, split):
        others = [path for other in SPLITS if other != split for path in find_tfrecords(root, other)]
        boxed = TFRecordSource(records, others, only_boxed=split == "train")
        if boxed.has_boxes:
            return boxed
        raise ConfigError(f"{root}: the TFRecord files have no boxes (image/object/bbox/...); a detector needs them.")
    if not has_splits(root) and (read := find_undivided(root)) is not None:
        if split == "test":
            raise ConfigError(f"{root} is not divided into splits: it has no test split. Use train or val.")
        return _source(_part(read(), split, val_share), split)
    raise NoSuchSplit(_why_not(root, split))


def _source(found: Annotations, split: str) -> AnnotatedSource:
    return AnnotatedSource(
        found.samples, found.classes, training=split == "train", where=found.where, category_ids=found.category_ids
    )


def _part(found: Annotations, split: str, val_share: float) -> Annotations:
    samples = divided(found.samples, split, val_share, found.where)
    return Annotations(samples, found.classes, found.where, found.category_ids)


def _why_not(root: Path, split: str) -> str:
    inside = ", ".join(sorted(p.name for p in root.iterdir())[:6]) or "nothing"
    if has_splits(root):
        alone = " To train without validation: --train-only." if split == "val" else ""
        return f"{root} is a detection set, but it has no {split} split. It holds: {inside}.{alone}"
    images = [p for p in (root / "images", root / "JPEGImages", root / split / "images") if p.is_dir()]
    if images:
        return f"{images[0]} holds images, but their annotations were not found. Known: {_known(split)}. {root} holds: {inside}."
    if any(has_class_folders(folder) for folder in (root, root / "train", root / "val") if folder.is_dir()):
        return (
            f"{root} is a classification set (one folder per class); a detector needs boxes: {_known(split)}. "
            f"To train a classifier on it, choose a recipe of one: vernier recipes."
        )
    return f"{root} has no {split} split with boxes: {_known(split)}. It holds: {inside}."


def has_boxes(root: Path) -> bool:
    """Whether a folder looks like a detection set."""
    return root.is_dir() and (has_splits(root) or find_undivided(root) is not None)
