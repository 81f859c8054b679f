"""Opens what a recipe or `--data` names: `open_split` for a classifier, `open_boxes` for a detector.

A name is a built-in set, an address, or a folder whose layout is recognised by looking at what is in it. Layouts of
detection sets are recognised in `boxes.layouts`; reading a layout is up to its source.
"""

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from vernier.addresses import check_allowed
from vernier.config.settings import DATA_SOURCES
from vernier.data import shapes
from vernier.data.unfinished import MARK, is_unfinished
from vernier.errors import ConfigError, NoSuchSplit, did_you_mean
from vernier.folders import data_home
from vernier.frozen import frozen
from vernier.own_code import is_own
from vernier.plugins import needed_plugin, plugin_names
from vernier.references import command, given, use

from .arrays import ArraySource, open_cifar10, open_fashion_mnist
from .base import VAL_SHARE, BoxSource, EncodedSource, Source, open_plugged
from .boxes.layouts import (
    describe_layouts,
    has_boxes,
    list_some,
    open_folder,
    recognise_set,
)
from .containers.raw import RawSource
from .containers.shards import open_shards
from .folder import (
    TINY_IMAGENET_LABELS,
    FolderSource,
    explain_content,
    has_class_folders,
    open_annotated_val,
    split_by_name,
)
from .synthetic import SyntheticBoxSource, SyntheticSource

SPLIT_FOLDERS = {"train": ("train",), "val": ("val", "valid", "validation", "test"), "test": ("test",)}
_ARRAYS: dict[str, Callable[[Path, str], ArraySource]] = {"fashion-mnist": open_fashion_mnist, "cifar10": open_cifar10}
_GENERATED = ("shapes", "synthetic", "static")
BUILT_IN = (*_GENERATED, "imagenette", *_ARRAYS)
BUILT_IN_BOXES = (*_GENERATED, "coco")
LAYOUTS = (
    "train/ and val/ with one folder per class, one such folder alone, tar shards, .raw, TFRecord, "
    "Fashion-MNIST or CIFAR-10"
)
_NOT_CLASSES = (
    "images",
    "labels",
    "JPEGImages",
    "Annotations",
    "annotations",
    "ImageSets",
    "data",
    "train2017",
    "val2017",
)
"""Folders of detection sets that hold images of all classes, or none."""
_IMAGENET_NAMES = ("imagenet", "imagenet1k", "ilsvrc2012", "ilsvrc", "imagenet2012")
SHAPES_TRAIN, SHAPES_VAL = 4000, 500  # images of the built-in detection set


def open_split(
    source: str,
    split: str,
    *,
    val_share: float = VAL_SHARE,
    whole: bool = False,
    hold_out: bool = False,
    shard_cache_gb: float | None = None,
    exif: bool = True,
) -> Source:
    """Open the `train`, `val` or `test` split of a classification set. A set with a test split but no validation split
    is validated on the test split. Raises NoSuchSplit.

    `val_share` is the share of a folder without splits that is set aside for validation; `whole`: such a folder is
    opened whole instead, whatever the split. `hold_out`: that share of the training split is the validation split, also
    where there is another one. `shard_cache_gb`: largest size of the cache of an address, where not the default.
    `exif`: photographs are turned as their EXIF orientation says.
    """
    _check_split(source, split)
    if _names_own(source):
        classes: Source = _open_own(source, split, False, val_share, whole, hold_out, exif)
        return classes
    if hold_out and split != "test":
        opened = _open_held_out(source, split, val_share)
    else:
        opened = _open_classes(source, split, val_share, whole, shard_cache_gb)
    if isinstance(opened, EncodedSource):
        opened.exif = exif
    return opened


def _open_classes(source: str, split: str, val_share: float, whole: bool, shard_cache_gb: float | None) -> Source:
    if source == "shapes":
        return FolderSource(shapes.make_cached_shapes(shapes.ShapesSpec()) / split)
    if source in ("synthetic", "static"):
        return SyntheticSource(split, static=source == "static")
    if source == "imagenette":
        return _open_class_folder(_find_fetched(source, "imagenette2-320") / "imagenette2-320", split, val_share, whole)
    if source in _ARRAYS:
        return _ARRAYS[source](_find_fetched(source), split)
    if "://" in source:
        return _open_address(source, split, shard_cache_gb)
    return _open_class_folder(_find_folder(source, BUILT_IN, LAYOUTS), split, val_share, whole)


