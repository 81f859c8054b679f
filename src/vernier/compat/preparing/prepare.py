"""Writes a data set in the form it is trained from: `vernier data prepare`.

Folders and COCO's archives are written here, other formats by `shards` and `raw`; ImageNet's archives are read by
`imagenet`.
"""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from vernier.api.session import Session
from vernier.cores import allowed_cores
from vernier.data.sources import FolderSource, open_split
from vernier.data.sources.base import VAL_SHARE, DataLayout, EncodedSource
from vernier.data.sources.boxes.annotated import AnnotatedSource
from vernier.data.sources.boxes.layouts import open_folder
from vernier.data.unfinished import locked_folder
from vernier.errors import ConfigError, NoSuchSplit, RunFailed
from vernier.plugins import load_plugin
from vernier.quantities import fraction
from vernier.references import command, given, use

from .fetch import unpack
from .imagenet import OFFICIAL_COUNTS, check_count, open_imagenet
from .packing import PackedSplit, Progress, forget_progress, pack_raw, pack_shards, read_encoded
from .requests import PrepareData
from .unfinished import mark_unfinished

COCO_IMAGES = {"train": 118_287, "val": 5_000}


@contextmanager
def _writing(folder: Path, by: str, session: Session) -> Iterator[None]:
    """The folder is locked, and marked as unfinished until all of it is written."""
    with locked_folder(folder, by) as note, mark_unfinished(folder, by):
        if note:
            session.warn(f"note: {note}")
        yield


def write_set(request: PrepareData, session: Session) -> tuple[PackedSplit, ...] | dict[str, int]:
    """Write a data set in another form. Returns what was written by split; of COCO's zips, the numbers of images."""
    if len(request.paths) < 2:
        raise ConfigError(
            f"Give what to read and where to write: {command('data prepare', request.kind, 'SRC', 'OUT')}."
        )
    *sources, out = map(Path, request.paths)
    if request.kind in ("imagenet", "coco") and (missing := [str(path) for path in sources if not path.exists()]):
        raise ConfigError(f"{', '.join(missing)} does not exist.")
    by = f"vernier data prepare {request.kind}"
    if request.kind == "coco" and request.format != "tfrecord":
        return _unpack_coco(request, sources, out, by, session)
    numbers = _numbers_of_files(request)
    # Files of the source would be overwritten while they are read.
    if any(path.resolve() == out.resolve() for path in sources):
        raise ConfigError(f"{out} is both SRC and OUT. Choose another folder to write to.")
    splits = _open_sources(request, sources, session)
    packed = []
    with _writing(out, by, session):
        for split, source in splits.items():
            with session.bar(split) as progress:
                packed.append(_prepare_split(source, out, split, request, numbers.get(split), progress))
    # Only now: without its notes, a set that is marked as unfinished could not be completed.
    forget_progress(out)
    return tuple(packed)


def _numbers_of_files(request: PrepareData) -> dict[str, int]:
    """The number of TFRecord files per split; empty: by the number of images."""
    if request.files is None:
        return dict(_plugged_layout("tfrecord").files.get(request.kind, {})) if request.format == "tfrecord" else {}
    if request.format != "tfrecord":
        raise ConfigError(
            f"{given('files', request.files)} is for {use('format', 'tfrecord')}, not "
            f"{given('format', request.format)}."
        )
    return dict(zip(("train", "val"), request.files, strict=True))


def _open_sources(request: PrepareData, sources: list[Path], session: Session) -> dict[str, EncodedSource]:
    if request.kind == "imagenet":
        with session.bytes_bar("imagenet") as progress:
            # The official counts by default, because a truncated tar opens without an error.
            return open_imagenet(sources, request.val_labels, request.expect or OFFICIAL_COUNTS, progress)
    if request.kind == "coco":
        if len(sources) == 1 and sources[0].is_dir():
            return _open_annotated(sources[0])
        raise ConfigError(
            f"{given('format', 'tfrecord')} reads COCO from a folder. Unpack the zips first: "
            f"{command('data prepare', 'coco', 'ZIPS', 'coco')}; then: "
            f"{command('data prepare', 'coco', 'coco', 'OUT', format='tfrecord')}."
        )
    if len(sources) == 1:
        return _open_encoded(request.paths[0], request.format, fraction(request.val_split))
    raise ConfigError(f"{request.kind} takes one SRC, {len(sources)} were given: {', '.join(map(str, sources))}.")


