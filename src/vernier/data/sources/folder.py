"""Images in folders, one folder per class: `train/` and `val/`, or one root that is divided by file name.

The listing of a large folder is cached in Vernier's data home and used until a directory below the folder changes.
"""

import copy
import json
import os
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np

from vernier.errors import ConfigError
from vernier.frozen import frozen
from vernier.wording import plural

from .base import EncodedSource, Indices, NamedSource, Names, choose_validation, note_held_out, note_undivided
from .containers.tables import Columns, cached_table_path, read_table, write_table
from .values import UNREADABLE

IMAGE_SUFFIXES = frozenset(
    {".jpg", ".jpeg", ".png", ".bmp", ".webp", ".ppm", ".pgm", ".tif", ".tiff", ".gif", ".avif", ".jp2", ".j2k"}
)
CACHED_FROM = 5_000  # files; listing fewer is faster than checking whether the cached listing is valid
_LINKED = "linked folders"
_SUFFIXES = sorted(IMAGE_SUFFIXES)
_SETTLED_NS = 2_000_000_000  # a directory changed more recently may change again without a new time stamp


class FolderSource(EncodedSource, NamedSource):
    """The ImageNet layout: one folder per class, sorted by name; by number where all names are numbers."""

    def __init__(self, root: Path) -> None:
        self.root = root
        listing = _read_cached_listing(root) or _list_folder(root)
        self.classes, self._names, self.labels = listing.classes, listing.names, listing.labels
        self.notes = _notes(root, listing)

    def select(self, indices: Indices) -> "FolderSource":
        """The same folder with only some of its samples."""
        part = copy.copy(self)
        part._names = Names.of([self._names[int(i)] for i in indices])
        part.labels = self.labels[indices]
        return part

    def name(self, index: int) -> str:
        """The path below the root."""
        return self._names[index]

    def read(self, index: int) -> bytes:
        with open(os.path.join(self.root, self._names[index]), "rb", buffering=0) as f:
            return f.read()

    def describe(self, index: int) -> str:
        return str(self.root / self._names[index])


def has_class_folders(root: Path, ignore: tuple[str, ...] = ()) -> bool:
    """Whether a folder directly below has an image; `ignore` are names of folders that are no classes."""
    folders = (folder for folder in _class_folders(root) if folder.name not in ignore)
    return any(next(_images_below(folder), None) is not None for folder in folders)


def visible_paths(folder: Path, pattern: str = "*") -> Iterator[Path]:
    """What matches the pattern in a folder, without hidden files such as macOS's `._name`."""
    return (path for path in folder.glob(pattern) if not path.name.startswith("."))


def open_undivided(root: Path) -> FolderSource:
    """All images of a root without `train/` and `val/`."""
    source = FolderSource(root)
    source.undivided, source.notes = True, (*source.notes, note_undivided(root, len(source)))
    return source


def split_by_name(root: Path, split: str, val_share: float, *, has_splits: bool = False) -> FolderSource:
    """A split of a root without `train/` and `val/`: file names' hashes choose a share of every class for `val`.

    `has_splits`: the root is the training split of a set.
    """
    whole = FolderSource(root)
    labels = whole.all_labels()
    val: list[int] = []
    for label in range(len(whole.classes)):
        members = np.flatnonzero(labels == label)
        if len(members) < 2:
            raise ConfigError(f"{root}: the class {whole.classes[label]} has one image; two are needed to divide it.")
        val += members[choose_validation([whole.name(i) for i in members.tolist()], val_share)].tolist()
    in_val = np.zeros(len(whole), dtype=np.bool_)
    in_val[val] = True
    part = whole.select(np.flatnonzero(in_val if split == "val" else ~in_val))
    part.held_out = split == "val"
    part.notes = (*whole.notes, note_held_out(root, len(val), len(whole), has_splits=has_splits))
    return part


def sort_classes(names: Iterable[str]) -> list[str]:
    """Names in the order of their classes: 2 before 10 where all of them are numbers, otherwise as text."""
    names = sorted(names)
    if all(name.isascii() and name.isdecimal() for name in names):
        names.sort(key=int)
    return names


def _class_folders(root: Path) -> list[Path]:
    names = sort_classes(p.name for p in root.iterdir() if p.is_dir() and not p.name.startswith("."))
    return [root / name for name in names]


@frozen
class _Listing:
    """What a folder holds; `skipped` counts the files that are no images, by the ending of their names, and folders
    that are links."""

    classes: tuple[str, ...]
    names: Names
    labels: Indices
    skipped: dict[str, int]


def _notes(root: Path, listing: _Listing) -> tuple[str, ...]:
    notes = []
    if list(listing.classes) != sorted(listing.classes):
        shown = ", ".join(listing.classes[:3])
        notes.append(f"{root}: the class folders are numbers and are sorted as numbers ({shown}, ...), not as text")
    skipped = dict(listing.skipped)
    if links := skipped.pop(_LINKED, 0):
        notes.append(
            f"{root}: {plural(links, 'symbolic link')} to folders skipped inside class folders; only a class folder "
            "itself may be one"
        )
    if skipped:
        kinds = ", ".join(f"{count:,} {suffix or 'without an ending'}" for suffix, count in skipped.items())
        notes.append(f"{root}: {plural(sum(skipped.values()), 'file')} skipped, not images by their names: {kinds}")
    return tuple(notes)


