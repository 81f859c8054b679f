"""Data sets: what `vernier data` does, and the functions `data_make`, `data_prepare`, ... of Python.

Reading and writing is the business of `vernier.data`; this module opens what was asked for and shows progress.
"""

from pathlib import Path
from typing import TYPE_CHECKING

from vernier.api.functions import function
from vernier.api.session import Session
from vernier.cores import allowed_cores
from vernier.errors import ConfigError
from vernier.folders import data_home
from vernier.frozen import frozen
from vernier.quantities import fraction
from vernier.records.codec import omitted
from vernier.references import given

from .requests import GetData, InspectData, MakeData, OfSet, PrepareData, VerifyData

if TYPE_CHECKING:
    from vernier.data.sources import Source

    from .inspect import SplitFacts
    from .packing import PackedSplit
    from .verify import VerifyResult


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
    from .fetch import get

    folder = Path(request.out) if request.out else data_home() / request.name
    with session.bytes_bar(request.name) as progress:
        return get(request.name, folder, mirror=request.mirror, progress=progress)


def prepare_set(request: PrepareData, session: Session) -> "tuple[PackedSplit, ...] | dict[str, int]":
    """Write a data set in another form. Returns what was written by split; of COCO's zips, the numbers of images."""
    from .prepare import write_set

    return write_set(request, session)


# -------------------------------------------------------------------------------------------------- verify and inspect


def _open_splits(request: OfSet, session: Session) -> "dict[str, Source]":
    """The splits of a set, with a note for each that is missing."""
    size = request.shard_cache_gb
    if size is not None and "://" not in request.data:
        raise ConfigError(
            f"{given('shard_cache_gb', size)} is for data at an address such as https://..., and {request.data} is not "
            "one."
        )
    from vernier.data.sources.containers.tables import watched_scans

    from .verify import open_splits

    with session.bytes_bar("opening") as progress, watched_scans(progress):
        splits, missing = open_splits(request.data, fraction(request.val_split), shard_cache_gb=size)
    session.warn(*(f"note: {reason}" for reason in missing.values()))
    return splits


def verify_set(request: VerifyData, session: Session) -> "VerifyResult":
    """Check every image of a data set. `sound` of the result is whether nothing is wrong."""
    from .verify import verify

    splits = _open_splits(request, session)
    session.warn(*dict.fromkeys(f"note: {note}" for source in splits.values() for note in source.notes))
    with session.bar("verify") as progress:
        return verify(splits, request.workers or len(allowed_cores()), progress)


def inspect_set(request: InspectData, session: Session) -> Inspection:
    """Describe a data set, and draw a contact sheet of it if that was asked for."""
    from . import inspect

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
