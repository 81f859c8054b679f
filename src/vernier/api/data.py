"""Data sets: what `vernier data` does, and the functions `data_make`, `data_prepare`, ... of Python.

Reading and writing is the business of `vernier.data`; this module opens what was asked for and shows progress.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from vernier.cores import allowed_cores
from vernier.data.unfinished import locked_folder, mark_unfinished
from vernier.errors import ConfigError
from vernier.folders import data_home
from vernier.frozen import frozen
from vernier.records.codec import omitted
from vernier.references import command, given, use
from vernier.requests.data import GetData, InspectData, MakeData, OfSet, PrepareData, VerifyData
from vernier.requests.values import fraction

from .functions import function
from .session import Session

if TYPE_CHECKING:
    from vernier.data.preparing.inspect import SplitFacts
    from vernier.data.preparing.packing import PackedSplit
    from vernier.data.preparing.verify import VerifyResult
    from vernier.data.sources import EncodedSource, Source


@frozen
class Inspection:
    """What is in a data set: facts by split, and the contact sheet that was written."""

    splits: "dict[str, SplitFacts]"
    sheet: str | None = omitted()


def make_set(request: MakeData, _: Session) -> Path:
    """Render a set, or find it in the cache. Returns its folder."""
    from vernier.data import shapes

    spec = shapes.ShapesSpec(
        kind=request.kind, train=request.train, val=request.val, size_px=request.size_px or 0, seed=request.seed
    )
    return shapes.make_shapes(Path(request.out), spec) if request.out else shapes.make_cached_shapes(spec)


def get_set(request: GetData, session: Session) -> Path:
    """Download a set. Returns its folder."""
    from vernier.data.preparing.fetch import get

    folder = Path(request.out) if request.out else data_home() / request.name
    with _locked(folder, f"vernier data get {request.name}", session), session.bytes_bar(request.name) as progress:
        return get(request.name, folder, mirror=request.mirror, progress=progress)


@contextmanager
def _locked(folder: Path, by: str, session: Session) -> Iterator[None]:
    with locked_folder(folder, by) as note:
        if note:
            session.warn(f"note: {note}")
        yield


# ------------------------------------------------------------------------------------------------------------- prepare


def prepare_set(request: PrepareData, session: Session) -> "tuple[PackedSplit, ...] | dict[str, int]":
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
    from vernier.data.preparing.packing import forget_progress
    from vernier.data.preparing.prepare import prepare_split

    if any(path.resolve() == out.resolve() for path in sources):
        raise ConfigError(f"{out} is both SRC and OUT. Choose another folder to write to.")
    splits = _open_encoded(request, sources, session)
    packed = []
    with _locked(out, by, session), mark_unfinished(out, by):
        for split, source in splits.items():
            with session.bar(split) as progress:
                packed.append(
                    prepare_split(
                        source,
                        out,
                        split,
                        layout=request.format,
                        short_side_px=request.short_side_px,
                        shard_mb=request.shard_mb,
                        restarts=request.restarts,
                        workers=request.workers or len(allowed_cores()),
                        files=numbers.get(split),
                        progress=progress,
                    )
                )
        forget_progress(out)
    return tuple(packed)


def _numbers_of_files(request: PrepareData) -> dict[str, int]:
    """The number of TFRecord files per split; empty: by the number of images."""
    from vernier.data.preparing.prepare import plugged_layout

    if request.files is None:
        return dict(plugged_layout("tfrecord").files.get(request.kind, {})) if request.format == "tfrecord" else {}
    if request.format != "tfrecord":
        raise ConfigError(
            f"{given('files', request.files)} is for {use('format', 'tfrecord')}, not "
            f"{given('format', request.format)}."
        )
    return dict(zip(("train", "val"), request.files, strict=True))


def _open_encoded(request: PrepareData, sources: list[Path], session: Session) -> "dict[str, EncodedSource]":
    from vernier.data.preparing import prepare
    from vernier.data.preparing.imagenet import OFFICIAL_COUNTS, open_imagenet

    if request.kind == "imagenet":
        with session.bytes_bar("imagenet") as progress:
            return open_imagenet(sources, request.val_labels, request.expect or OFFICIAL_COUNTS, progress)
    if request.kind == "coco":
        if len(sources) == 1 and sources[0].is_dir():
            return prepare.open_annotated(sources[0])
        raise ConfigError(
            f"{given('format', 'tfrecord')} reads COCO from a folder. Unpack the zips first: "
            f"{command('data prepare', 'coco', 'ZIPS', 'coco')}; then: "
            f"{command('data prepare', 'coco', 'coco', 'OUT', format='tfrecord')}."
        )
    if len(sources) == 1:
        return prepare.open_encoded(request.paths[0], request.format, fraction(request.val_split))
    raise ConfigError(f"{request.kind} takes one SRC, {len(sources)} were given: {', '.join(map(str, sources))}.")


def _unpack_coco(request: PrepareData, sources: list[Path], out: Path, by: str, session: Session) -> dict[str, int]:
    from vernier.data.preparing.prepare import prepare_coco

    if request.format != "folders":
        raise ConfigError(
            f"{given('format', request.format)} cannot hold boxes: COCO's zips are unpacked without conversion. Use "
            f"{use('format', 'folders')}."
        )
    expected = None if request.expect is None else {"train": request.expect[1], "val": request.expect[2]}
    with _locked(out, by, session), mark_unfinished(out, by), session.bytes_bar("coco") as progress:
        return prepare_coco(sources, out, expected, progress)


# -------------------------------------------------------------------------------------------------- verify and inspect


def _open_splits(request: OfSet, session: Session) -> "dict[str, Source]":
    """The splits of a set, with a note for each that is missing."""
    size = request.shard_cache_gb
    if size is not None and "://" not in request.data:
        raise ConfigError(
            f"{given('shard_cache_gb', size)} is for data at an address such as https://..., and {request.data} is not "
            "one."
        )
    from vernier.data.preparing.verify import open_splits
    from vernier.data.sources.containers.tables import watched_scans

    with session.bytes_bar("opening") as progress, watched_scans(progress):
        splits, missing = open_splits(request.data, fraction(request.val_split), shard_cache_gb=size)
    session.warn(*(f"note: {reason}" for reason in missing.values()))
    return splits


def verify_set(request: VerifyData, session: Session) -> "VerifyResult":
    """Check every image of a data set. `sound` of the result is whether nothing is wrong."""
    from vernier.data.preparing.verify import verify

    splits = _open_splits(request, session)
    session.warn(*dict.fromkeys(f"note: {note}" for source in splits.values() for note in source.notes))
    with session.bar("verify") as progress:
        return verify(splits, request.workers or len(allowed_cores()), progress)


def inspect_set(request: InspectData, session: Session) -> Inspection:
    """Describe a data set, and draw a contact sheet of it if that was asked for."""
    from vernier.data.preparing import inspect

    splits = _open_splits(request, session)
    facts = inspect.describe(splits)
    if request.sheet:
        inspect.draw_contact_sheet(next(iter(splits.values())), Path(request.sheet))
    return Inspection(splits=facts, sheet=request.sheet)


data_make = function(MakeData, make_set, "data_make")
data_prepare = function(PrepareData, prepare_set, "data_prepare")
data_verify = function(VerifyData, verify_set, "data_verify")
data_inspect = function(InspectData, inspect_set, "data_inspect")
data_get = function(GetData, get_set, "data_get")
