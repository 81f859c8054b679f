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

from vernier.data.trusted import is_trusted
from vernier.errors import ConfigError
from vernier.frozen import frozen
from vernier.wording import plural

from .base import EncodedSource, Files, Indices, NamedSource, Names, Stored, choose_validation
from .containers.tables import Columns, cached_table_path, read_table, write_table
from .values import UNREADABLE, read_lines

IMAGE_SUFFIXES = frozenset(
    {".jpg", ".jpeg", ".png", ".bmp", ".webp", ".ppm", ".pgm", ".tif", ".tiff", ".gif", ".avif", ".jp2", ".j2k"}
)
TINY_IMAGENET_LABELS = "val_annotations.txt"
_TABLES = (".csv", ".tsv", ".jsonl", ".parquet")
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
        # Unbuffered, since the whole file is read at once; no Path, which costs more than the call.
        with open(os.path.join(self.root, self._names[index]), "rb", buffering=0) as f:
            return f.read()

    def stored(self, samples: Indices) -> Stored:
        return [self.describe(index) for index in samples.tolist()]

    def describe(self, index: int) -> str:
        return os.path.join(self.root, self._names[index])

    def files(self) -> Files:
        return len(self), self.describe


def has_class_folders(root: Path, ignore: tuple[str, ...] = ()) -> bool:
    """Whether a folder directly below has an image; `ignore` are names of folders that are not classes."""
    folders = (folder for folder in _class_folders(root) if folder.name not in ignore)
    # The first image decides: listing all of a large set takes seconds.
    return any(next(_images_below(folder), None) is not None for folder in folders)


def visible_paths(folder: Path, pattern: str = "*") -> Iterator[Path]:
    """What matches the pattern in a folder, without hidden files such as macOS's `._name`."""
    return (path for path in folder.glob(pattern) if not path.name.startswith("."))


def explain_content(root: Path) -> str:
    """What may explain a folder in no layout: tables of labels, masks, a set further down. Empty or begins with a
    space."""
    inside = [path for folder in (root, root / "train") for path in sorted(visible_paths(folder))]
    sentences = []
    if table := next((path for path in inside if path.suffix.lower() in _TABLES), None):
        sentences.append(
            f" {table} is not read: tables of labels are not supported. Make one folder per class, or for boxes files "
            "of COCO, Pascal VOC or YOLO."
        )
    if masks := next((path for path in inside if path.is_dir() and "mask" in path.name.lower()), None):
        sentences.append(f" {masks} looks like masks, which are not read: a detector needs boxes.")
    below = root
    while len(folders := [path for path in visible_paths(below) if path.is_dir()]) == 1:
        below = folders[0]
    if below != root and folders:
        sentences.append(f" Did you mean {below}?")
    return "".join(sentences)


def open_annotated_val(root: Path, folder: Path) -> FolderSource:
    """Tiny-ImageNet's validation images as published: in one folder, their classes in val_annotations.txt."""
    source, table = FolderSource(folder), folder / TINY_IMAGENET_LABELS
    source.classes = tuple(path.name for path in _class_folders(root / "train"))
    numbers = {name: number for number, name in enumerate(source.classes)}
    try:
        class_of = dict(line.split()[:2] for line in read_lines(table))
        labels = [numbers[class_of[source.name(index).rpartition("/")[2]]] for index in range(len(source))]
    except (ValueError, KeyError) as error:
        raise ConfigError(f"{table}: {error} has no class among the folders of {root / 'train'}.") from None
    source.labels, source.notes = np.array(labels, dtype=np.int64), ()
    return source


def split_by_name(root: Path, split: str | None, val_share: float, *, has_splits: bool = False) -> FolderSource:
    """A split of a root without `train/` and `val/`: file names' hashes choose a share of every class for `val`.

    None: all images. `has_splits`: the root is the training split of a set.
    """
    whole = FolderSource(root)
    if split is None:
        whole.note_undivided(root)
        return whole
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
    part.note_held_out(root, split, len(val), len(whole), has_splits=has_splits)
    return part


def _sort_classes(names: Iterable[str]) -> list[str]:
    """Names in the order of their classes: 2 before 10 where all of them are numbers, otherwise as text."""
    names = sorted(names)
    if all(name.isascii() and name.isdecimal() for name in names):
        names.sort(key=int)
    return names


def _class_folders(root: Path) -> list[Path]:
    names = _sort_classes(p.name for p in root.iterdir() if p.is_dir() and not p.name.startswith("."))
    return [root / name for name in names]


@frozen
class _Listing:
    """The content of a folder; `skipped` counts files other than images, by the ending of their names, and folders
    that are links."""

    classes: tuple[str, ...]
    names: Names
    labels: Indices
    skipped: dict[str, int]


def _notes(root: Path, listing: _Listing) -> tuple[str, ...]:
    notes = []
    if len(listing.classes) == 1 and (reason := explain_content(root)):
        notes.append(f"{root} has one class ({listing.classes[0]}).{reason}")
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
            f"{explain_content(root)}"
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
        f"{explain_content(root)}"
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


def _times(folder: str | Path) -> list[int]:
    """The time of the last change, and that of the status, which no copying program can set back."""
    status = Path(folder).stat()
    return [status.st_mtime_ns, status.st_ctime_ns]


def _cache_listing(root: Path, listing: _Listing) -> None:
    """Store the listing if the cache can be written; otherwise the folder is listed again next time."""
    path = cached_table_path("listings", root)
    # A directory's time changes when it gains, loses or renames an entry.
    times = {os.path.relpath(here, root): _times(here) for here, _, _ in os.walk(root)}
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
    if not is_trusted(path):
        return None
    try:
        columns, metadata = read_table(path)
        times = json.loads(metadata["times"])
        if {name: _times(root / name) for name in times} != times:
            return None
        # A version that knew other endings listed other files.
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
