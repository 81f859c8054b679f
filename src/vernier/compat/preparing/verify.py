"""Checks a data set: `vernier data verify`. Whether every image can be read, and whether the splits fit together."""

import hashlib
import itertools
from collections.abc import Iterator
from dataclasses import field
from pathlib import Path

import numpy as np

from vernier.data.decoding.decode import BadImage, decode_strictly, read_orientation, read_size
from vernier.data.sources import BUILT_IN, EncodedSource, ShardSource, Source, open_boxes, open_split
from vernier.data.sources.base import BoxSource
from vernier.data.sources.boxes.layouts import has_boxes
from vernier.data.sources.containers.raw import RawSource
from vernier.data.sources.folder import has_class_folders
from vernier.errors import ConfigError, NoSuchSplit
from vernier.frozen import frozen

from .packing import Progress
from .threads import map_in_order


def open_splits(
    path: str, val_share: float, *, shard_cache_gb: float | None = None
) -> tuple[dict[str, Source], dict[str, str]]:
    """The splits of a set, with whole-image labels or with boxes, and the reason for train or val that is missing.

    A test split that is used for validation is only there as such. `shard_cache_gb`: largest size of the cache of an
    address, where not the default. Raises ConfigError for a damaged split, or where there is none.
    """
    splits: dict[str, Source] = {}
    missing: dict[str, str] = {}
    for split in ("train", "val", "test"):
        try:
            splits[split] = _open_either(path, split, val_share, shard_cache_gb)
        # Only a split that is not there; a damaged one ends the command with its reason.
        except NoSuchSplit as error:
            missing[split] = str(error)
    if not splits:
        raise ConfigError(missing["train"])
    # Found twice, every image of it would be reported as a duplicate.
    if "test" in splits and "val" in splits and splits["test"].describe(0) == splits["val"].describe(0):
        del splits["test"]
    missing.pop("test", None)
    return splits, missing


def _open_either(path: str, split: str, val_share: float, shard_cache_gb: float | None) -> Source:
    """With boxes where there are any, also when the images lie in class folders; a built-in name is never a folder."""
    if path not in BUILT_IN:
        try:
            return open_boxes(path, split, val_share=val_share)
        except ConfigError:
            root = Path(path).expanduser()
            if has_boxes(root) and not ((root / split).is_dir() and has_class_folders(root / split)):
                raise  # its annotations are damaged: the message says how
    return open_split(path, split, val_share=val_share, shard_cache_gb=shard_cache_gb)


@frozen
class VerifyResult:
    """The defects of a set. `vernier data verify --json` prints it."""

    images: dict[str, int]
    bad: tuple[str, ...]
    duplicates: tuple[str, ...]
    """Images that are in more than one split, to the byte."""
    repeated: dict[str, int]
    """Images that occur more than once in a split."""
    sound: bool
    """Nothing is bad, and no image is in more than one split."""
    turned: dict[str, int] = field(default_factory=dict)
    """Photographs that are turned upright by their EXIF orientation."""
    uncovered: tuple[str, ...] = ()
    """What no hash covers, so that damage to it may not be seen."""


def verify(splits: dict[str, Source], workers: int, progress: Progress | None = None) -> VerifyResult:
    """Decode every image strictly, check the hashes of shards, and look for the same image in several splits."""
    bad, duplicates = _different_classes(splits), []
    repeated, turned = dict.fromkeys(splits, 0), dict.fromkeys(splits, 0)
    first: dict[bytes, tuple[str, int]] = {}
    total, done = sum(len(s) for s in splits.values()), 0
    for split, source in splits.items():
        for index, digest, problem, is_turned in _examine_all(source, workers):
            if index is None:
                bad.append(problem)
                continue
            done += 1
            turned[split] += is_turned
            # Hashes stay in memory, not images: a few hundred bytes for each.
            other, earlier = first.setdefault(digest, (split, index))
            if problem:
                bad.append(f"{source.describe(index)}: {problem}")
            elif other != split:
                duplicates.append(f"{source.describe(index)} = {splits[other].describe(earlier)}")
            else:
                repeated[split] += earlier != index
            if progress:
                progress(done, total)
    uncovered = (s.describe_coverage() for s in splits.values() if isinstance(s, ShardSource | RawSource))
    return VerifyResult(
        images={split: len(source) for split, source in splits.items()},
        bad=tuple(bad),
        duplicates=tuple(duplicates),
        repeated=repeated,
        sound=not bad and not duplicates,
        turned=turned,
        uncovered=tuple(filter(None, uncovered)),
    )


def _examine_all(source: Source, workers: int) -> Iterator[tuple[int | None, bytes, str, bool]]:
    """Every image's index, hash, problem, and whether EXIF turns it; before the images of a damaged shard, without an
    index, its problem."""

    if isinstance(source, RawSource):
        yield from ((None, b"", problem, False) for problem in source.problems())
    ends = source.starts.tolist() if isinstance(source, ShardSource) else [0, len(source)]
    for number, (begin, end) in enumerate(itertools.pairwise(ends)):
        if isinstance(source, ShardSource) and (problem := source.verify_shard(number)):
            yield None, b"", f"{source.shards[number].name}: {problem}", False
        yield from map_in_order(lambda index: (index, *_examine(source, index)), range(begin, end), workers)


def _different_classes(splits: dict[str, Source]) -> list[str]:
    """The problem of training and validation data with different classes, which cannot be used together."""
    classes = [splits[split].classes for split in ("train", "val") if split in splits]
    # The order counts, too: it numbers the classes.
    if len(set(classes)) < 2:
        return []
    not_in_both = sorted(set(classes[0]) ^ set(classes[1]))
    names = ", ".join(not_in_both[:5]) or "none, the order differs"
    return [f"the splits have different classes; not in both: {names}"]


def _examine(source: Source, index: int) -> tuple[bytes, str, bool]:
    """A hash of the image, its problem, and whether EXIF turns it."""
    try:
        if not isinstance(source, EncodedSource):
            return hashlib.sha256(np.ascontiguousarray(source.image(index)).data).digest(), "", False
        encoded = source.read(index)
        # Training tolerates a truncated JPEG, whose lower part is gray; here it is a defect.
        decode_strictly(encoded)
        if isinstance(source, BoxSource):
            source.check_size(index, *read_size(encoded, exif=source.exif))
        return hashlib.sha256(encoded).digest(), "", read_orientation(encoded) != 1
    except (BadImage, OSError) as error:
        return b"", str(error), False
