"""Images in folders, one folder per class: `train/` and `val/`, or one root that is divided by name.

The list of a large folder is kept in Vernier's cache and taken from there while no directory below has changed.
"""

import hashlib
import json
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from vernier.data.sources.base import EncodedSource, Indices, Names, fingerprint_classes, fingerprint_of
from vernier.data.sources.containers.tables import Columns, read_table, write_table
from vernier.errors import ConfigError
from vernier.folders import data_home

IMAGE_SUFFIXES = frozenset({".jpg", ".jpeg", ".png", ".bmp", ".webp", ".ppm", ".tif", ".tiff"})
CACHED_FROM = 5_000  # files; below, listing is faster than asking whether it has to be
_SETTLED_NS = 2_000_000_000  # a directory that changed this recently may change again without its time stamp showing it


class FolderSource(EncodedSource):
    """The ImageNet layout: one folder per class, in sorted order."""

    labels: Indices

    def __init__(self, root: Path) -> None:
        self.root = root
        listing = _cached_listing(root) or _listed(root)
        self._take(*listing)

    def _take(self, classes: tuple[str, ...], names: Names, labels: Indices) -> None:
        self.classes, self._names, self.labels = classes, names, labels

    def part(self, keep: Indices) -> "FolderSource":
        """The same folder with only some of its samples."""
        out = FolderSource.__new__(FolderSource)
        out.root = self.root
        out._take(self.classes, Names.of([self._names[int(i)] for i in keep]), self.all_labels()[keep])
        return out

    def __len__(self) -> int:
        return len(self._names)

    def name(self, index: int) -> str:
        """The path below the root."""
        return self._names[index]

    def read(self, index: int) -> bytes:
        with open(os.path.join(self.root, self._names[index]), "rb", buffering=0) as f:
            return f.read()

    def describe(self, index: int) -> str:
        return str(self.root / self._names[index])

    def fingerprint(self) -> str:
        return fingerprint_of(self._names.joined, self.all_labels().tobytes(), fingerprint_classes(self.classes))


def has_class_folders(root: Path, apart_from: tuple[str, ...] = ()) -> bool:
    """Whether some folder directly below holds an image."""
    folders = (folder for folder in _class_folders(root) if folder.name not in apart_from)
    return any(next(_images_below(folder), None) is not None for folder in folders)


def divided(root: Path, split: str, val_share: float) -> FolderSource:
    """One root without `train/` and `val/`: of every class a share goes to validation, chosen by a hash of the file's name."""
    whole = FolderSource(root)
    labels = whole.all_labels()
    val: list[int] = []
    for label in range(len(whole.classes)):
        members = np.flatnonzero(labels == label)
        if len(members) < 2:
            raise ConfigError(f"{root}: the class {whole.classes[label]} has one image; two are needed to divide it.")
        drawn = sorted(members.tolist(), key=lambda i: hashlib.sha256(os.fsencode(whole.name(i))).digest())
        val += drawn[: min(len(members) - 1, max(1, round(val_share * len(members))))]
    chosen = np.zeros(len(whole), dtype=np.bool_)
    chosen[val] = True
    return whole.part(np.flatnonzero(chosen if split == "val" else ~chosen))


def _class_folders(root: Path) -> list[Path]:
    return sorted(p for p in root.iterdir() if p.is_dir() and not p.name.startswith("."))


def _listed(root: Path) -> tuple[tuple[str, ...], Names, Indices]:
    """List the folder, check it, and keep the list where that is worth it."""
    folders = _class_folders(root)
    classes = tuple(p.name for p in folders)
    found = [sorted(_images_below(folder)) for folder in folders]
    if not any(found):
        raise ConfigError(
            f"{root} holds no images: expected one folder per class with {', '.join(sorted(IMAGE_SUFFIXES))} files."
        )
    if empty := [c for c, names in zip(classes, found, strict=True) if not names]:
        raise ConfigError(f"{root}: the class folder(s) {', '.join(empty[:5])} hold no images. Remove or fill them.")
    labels = np.repeat(np.arange(len(classes), dtype=np.int64), [len(n) for n in found])
    names = Names.of([f"{c}/{n}" for c, below in zip(classes, found, strict=True) for n in below])
    if len(names) >= CACHED_FROM:
        _keep_listing(root, classes, names, labels)
    return classes, names, labels


def _images_below(folder: Path) -> Iterator[str]:
    """Image files of a class folder, relative to it, following its subfolders. Raises OSError for one that cannot be looked into."""
    for here, _, files in os.walk(folder, onerror=_raised):
        prefix = os.path.relpath(here, folder)
        for name in files:
            if os.path.splitext(name)[1].lower() in IMAGE_SUFFIXES:
                yield name if prefix == "." else f"{prefix}/{name}"


def _raised(error: OSError) -> None:
    raise error


# ------------------------------------------------------------------------------------------------------ the kept list


def _listing_path(root: Path) -> Path:
    return data_home() / "listings" / (hashlib.sha256(os.fsencode(root.resolve())).hexdigest()[:24] + ".table")


def _directory_times(root: Path) -> dict[str, int]:
    """When each directory last gained, lost or renamed an entry."""
    return {os.path.relpath(here, root): Path(here).stat().st_mtime_ns for here, _, _ in os.walk(root)}


def _keep_listing(root: Path, classes: tuple[str, ...], names: Names, labels: Indices) -> None:
    """Best effort: without a writable cache the folder is listed again next time."""
    path = _listing_path(root)
    times = _directory_times(root)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        columns: Columns = {"names": np.frombuffer(names.joined, np.uint8), "ends": names.ends, "labels": labels}
        write_table(path, columns, {"classes": json.dumps(classes), "times": json.dumps(times)})
        if path.stat().st_mtime_ns - max(times.values()) < _SETTLED_NS:
            path.unlink()
    except OSError:
        return


def _cached_listing(root: Path) -> tuple[tuple[str, ...], Names, Indices] | None:
    path = _listing_path(root)
    if not path.is_file():
        return None
    try:
        columns, about = read_table(path)
        times = json.loads(about["times"])
        if {name: (root / name).stat().st_mtime_ns for name in times} != times:
            return None
        names = Names(columns["names"].tobytes(), np.array(columns["ends"]))
        return tuple(json.loads(about["classes"])), names, np.array(columns["labels"])
    except (OSError, ValueError, KeyError):
        return None
