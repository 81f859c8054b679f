"""Where samples come from: one small reader per format, all giving an image and a label by index.

`open_split` turns what a recipe or `--data` names into a source, by looking at what is there.
"""

import os
from collections.abc import Callable
from pathlib import Path

from vernier.data.sources.arrays import ArraySource, open_cifar10, open_fashion_mnist, read_idx
from vernier.data.sources.base import VAL_SHARE, Boxes, BoxSource, EncodedSource, Source
from vernier.data.sources.boxes.layouts import has_boxes, open_boxes
from vernier.data.sources.containers.raw import RawSource
from vernier.data.sources.containers.shards import ShardSource, open_shards
from vernier.data.sources.containers.tfrecord import TFRecordSource, find_tfrecords
from vernier.data.sources.folder import FolderSource, divided, has_class_folders
from vernier.data.sources.synthetic import SyntheticSource
from vernier.data.unfinished import refuse_unfinished
from vernier.errors import ConfigError, NoSuchSplit, did_you_mean
from vernier.folders import data_home

__all__ = [
    "BUILT_IN", "ArraySource", "BoxSource", "Boxes",
    "EncodedSource", "FolderSource", "RawSource", "ShardSource", "Source", "SyntheticSource",
    "TFRecordSource",
    "open_boxes", "open_cifar10", "open_fashion_mnist", "open_split", "read_idx",
]  # fmt: skip

SPLIT_FOLDERS = {"train": ("train",), "val": ("val", "validation", "test")}
NAMED: dict[str, Callable[[Path, str], ArraySource]] = {"fashion-mnist": open_fashion_mnist, "cifar10": open_cifar10}
BUILT_IN = ("shapes", "synthetic", "static", "imagenette", *NAMED)
KNOWN_LAYOUTS = "train/ and val/ with one folder per class, one such folder alone, tar shards, .raw, TFRecord, Fashion-MNIST or CIFAR-10"


def open_split(source: str, split: str, *, search: tuple[Path, ...] = (), val_share: float = VAL_SHARE) -> Source:
    """The `train` or `val` split of what `--data` names: a built-in set, or a folder whose layout is recognised.

    `search` holds folders in which a built-in name such as `fashion-mnist` is looked for; `val_share` is what a folder
    without splits of its own keeps for validation.
    """
    if not source:
        raise ConfigError("This recipe brings no data of its own. Say where the images are: --data PATH.")
    if source == "shapes":
        from vernier.data.shapes import files as shapes

        return FolderSource(shapes.cached(shapes.ShapesSpec()) / split)
    if source in ("synthetic", "static"):
        return SyntheticSource(split, static=source == "static")
    if source == "imagenette" and (data_home() / source / "imagenette2-320").is_dir():
        refuse_unfinished(data_home() / source)
        return _open_folder(data_home() / source / "imagenette2-320", split, val_share)
    if source in NAMED or source == "imagenette":
        for folder in (*search, data_home()):
            if source in NAMED and (folder / source).is_dir():
                refuse_unfinished(folder / source)
                return NAMED[source](folder / source, split)
        raise ConfigError(
            f"The data set {source!r} is not in {data_home()}. Fetch it (vernier data get {source}), "
            f"or say where its files are: --data PATH."
        )
    if "://" in source:
        from vernier.data.sources.containers.remote import open_remote

        return open_remote(source, split)
    root = Path(source).expanduser()
    if not root.exists():
        near = did_you_mean(source, BUILT_IN) if os.sep not in source else ""
        raise ConfigError(f"The data path {source} does not exist. {near}".rstrip())
    return _open_folder(root, split, val_share)


def _open_folder(root: Path, split: str, val_share: float) -> Source:
    if root.is_file():
        raise ConfigError(f"--data {root} is a file; a folder is needed: {KNOWN_LAYOUTS}.")
    refuse_unfinished(root)
    if (root / f"{split}.raw").is_file():
        return RawSource(root / f"{split}.raw")
    if (shards := open_shards(root, split)) is not None:
        return shards
    if records := find_tfrecords(root, split):
        return TFRecordSource(records, find_tfrecords(root, "val" if split == "train" else "train"))
    if any(root.glob("*-images-idx3-ubyte*")):
        return open_fashion_mnist(root, split)
    if (root / "cifar-10-batches-bin").is_dir() or any(root.glob("*_batch*.bin")):
        return open_cifar10(root, split)
    for name in SPLIT_FOLDERS[split]:
        if (root / name).is_dir() and (has_class_folders(root / name) or not has_boxes(root)):
            return FolderSource(root / name)
    has_splits = any((root / name).is_dir() for names in SPLIT_FOLDERS.values() for name in names)
    of_detector = ("images", "JPEGImages", "data") if has_boxes(root) else ()
    if not has_splits and has_class_folders(root, apart_from=of_detector):
        return divided(root, split, val_share)
    if has_boxes(root):
        raise ConfigError(
            f"{root} is a detection set (images with boxes); a classifier needs one class per image: {KNOWN_LAYOUTS}."
        )
    alone = " To train without validation: --train-only." if split == "val" else ""
    inside = ", ".join(sorted(p.name for p in root.iterdir())[:6]) or "nothing"
    raise NoSuchSplit(
        f"{root} has no {split}/ folder, and no other layout was recognised. It holds: {inside}. Known: {KNOWN_LAYOUTS}.{alone}"
    )