def open_boxes(
    source: str,
    split: str,
    *,
    val_share: float = VAL_SHARE,
    whole: bool = False,
    hold_out: bool = False,
    exif: bool = True,
) -> BoxSource:
    """Open the `train`, `val` or `test` split of a detection set, with the rules of `open_split`."""
    _check_split(source, split)
    if _names_own(source):
        boxes: BoxSource = _open_own(source, split, True, val_share, whole, hold_out, exif)
        return boxes
    if hold_out and split != "test":
        root = _find_folder(source, BUILT_IN_BOXES, describe_layouts("train"))
        return open_folder(root, split, val_share, exif=exif, hold_out=True)
    if source == "coco":
        return open_folder(_find_fetched(source, "annotations"), split, VAL_SHARE, exif=exif)
    if source in _GENERATED:
        return _open_generated_boxes(source, split)
    layouts = describe_layouts(split)
    if "://" in source:
        raise ConfigError(
            f"{given('data.source', source)}: a detection set must be a local folder. Known layouts: {layouts}."
        )
    return open_folder(_find_folder(source, BUILT_IN_BOXES, layouts), split, val_share, whole, exif)


@frozen
class _FolderContent:
    """What a folder of images holds: boxes or classes, which splits (none: ()), and the name of the layout."""

    boxes: bool
    splits: tuple[str, ...]
    layout: str
    both: bool = False
    """It has class folders and boxes."""


def recognise_folder(folder: str, boxes: bool | None = None) -> _FolderContent:
    """Recognize whether a folder of images has classes or boxes; `boxes` decides if it has both (default: classes).

    Raises ConfigError where they are in no layout of the two tasks, or not in one of the task that is asked for.
    """
    root = _find_folder(folder, (), f"{LAYOUTS}; with boxes: {describe_layouts('train')}", option="folder")
    names = {split: [n for n in names if n != "test" or split == "test"] for split, names in SPLIT_FOLDERS.items()}
    splits = tuple(split for split in names if any((root / name).is_dir() for name in names[split]))
    of_boxes = has_boxes(root)
    train = next((root / name for name in names["train"] if (root / name).is_dir()), root)
    of_classes = has_class_folders(train, ignore=_NOT_CLASSES if of_boxes else ())
    if of_boxes and (not of_classes or boxes):
        splits, layout = recognise_set(root)
        content = _FolderContent(boxes=True, splits=splits, layout=layout, both=of_classes)
    else:
        content = _FolderContent(boxes=False, splits=splits, layout="class folders", both=of_boxes)
    if not of_boxes and not of_classes:
        raise NoSuchSplit(
            f"{root} has neither class folders nor boxes. It contains: {list_some(root)}. For classes: one folder per "
            f"class, with or without train/ and val/ above them. With boxes: {describe_layouts('train')}."
            f"{explain_content(root)}"
        )
    if boxes is not None and content.boxes != boxes:
        missing = "boxes" if boxes else "class folders"
        raise ConfigError(
            f"{root} has no {missing}: it was recognized as {content.layout}. Omit "
            f"{given('task', 'boxes' if boxes else 'classes')}."
        )
    return content


def check_source(source: str, *, detector: bool) -> None:
    """Raise ConfigError where nothing is at what `--data` names; nothing is listed or read.

    For a command that is about to start processes, each of which would find out for itself.
    """
    if "://" in source:
        check_allowed(source)
        return
    if source in _GENERATED or _names_own(source):
        return
    built_in, layouts = (BUILT_IN_BOXES, describe_layouts("val")) if detector else (BUILT_IN, LAYOUTS)
    if source in built_in:
        _find_fetched(source)
    else:
        _find_folder(source, built_in, layouts)


def _names_own(source: str) -> bool:
    """Whether the data is code of a user. A folder of that name comes first."""
    return source in plugin_names(DATA_SOURCES) or (is_own(source) and not Path(source).exists())


def _open_own(source: str, split: str, boxes: bool, val_share: float, whole: bool, hold_out: bool, exif: bool) -> Any:
    """A split of a user's data set, by what plugs in to adapt them."""
    adapt = needed_plugin("vernier.own_data", "data.source", source)
    return adapt(source, split, boxes=boxes, val_share=val_share, whole=whole, hold_out=hold_out, exif=exif)


def _check_split(source: str, split: str) -> None:
    if split not in SPLIT_FOLDERS:
        raise ConfigError(f"There is no split {split!r}. {did_you_mean(split, SPLIT_FOLDERS)}")
    if split == "test" and source in _GENERATED:
        raise NoSuchSplit(f"The built-in set {source} has no test split. Use train or val.")


def _find_fetched(name: str, inside: str = "") -> Path:
    """The folder of a set that `vernier data get` fetched; `inside` is a folder that it has once it is unpacked."""
    root = data_home() / name
    if not (root / inside).is_dir():
        raise ConfigError(
            f"The data set {name!r} is not in {data_home()}. Download it ({command('data get', name)}, which "
            f"needs a network connection), or give the folder of its files: {use('data.source', slot='PATH')}."
        )
    _refuse_unfinished(root)
    return root


