"""Divides the training images into parts: a fraction for validation, or one of k folds.

Each part has every class in proportion. Which image is in which part follows from the names of images, or of their
groups, and from nothing else: it is the same for every seed, machine and number of processes. It plugs in as
`vernier.folds`.
"""

import hashlib
import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from vernier.config import Data
from vernier.data.sources.base import BoxSource, Indices, Source, count_validation
from vernier.errors import ConfigError
from vernier.references import given


def _of_inner(name: str) -> Any:
    return lambda self, index: getattr(self._inner, name)(self._numbers[index])


class _Part(Source):
    """Some of the samples of another source."""

    image, lazy_image, describe, name = map(_of_inner, ("image", "lazy_image", "describe", "name"))

    def __init__(self, inner: Source, numbers: Indices) -> None:
        self._inner, self._numbers = inner, numbers.tolist()
        self.classes, self.channels, self.notes = inner.classes, inner.channels, inner.notes
        self.labels = inner.all_labels()[numbers]
        if isinstance(inner, BoxSource):
            self.category_ids = inner.category_ids

    def fingerprint(self) -> str:
        return self._fingerprint(self._inner.fingerprint().encode(), repr(self._numbers).encode())


class _BoxPart(_Part, BoxSource):
    boxes, image_id, size = map(_of_inner, ("boxes", "image_id", "size"))


def divide(source: Source, data: Data, split: str) -> Source:
    """The images of `train` or `val`, out of all of `source`. Raises ConfigError."""
    which, folds, share = _fold(data)
    groups = _groups(source, data.group_by)
    kinds = source.all_labels()  # all -1 with boxes: one kind
    if data.group_by:
        of_kind = [len({groups[i] for i in np.flatnonzero(kinds == kind)}) for kind in np.unique(kinds)]
        # A percentage takes one of fewer folds where a class has fewer groups: each has to be in both parts.
        in_val = _fold_of_groups(kinds, groups, max(2, min(folds, *of_kind)) if share else folds) == which
    else:
        in_val = _chosen(kinds, groups, which, folds, share)
    for kind in np.unique(kinds).tolist():
        if len(set(in_val[kinds == kind].tolist())) < 2:
            name = source.classes[kind] if kind >= 0 else "the set"
            held = sorted({groups[i] for i in np.flatnonzero(kinds == kind)})
            raise ConfigError(
                f"{given('data.split', data.split)}: {name} has {len(held)} "
                f"{'groups' if data.group_by else 'images'} ({', '.join(held[:3])}), too few to have some in each part."
            )
    numbers = np.flatnonzero(in_val if split == "val" else ~in_val)
    if isinstance(source, BoxSource):
        used = numbers if split == "val" else numbers[[len(source.boxes(i).classes) > 0 for i in numbers.tolist()]]
        part: Source = _BoxPart(source, used)
    else:
        part = _Part(source, numbers)
    part.held_out = split == "val"
    by = f", {len(set(groups)):,} groups by {data.group_by} kept whole" if data.group_by else ""
    part.notes += (f"{int(in_val.sum()):,} of {len(source):,} images are for validation ({data.split}{by})",)
    return part


def _fold(data: Data) -> tuple[int, int, float | None]:
    """Which fold is for validation, of how many; for a percentage also that fraction, of which there are so many."""
    if fold := re.fullmatch(r"(\d+)/(\d+)", data.split):
        which, count = map(int, fold.groups())
        if 1 <= which <= count and 2 <= count <= 1000:
            return which - 1, count, None
    percent = re.fullmatch(r"(\d+(?:\.\d+)?)%", data.split or f"{100 * data.val_share:g}%")
    if percent and 0 < (share := float(percent[1]) / 100) < 1:
        return 0, max(2, round(1 / share)), share
    raise ConfigError(
        f"{given('data.split', data.split)} is neither a percentage, such as 15%, nor a fold, such as 2/5, the second "
        "of five."
    )


def _groups(source: Source, by: str) -> list[str]:
    """The group of each image: its folder, its value in a column of the table, or without groups its own name."""
    names, columns = [source.name(i) for i in range(len(source))], getattr(source, "columns", None)
    if not by:
        return names
    if by == "folder":
        folders = [str(Path(source.describe(i)).parent) for i in range(len(source))]
        top = os.path.commonpath(folders)
        return [os.path.relpath(folder, top) for folder in folders]
    known = sorted(next(iter(columns.values()))) if columns else []
    if by.lower() not in known:
        where = f"The table has {', '.join(known)}" if known else "These images have no table with columns"
        raise ConfigError(f"{given('data.group_by', by)} is not `folder`, and no column. {where}.")
    assert columns is not None
    if empty := [name for name in names if not columns[name][by.lower()]]:
        raise ConfigError(f"{given('data.group_by', by)}: the column is empty for {empty[0]}.")
    return [columns[name][by.lower()] for name in names]


def _by_hash(names: Iterable[str]) -> list[bytes]:
    return [hashlib.sha256(os.fsencode(name)).digest() for name in names]


def _chosen(kinds: Indices, names: list[str], which: int, folds: int, share: float | None) -> npt.NDArray[np.bool_]:
    """Whether an image is for validation: class by class in the order of the hashes of the names."""
    hashes = _by_hash(names)
    order = np.array(sorted(range(len(names)), key=lambda i: (kinds[i], hashes[i])))
    rank, sizes = np.arange(len(order)), np.unique(kinds, return_counts=True)[1]
    if share is None:
        chosen = rank % folds == which  # on from class to class, so that folds have equal sizes
    else:
        sizes_in_val = [count_validation(size, share) for size in sizes.tolist()]
        chosen = rank - np.repeat(np.cumsum(sizes) - sizes, sizes) < np.repeat(sizes_in_val, sizes)
    out = np.empty(len(order), np.bool_)
    out[order] = chosen
    return out


def _fold_of_groups(kinds: Indices, groups: list[str], folds: int) -> Indices:
    """The fold of each image: groups one by one, large ones first, each to where its classes are rarest so far."""
    _, of_class = np.unique(kinds, return_inverse=True)
    names, of_group = np.unique(groups, return_inverse=True)
    counts = np.zeros((len(names), of_class.max() + 1))
    np.add.at(counts, (of_group, of_class), 1)
    fractions = counts / counts.sum(axis=0)
    had, fold_of, hashes = np.zeros((folds, fractions.shape[1])), np.zeros(len(names), np.int64), _by_hash(names)
    for group in sorted(range(len(names)), key=lambda g: (-counts[g].sum(), hashes[g])):
        # Of folds with as much of these classes the one that is emptier as a whole.
        fold = (had @ fractions[group] + 1e-6 * had.sum(axis=1)).argmin()
        fold_of[group], had[fold] = fold, had[fold] + fractions[group]
    return fold_of[of_group]
