"""Tar shards with WebDataset naming (`000001.jpg` + `000001.cls` or `.json`), read by index.

Beside each shard stands a table that says where every image is and, for JPEGs with restart markers, where each restart
segment is, so that a crop reads and decodes only what it touches. Shards of other origin get their table on first use.
Writing shards is `data.pack`'s business; fetching remote ones is `data.remote`'s.
"""

import bisect
import hashlib
import itertools
import json
import os
import tarfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from vernier.data.decoding.decode import BadImage, Croppable, SegmentedJpeg, size_of
from vernier.data.decoding.jpeg_slicing import NotSliceable, Segments, find_segments
from vernier.data.sources.base import EncodedSource, Indices, Names, fingerprint_classes, fingerprint_of
from vernier.data.sources.containers.tables import Columns, kept_table, table_path, write_table
from vernier.data.sources.folder import IMAGE_SUFFIXES
from vernier.errors import ConfigError, RunFailed
from vernier.folders import data_home

FORMAT = "vernier-shards"
VERSION = 1


@dataclass(frozen=True, kw_only=True)
class Shard:
    """One tar file of a split."""

    name: str
    samples: int
    bytes: int
    sha256: str = ""
    """Empty for shards of other origin."""


class ShardFiles(Protocol):
    """Where shards and their tables are."""

    def read(self, shard: str, start: int, length: int) -> bytes: ...

    def table(self, shard: str) -> Columns: ...


class LocalShards:
    """Shards in a folder. Reads at a position, so threads share the open files."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._open: dict[str, int] = {}

    def read(self, shard: str, start: int, length: int) -> bytes:
        handle = self._open.get(shard)
        if handle is None:
            handle = self._open.setdefault(shard, os.open(self.root / shard, os.O_RDONLY))
        return os.pread(handle, length, start)

    def table(self, shard: str) -> Columns:
        return table_beside(self.root / shard)

    def __del__(self) -> None:
        for handle in self._open.values():
            os.close(handle)


class ShardSource(EncodedSource):
    """The samples of a list of shards, in order. Memory grows with the shards, not with the samples."""

    def __init__(self, files: ShardFiles, shards: Sequence[Shard], classes: tuple[str, ...], where: str) -> None:
        self.classes, self.shards, self._files, self._where = classes, tuple(shards), files, where
        self._starts = [0, *itertools.accumulate(s.samples for s in shards)]
        self._tables: dict[int, Columns] = {}
        self.labels = _ShardLabels(self)

    def __len__(self) -> int:
        return self._starts[-1]

    def place(self, index: int) -> tuple[int, Columns, int]:
        """Which shard, its table, and the row in it."""
        which = bisect.bisect_right(self._starts, index) - 1
        return which, self.table(which), index - self._starts[which]

    def table(self, which: int) -> Columns:
        found = self._tables.get(which)
        if found is None:
            found = self._tables[which] = self._files.table(self.shards[which].name)
            if len(found["offset"]) != self.shards[which].samples:
                raise RunFailed(
                    f"{self._where}: the table of {self.shards[which].name} has {len(found['offset'])} samples, "
                    f"{self.shards[which].samples} were expected. Prepare the shards again."
                )
        return found

    def read(self, index: int) -> bytes:
        which, table, row = self.place(index)
        return self._files.read(self.shards[which].name, int(table["offset"][row]), int(table["size"][row]))

    def lazy_image(self, index: int) -> Croppable:
        which, table, row = self.place(index)
        if not table["scan_at"][row]:
            return super().lazy_image(index)
        member = _Member(self._files, self.shards[which].name, int(table["offset"][row]))
        return SegmentedJpeg(member, _segments(table, row))

    def describe(self, index: int) -> str:
        which, table, row = self.place(index)
        return f"{self._where}/{self.shards[which].name}:{_name(table, row)}"

    def fingerprint(self) -> str:
        listed = "\n".join(f"{s.name} {s.samples} {s.bytes} {s.sha256}" for s in self.shards)
        return fingerprint_of(listed.encode(), fingerprint_classes(self.classes))

    def verify_shard(self, which: int) -> str:
        """What is wrong with a shard's bytes; empty when its hash agrees or none is known."""
        shard = self.shards[which]
        if not shard.sha256:
            return ""
        total = hashlib.sha256()
        for at in range(0, shard.bytes, 1 << 22):
            total.update(self._files.read(shard.name, at, min(1 << 22, shard.bytes - at)))
        return "" if total.hexdigest() == shard.sha256 else "content does not match its hash"


class _Member:
    """One file inside a shard."""

    __slots__ = ("_files", "_offset", "_shard")

    def __init__(self, files: ShardFiles, shard: str, offset: int) -> None:
        self._files, self._shard, self._offset = files, shard, offset

    def read_range(self, start: int, stop: int) -> bytes:
        return self._files.read(self._shard, self._offset + start, stop - start)