def _refuse_unfinished(folder: Path) -> None:
    """Raise ConfigError if the folder is marked."""
    if is_unfinished(folder):
        by = (folder / MARK).read_text(encoding="utf-8", errors="replace").strip() or "vernier data"
        raise ConfigError(
            f"{folder} is incomplete: `{by}` did not finish, or is still running. "
            "Run that command again, or remove the folder."
        )


def _find_folder(source: str, built_in: Sequence[str], layouts: str, option: str = "data.source") -> Path:
    """Returns the folder given as `option`. Raises ConfigError if there is none or if it is unfinished."""
    if not source:
        raise ConfigError(
            f"This recipe has no data of its own. Give the folder of the images: {use(option, slot='PATH')}."
        )
    root = Path(source).expanduser()
    if not root.exists():
        raise ConfigError(f"The data path {source} does not exist. {_advice(source, built_in)}".rstrip())
    if not root.is_dir():
        raise ConfigError(f"{given(option, source)} is a file; a folder is needed: {layouts}.")
    _refuse_unfinished(root)
    return root


def _advice(source: str, built_in: Sequence[str]) -> str:
    """What to do about a folder that does not exist."""
    if source.lower().replace("-", "").replace("_", "") in _IMAGENET_NAMES:
        return (
            "ImageNet must be prepared once from its archives: vernier data prepare imagenet ILSVRC2012_img_train.tar "
            f"ILSVRC2012_img_val.tar ILSVRC2012_devkit_t12.tar.gz {source}"
        )
    return did_you_mean(source, built_in) if os.sep not in source else ""


def _open_address(source: str, split: str, cache_gb: float | None) -> Source:
    """A split in the shards at an address, by what plugs in to read them."""
    shards: Source = needed_plugin("vernier.shard_stores", "data.source", source)(source, split, cache_gb)
    return shards


def _open_generated_boxes(name: str, split: str) -> BoxSource:
    if name == "shapes":
        spec = shapes.ShapesSpec(kind="detect", train=SHAPES_TRAIN, val=SHAPES_VAL)
        return open_folder(shapes.make_cached_shapes(spec), split, VAL_SHARE)
    return SyntheticBoxSource(split, static=name == "static")


def _open_held_out(source: str, split: str, val_share: float) -> Source:
    """A part of the class folders below train/, or of a folder without splits."""
    root = _find_folder(source, BUILT_IN, LAYOUTS)
    folder = next((root / name for name in SPLIT_FOLDERS["train"] if (root / name).is_dir()), root)
    if not has_class_folders(folder):
        raise ConfigError(
            f"data.hold_out takes the validation images from one folder per class, and {folder} has none. Give the set "
            "a validation split, or leave data.hold_out out."
        )
    return split_by_name(folder, split, val_share, has_splits=folder != root)


def _open_class_folder(root: Path, split: str, val_share: float, whole: bool) -> Source:
    """A split of the classification set in a folder, by the layout that is recognised."""
    # Formats with files of their own come first: any folder may have folders with images, too.
    if (root / f"{split}.raw").is_file():
        return RawSource(root / f"{split}.raw")
    if (shards := open_shards(root, split)) is not None:
        return shards
    if (plugged := open_plugged(root, split, boxes=False)) is not None:
        return plugged
    if any(root.glob("*-images-idx3-ubyte*")):
        return open_fashion_mnist(root, split)
    if (root / "cifar-10-batches-bin").is_dir() or any(root.glob("*_batch*.bin")):
        return open_cifar10(root, split)
    for name in SPLIT_FOLDERS[split]:
        if (root / name).is_dir() and (has_class_folders(root / name) or not has_boxes(root)):
            labelled = (root / name / TINY_IMAGENET_LABELS).is_file()
            source = open_annotated_val(root, root / name) if labelled else FolderSource(root / name)
            if split == "val" and name == "test":
                source.note_test_as_validation(root)
            return source
    is_detection = has_boxes(root)
    folders = [root / name for names in SPLIT_FOLDERS.values() for name in names if (root / name).is_dir()]
    has_splits = bool(folders)
    if not has_splits and has_class_folders(root, ignore=("images", "JPEGImages", "data") if is_detection else ()):
        if split == "test" and not whole:
            raise NoSuchSplit(f"{root} is not divided into splits: it has no test split. Use train or val.")
        return split_by_name(root, None if whole else split, val_share)
    if has_splits and (not is_detection or any(map(has_class_folders, folders))):
        raise NoSuchSplit(f"{root} has no {split} split. It contains: {list_some(root)}.")
    if is_detection:
        raise ConfigError(
            f"{root} is a detection set (images with boxes); a classifier needs one class per image: {LAYOUTS}."
        )
    raise NoSuchSplit(
        f"{root} has no {split}/ folder, and no other layout was recognised. It contains: {list_some(root)}. "
        f"Known layouts: {LAYOUTS}.{explain_content(root)}"
    )