def _prepare_split(
    source: EncodedSource, out: Path, split: str, request: PrepareData, files: int | None, progress: Progress | None
) -> PackedSplit:
    """Write one split as folders, shards, a raw file or TFRecord files; `files`: how many of the latter."""
    common: dict[str, Any] = {"workers": request.workers or len(allowed_cores()), "progress": progress}
    match request.format:
        case "tfrecord":
            packed: PackedSplit = _plugged_layout("tfrecord").write(source, out, split, files=files, **common)
            return packed
        case "shards":
            size = request.shard_mb << 20
            return pack_shards(source, out, split, shard_bytes=size, restarts=request.restarts, **common)
        case "raw":
            return pack_raw(source, out, split, short_side_px=request.short_side_px, **common)
    return _write_folders(source, out / split, split, progress)


def _plugged_layout(name: str) -> DataLayout:
    """A layout that plugs in. Raises ConfigError if no package offers it."""
    layout: DataLayout = load_plugin("vernier.data_layouts", "format", name, "shards")
    return layout


def _open_encoded(path: str, layout: str, val_share: float) -> dict[str, EncodedSource]:
    """The splits of a set that keeps encoded images, to be written in another layout. Raises ConfigError."""
    splits = {"train": open_split(path, "train", val_share=val_share)}
    # A set may have training images alone.
    with suppress(NoSuchSplit):
        splits["val"] = open_split(path, "val", val_share=val_share)
    if layout == "folders" and isinstance(splits["train"], FolderSource):
        raise ConfigError(
            f"{path} has one folder of images per class already. Use {use('format', 'shards')} or "
            f"{use('format', 'raw')}."
        )
    # Sources of decoded pixels, such as CIFAR, have no files that could be written.
    encoded = {split: source for split, source in splits.items() if isinstance(source, EncodedSource)}
    if len(encoded) < len(splits):
        raise ConfigError(f"{path} holds decoded images already; there is nothing to prepare.")
    return encoded


def _open_annotated(path: Path) -> dict[str, EncodedSource]:
    """The splits of a folder with boxes, to be written as TFRecord files. Raises ConfigError."""
    splits: dict[str, EncodedSource] = {}
    for split in ("train", "val"):
        with suppress(NoSuchSplit):
            source = open_folder(path, split, VAL_SHARE)
            assert isinstance(source, EncodedSource)
            splits[split] = source
    if not splits:
        raise ConfigError(f"{path} has no images with boxes. Give a folder that `vernier data prepare coco` wrote.")
    return splits


def _write_folders(source: EncodedSource, out: Path, split: str, progress: Progress | None) -> PackedSplit:
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
        # By size: a killed run leaves a short file, and reading millions of whole ones takes hours.
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
    # Two files of a class in different folders may share their name.
    if len(set(targets)) < len(targets):
        twice = next(path for path, count in Counter(targets).items() if count > 1)
        raise ConfigError(f"More than one image would be written as {twice}. Use {use('format', 'shards')}.")
    return targets


def _unpack_coco(request: PrepareData, sources: list[Path], out: Path, by: str, session: Session) -> dict[str, int]:
    """Unpack COCO's zips side by side and check that every annotated image is there. Returns the images per split."""
    if request.format != "folders":
        raise ConfigError(
            f"{given('format', request.format)} cannot hold boxes: COCO's zips are unpacked without conversion. Use "
            f"{use('format', 'folders')}."
        )
    expected = COCO_IMAGES if request.expect is None else dict(zip(("train", "val"), request.expect[1:], strict=True))
    counts = {}
    with _writing(out, by, session), session.bytes_bar("coco") as progress:
        for archive in sources:
            unpack(archive, out, progress)
        if not (out / "annotations").is_dir():
            raise RunFailed(
                f"There is no annotations/ in {out}: give annotations_trainval2017.zip too, beside the zips of images."
            )
        for split, images in expected.items():
            source = open_folder(out, split, VAL_SHARE)
            assert isinstance(source, AnnotatedSource)
            missing = [source.describe(i) for i in range(len(source)) if not Path(source.describe(i)).is_file()]
            if missing:
                raise RunFailed(
                    f"{out}: {len(missing):,} annotated images of {split} are missing, the first is {missing[0]}."
                )
            # The official count includes images without boxes, which training leaves out.
            counts[split] = len(source) + (source.without_boxes if split == "train" else 0)
            check_count(out, f"{split} images", counts[split], images)
    return counts