class _ShardLabels:
    """Looks labels up shard by shard."""

    def __init__(self, source: ShardSource) -> None:
        self._source = source

    def __len__(self) -> int:
        return len(self._source)

    def __getitem__(self, samples: Any) -> Any:
        wanted = np.atleast_1d(np.asarray(samples, dtype=np.int64))
        which = np.searchsorted(self._source._starts, wanted, side="right") - 1
        out = np.empty(len(wanted), dtype=np.int64)
        for shard in np.unique(which):
            here = which == shard
            out[here] = self._source.table(int(shard))["label"][wanted[here] - self._source._starts[shard]]
        return out if np.ndim(samples) else out[0]


# -------------------------------------------------------------------------------------------------------- the tables


def _segments(table: Columns, row: int) -> Segments:
    mcu, interval, width = int(table["mcu"][row]), int(table["interval"][row]), int(table["width"][row])
    mcu_width, mcu_height, height = 8 * (mcu >> 4), 8 * (mcu & 15), int(table["height"][row])
    rows, columns = -(-height // mcu_height), -(-width // (mcu_width * interval))
    at, inner = int(table["rows_at"][row]), int(table["within_at"][row])
    return Segments(
        width=width, height=height, mcu_width=mcu_width, mcu_height=mcu_height, interval=interval,
        frame_at=int(table["frame_at"][row]), scan_at=int(table["scan_at"][row]), row_starts=table["row_starts"][at : at + rows],
        within=table["within"][inner : inner + rows * (columns + 1)].reshape(rows, columns + 1),
    )  # fmt: skip


def _name(table: Columns, row: int) -> str:
    return Names(table["names"], table["name_ends"])[row]


class TableWriter:
    """Collects the rows of a shard's table."""

    def __init__(self) -> None:
        self._rows: list[tuple[int, ...]] = []
        self._names: list[str] = []
        self._row_starts: list[Any] = [np.zeros(0, np.uint32)]
        self._within: list[Any] = [np.zeros(0, np.uint16)]
        self._rows_at = self._within_at = 0

    def add(self, name: str, label: int, offset: int, encoded: bytes) -> None:
        self._names.append(name)
        try:
            found = find_segments(encoded)
        except NotSliceable:
            try:
                width, height = size_of(encoded)
            except BadImage:
                width = height = 0
            self._rows.append((offset, len(encoded), label, width, height, 0, 0, 0, 0, 0, 0))
            return
        mcu = (found.mcu_width // 8) << 4 | found.mcu_height // 8
        self._rows.append(
            (offset, len(encoded), label, found.width, found.height, found.scan_at, found.frame_at, mcu, found.interval,
             self._rows_at, self._within_at)
        )  # fmt: skip
        self._row_starts.append(found.row_starts)
        self._within.append(found.within.ravel())
        self._rows_at += len(found.row_starts)
        self._within_at += found.within.size

    def columns(self) -> Columns:
        names = Names.of(self._names)
        kinds = {
            "offset": "u8", "size": "u8", "label": "i4", "width": "u4", "height": "u4", "scan_at": "u2", "frame_at": "u2",
            "mcu": "u1", "interval": "u2", "rows_at": "u8", "within_at": "u8",
        }  # fmt: skip
        values = np.array(self._rows, dtype=np.int64).reshape(-1, len(kinds))
        return {
            **{key: values[:, i].astype(kind) for i, (key, kind) in enumerate(kinds.items())},
            "names": np.frombuffer(names.joined, np.uint8), "name_ends": names.ends,
            "row_starts": np.concatenate(self._row_starts), "within": np.concatenate(self._within),
        }  # fmt: skip


def table_beside(shard: Path) -> Columns:
    """The table of a shard: beside it, in the cache, or made now from the tar itself."""
    return kept_table(shard, data_home() / "tables", _stamp(shard), lambda: (scan_tar(shard), {}))[0]


def write_table_beside(shard: Path, columns: Columns) -> None:
    write_table(table_path(shard), columns, _stamp(shard))


def _stamp(shard: Path) -> dict[str, str]:
    return {"version": str(VERSION), "bytes": str(shard.stat().st_size)}


def scan_tar(path: Path) -> Columns:
    """The table of any WebDataset shard: members with one key are one sample."""
    writer = TableWriter()
    try:
        with tarfile.open(path) as tar:
            files = (m for m in tar if m.isfile())
            for key, members in itertools.groupby(files, key=lambda m: _key(m.name)):
                _add_sample(writer, tar, path, key, list(members))
    except tarfile.TarError as error:
        raise ConfigError(f"{path} is not a readable tar file: {error}.") from None
    return writer.columns()


def _key(name: str) -> str:
    folder, _, base = name.rpartition("/")
    return f"{folder}/{base.split('.')[0]}"


def _add_sample(
    writer: TableWriter, tar: tarfile.TarFile, path: Path, key: str, members: list[tarfile.TarInfo]
) -> None:
    label: int | None = None
    image: tarfile.TarInfo | None = None
    for member in members:
        suffix = os.path.splitext(member.name)[1].lower()
        if suffix in IMAGE_SUFFIXES:
            image = member
        elif suffix in (".cls", ".json"):
            content = tar.extractfile(member)
            assert content is not None
            label = _label(content.read(1 << 20), suffix, f"{path}:{member.name}")
    if image is None:
        return
    if label is None:
        raise ConfigError(f"{path}: the sample {key.lstrip('/')} has no .cls or .json with a label beside its image.")
    content = tar.extractfile(image)
    assert content is not None
    writer.add(image.name, label, image.offset_data, content.read())


def _label(content: bytes, suffix: str, where: str) -> int:
    try:
        if suffix == ".cls":
            return int(content)
        found = json.loads(content)
        return int(found if isinstance(found, int) else next(found[k] for k in ("label", "cls", "class") if k in found))
    except (ValueError, TypeError, StopIteration):
        raise ConfigError(f"{where} holds no class number: a .cls is a whole number, a .json has 'label'.") from None


# ------------------------------------------------------------------------------------------------------------ opening


def manifest_name(split: str) -> str:
    return f"{split}.shards.json"


def read_manifest(text: str, where: str) -> tuple[tuple[str, ...], list[Shard]]:
    """Classes and shards of a split."""
    try:
        tree = json.loads(text)
        if tree["format"] != FORMAT or tree["version"] > VERSION:
            raise ConfigError(
                f"{where} is {tree['format']} version {tree['version']}; this Vernier reads {FORMAT} {VERSION}."
            )
        shards = [Shard(**{k: entry[k] for k in ("name", "samples", "bytes", "sha256")}) for entry in tree["shards"]]
        if any("/" in s.name or s.name in ("", ".", "..") for s in shards):
            raise ConfigError(f"{where} names a shard outside its folder.")
        return tuple(tree["classes"]), shards
    except (ValueError, KeyError, TypeError) as error:
        if isinstance(error, ConfigError):
            raise
        raise ConfigError(f"{where} is not a list of shards: {error!r}.") from None


def open_shards(root: Path, split: str) -> ShardSource | None:
    """The shards of a split in a folder, ours or of other origin; None when there are none."""
    manifest = root / manifest_name(split)
    if manifest.is_file():
        classes, shards = read_manifest(manifest.read_text(encoding="utf-8"), str(manifest))
        for shard in shards:
            _check_size(root / shard.name, shard.bytes)
        return ShardSource(LocalShards(root), shards, classes, str(root))
    folder, names = _foreign_names(root, split)
    return _open_foreign(root, folder, names) if names else None


def _foreign_names(root: Path, split: str) -> tuple[Path, list[str]]:
    for folder, pattern in ((root / split, "*.tar"), (root, f"*{split}*.tar")):
        if found := sorted(folder.glob(pattern)):
            return folder, [p.name for p in found]
    return root, []


def _check_size(path: Path, size: int) -> None:
    there = path.stat().st_size if path.is_file() else None
    if there != size:
        state = "is missing" if there is None else f"has {there:,} bytes"
        raise ConfigError(f"The shard {path} {state}; its list says {size:,} bytes. Copy it again.")


def _open_foreign(root: Path, folder: Path, names: list[str]) -> ShardSource:
    files = LocalShards(folder)
    sizes = {name: len(files.table(name)["offset"]) for name in names}
    shards = [Shard(name=name, samples=count, bytes=(folder / name).stat().st_size) for name, count in sizes.items()]
    # Both splits together say how many classes there are: a small one may lack the last.
    count = 1 + max(_largest_label(*_foreign_names(root, split)) for split in ("train", "val"))
    if count == 0:
        raise ConfigError(f"{folder}: no images with a .cls or .json beside them in {', '.join(names[:3])}.")
    return ShardSource(files, shards, _foreign_classes(folder, count), str(folder))


def _largest_label(folder: Path, names: list[str]) -> int:
    labels = (table_beside(folder / name)["label"] for name in names)
    return max((int(column.max()) for column in labels if len(column)), default=-1)


def _foreign_classes(folder: Path, count: int) -> tuple[str, ...]:
    """The lines of classes.txt where there is one, else the numbers."""
    for path in (folder / "classes.txt", folder.parent / "classes.txt"):
        if path.is_file():
            names = tuple(line.strip() for line in path.read_text(encoding="utf-8").splitlines() if line.strip())
            if len(names) < count:
                raise ConfigError(f"{path} names {len(names)} classes, but the labels go up to {count - 1}.")
            return names
    return tuple(str(i) for i in range(count))


def shard_starts(source: ShardSource) -> Indices:
    """The first sample of each shard, and the number of samples last."""
    return np.asarray(source._starts, dtype=np.int64)