def _list_folder(root: Path) -> _Listing:
    """Classes, names and labels of the folder; the listing of a large one is cached."""
    folders = _class_folders(root)
    classes = tuple(p.name for p in folders)
    skipped: Counter[str] = Counter()
    files = [sorted(_images_below(folder, skipped)) for folder in folders]
    if not any(files):
        raise ConfigError(
            f"{root} has no images: expected one folder per class with {', '.join(sorted(IMAGE_SUFFIXES))} files."
        )
    if empty := [c for c, names in zip(classes, files, strict=True) if not names]:
        raise ConfigError(_explain_empty(root, empty))
    listing = _Listing(
        classes=classes,
        names=Names.of([f"{c}/{n}" for c, below in zip(classes, files, strict=True) for n in below]),
        labels=np.repeat(np.arange(len(classes), dtype=np.int64), [len(n) for n in files]),
        skipped={kind: count for kind, count in skipped.most_common() if count},
    )
    if len(listing.names) >= CACHED_FROM:
        _cache_listing(root, listing)
    return listing


def _explain_empty(root: Path, empty: list[str]) -> str:
    """What to do about class folders without images, which may be the annotations of a detection set."""
    content: Counter[str] = Counter()
    for name in empty:
        next(_images_below(root / name, content), None)
    annotations = [suffix for suffix in (".xml", ".txt", ".json", ".csv") if content[suffix]]
    if not annotations:
        return f"{root}: class folders without images: {', '.join(empty[:5])}. Remove or fill them."
    return (
        f"{root}: no images but {' and '.join(annotations)} files in {', '.join(empty[:5])}. If those "
        "are boxes, they are not in a layout that Vernier reads: COCO (annotations/instances_train.json), Pascal VOC "
        "(Annotations/*.xml) or YOLO (labels/*.txt). If not, move them elsewhere: every folder is a class."
    )


def _images_below(folder: Path, skipped: Counter[str] | None = None) -> Iterator[str]:
    """Image files below a class folder, relative to it. Hidden ones, such as macOS's `._name`, and hidden folders are
    left out. `skipped` counts hidden images, links to folders, and other files that are not hidden.

    Raises OSError for a subfolder that cannot be listed.
    """
    skipped = Counter() if skipped is None else skipped
    for here, folders, files in os.walk(folder, onerror=_raise):
        prefix = os.path.relpath(here, folder)
        folders[:] = [name for name in folders if not name.startswith(".")]
        skipped[_LINKED] += sum(Path(here, name).is_symlink() for name in folders)
        for name in files:
            suffix, hidden = os.path.splitext(name)[1].lower(), name.startswith(".")
            if suffix in IMAGE_SUFFIXES and not hidden:
                yield name if prefix == "." else f"{prefix}/{name}"
            elif suffix in IMAGE_SUFFIXES or not hidden:
                skipped[f"{suffix} (hidden)" if hidden else suffix] += 1


def _raise(error: OSError) -> None:
    raise error


# -------------------------------------------------------------------------------------------------- the cached listing


def _directory_times(root: Path) -> dict[str, list[int]]:
    """When each directory last gained, lost or renamed an entry."""
    return {os.path.relpath(here, root): _times(here) for here, _, _ in os.walk(root)}


def _times(folder: str | Path) -> list[int]:
    """The time of the last change, and that of the status, which no copying program can set back."""
    status = Path(folder).stat()
    return [status.st_mtime_ns, status.st_ctime_ns]


def _cache_listing(root: Path, listing: _Listing) -> None:
    """Store the listing if the cache can be written; otherwise the folder is listed again next time."""
    path = cached_table_path("listings", root)
    times = _directory_times(root)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        columns: Columns = {
            "names": np.frombuffer(listing.names.joined, np.uint8),
            "ends": listing.names.ends,
            "labels": listing.labels,
        }
        texts = {"classes": listing.classes, "times": times, "skipped": listing.skipped, "suffixes": _SUFFIXES}
        write_table(path, columns, {key: json.dumps(value) for key, value in texts.items()})
        if path.stat().st_mtime_ns - max(modified for modified, _ in times.values()) < _SETTLED_NS:
            path.unlink()
    except OSError:
        return


def _read_cached_listing(root: Path) -> _Listing | None:
    """The stored listing; None where there is none, a directory has changed, or other files were listed as images."""
    path = cached_table_path("listings", root)
    if not path.is_file():
        return None
    try:
        columns, metadata = read_table(path)
        times = json.loads(metadata["times"])
        if {name: _times(root / name) for name in times} != times:
            return None
        if json.loads(metadata["suffixes"]) != _SUFFIXES:
            return None
        return _Listing(
            classes=tuple(json.loads(metadata["classes"])),
            names=Names(columns["names"].tobytes(), np.array(columns["ends"])),
            labels=np.array(columns["labels"]),
            skipped=dict(json.loads(metadata["skipped"])),
        )
    except (OSError, *UNREADABLE):
        return None
