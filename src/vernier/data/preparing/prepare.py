"""Writes a data set in the form it is trained from: `vernier data prepare`.

Folders and COCO's archives are written here, other formats by `shards` and `raw`; ImageNet's archives are read by
`imagenet`.
"""

import contextlib
from collections import Counter
from pathlib import Path
from typing import Literal

from vernier.data.sources import FolderSource, open_split
from vernier.data.sources.base import VAL_SHARE, EncodedSource
from vernier.data.sources.boxes.annotated import AnnotatedSource
from vernier.data.sources.boxes.layouts import open_folder
from vernier.data.sources.plugged import DataLayout
from vernier.errors import ConfigError, NoSuchSplit, RunFailed
from vernier.plugins import load_plugin
from vernier.references import use

from .fetch import Progress as BytesProgress
from .fetch import unpack
from .imagenet import check_count
from .packing import PackedSplit, Progress, read_encoded
from .raw import pack_raw
from .shards import pack_shards

Layout = Literal["folders", "shards", "raw", "tfrecord"]
COCO_IMAGES = {"train": 118_287, "val": 5_000}


def prepare_split(
    source: EncodedSource,
    out: Path,
    split: str,
    *,
    layout: Layout,
    short_side_px: int,
    shard_mb: int,
    restarts: bool,
    workers: int,
    files: int | None = None,
    progress: Progress | None = None,
) -> PackedSplit:
    """Write one split as folders, shards, a raw file or TFRecord files; `files`: how many of the latter."""
    if layout == "tfrecord":
        packed: PackedSplit = plugged_layout(layout).write(
            source, out, split, files=files, workers=workers, progress=progress
        )
        return packed
    if layout == "shards":
        return pack_shards(
            source, out, split, shard_bytes=shard_mb << 20, restarts=restarts, workers=workers, progress=progress
        )
    if layout == "raw":
        return pack_raw(source, out, split, short_side_px=short_side_px, workers=workers, progress=progress)
    return write_folders(source, out / split, split, progress)


def plugged_layout(name: str) -> DataLayout:
    """A layout that plugs in. Raises ConfigError if no package offers it."""
    layout: DataLayout = load_plugin("vernier.data_layouts", "format", name, "shards")
    return layout


def open_encoded(path: str, layout: Layout, val_share: float) -> dict[str, EncodedSource]:
    """The splits of a set that keeps encoded images, to be written in another layout. Raises ConfigError."""
    splits = {"train": open_split(path, "train", val_share=val_share)}
    with contextlib.suppress(NoSuchSplit):
        splits["val"] = open_split(path, "val", val_share=val_share)
    if layout == "folders" and isinstance(splits["train"], FolderSource):
        raise ConfigError(
            f"{path} has one folder of images per class already. Use {use('format', 'shards')} or "
            f"{use('format', 'raw')}."
        )
    encoded = {split: source for split, source in splits.items() if isinstance(source, EncodedSource)}
    if len(encoded) < len(splits):
        raise ConfigError(f"{path} holds decoded images already; there is nothing to prepare.")
    return encoded


def open_annotated(path: Path) -> dict[str, EncodedSource]:
    """The splits of a folder with boxes, to be written as TFRecord files. Raises ConfigError."""
    splits: dict[str, EncodedSource] = {}
    for split in ("train", "val"):
        with contextlib.suppress(NoSuchSplit):
            source = open_folder(path, split, VAL_SHARE)
            assert isinstance(source, EncodedSource)
            splits[split] = source
    if not splits:
        raise ConfigError(f"{path} has no images with boxes. Give a folder that `vernier data prepare coco` wrote.")
    return splits


def write_folders(source: EncodedSource, out: Path, split: str, progress: Progress | None) -> PackedSplit:
    """Write one folder per class. A file that is there with its full size is left alone, so an interrupted run resumes.

    Raises ConfigError before anything is written when a class has no image, a name cannot be a file's, or two images
    of a class have the same.
    """
    targets, written_bytes = _target_paths(source, out), 0
    for name in source.classes:
        if "/" in name or name in (".", ".."):
            raise ConfigError(f"The class {name!r} cannot be the name of a folder. Use {use('format', 'shards')}.")
        (out / name).mkdir(parents=True, exist_ok=True)
    for index, target in enumerate(targets):
        encoded = read_encoded(source, index)
        if not target.is_file() or target.stat().st_size != len(encoded):
            target.write_bytes(encoded)
        written_bytes += len(encoded)
        if progress:
            progress(index + 1, len(targets))
    return PackedSplit(split=split, samples=len(targets), bytes=written_bytes)


def _target_paths(source: EncodedSource, out: Path) -> list[Path]:
    labels, targets = source.all_labels().tolist(), []
    if empty := [source.classes[i] for i in sorted(set(range(len(source.classes))) - set(labels))]:
        raise ConfigError(
            f"{out.name} has no image of {', '.join(empty[:5])}: a folder needs one. Use {use('format', 'shards')}."
        )
    for index in range(len(source)):
        name = source.name(index).rpartition("/")[2]
        if name.strip(".") == "":
            raise ConfigError(f"{source.describe(index)}: {name!r} cannot be the name of a file.")
        targets.append(out / source.classes[labels[index]] / (name if "." in name else f"{name}.jpg"))
    if len(set(targets)) < len(targets):
        twice = next(path for path, count in Counter(targets).items() if count > 1)
        raise ConfigError(f"More than one image would be written as {twice}. Use {use('format', 'shards')}.")
    return targets


def prepare_coco(
    archives: list[Path], out: Path, expected: dict[str, int] | None = None, progress: BytesProgress | None = None
) -> dict[str, int]:
    """Unpack COCO's zips side by side and check that every annotated image is there. Returns the images per split."""
    for archive in archives:
        unpack(archive, out, progress)
    if not (out / "annotations").is_dir():
        raise RunFailed(
            f"There is no annotations/ in {out}: give annotations_trainval2017.zip too, beside the zips of images."
        )
    counts = {}
    for split, expected_images in (COCO_IMAGES if expected is None else expected).items():
        source = open_folder(out, split, VAL_SHARE)
        assert isinstance(source, AnnotatedSource)
        missing = [source.describe(i) for i in range(len(source)) if not Path(source.describe(i)).is_file()]
        if missing:
            raise RunFailed(
                f"{out}: {len(missing):,} annotated images of {split} are missing, the first is {missing[0]}."
            )
        counts[split] = len(source) + (source.without_boxes if split == "train" else 0)
        check_count(out, f"{split} images", counts[split], expected_images)
    return counts
