"""Tar shards with WebDataset naming (`000001.jpg` + `000001.cls` or `.json`), read by index.

Owns the manifest of a split and the source that reads its shards; the table of each shard is up to `shard_index`.
Shards are written by `compat.preparing.packing`; those at an address are read by what plugs in as
`vernier.shard_stores`, a function of (address, split, cache size in GB) that gives a `ShardSource`.
"""

import bisect
import hashlib
import itertools
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from vernier.data.decoding.decode import BadImage, Croppable, SegmentedJpeg, read_orientation, upright
from vernier.data.sources.base import EncodedSource, Files, Indices, Names, OpenFiles, Stored
from vernier.data.sources.folder import visible_paths
from vernier.data.sources.values import LARGEST_ID, UNREADABLE, check_class_names, parse_json, read_lines, read_text
from vernier.errors import ConfigError, RunFailed
from vernier.frozen import frozen
from vernier.records.codec import decode
from vernier.store.durable import sha256_of_file
from vernier.wording import plural

from .shard_index import VERSION, load_foreign_table, load_table, read_segments, scan_tar
from .tables import Columns, table_path

FORMAT = "vernier-shards"
_HASHED_PIECE = 1 << 22


@frozen
class Shard:
    """One tar file of a split."""

    name: str
    samples: int
    bytes: int
    sha256: str = ""
    """Empty for shards of other origin."""
    table_sha256: str = ""
    """The hash of its table, which has the labels; empty for shards of other origin and of versions before 0.3."""
    restart_indexed: int = 0
    """JPEGs that were rewritten with restart markers."""
    keeps_exif: bool = False
    """Photographs that EXIF turns were not rewritten, which loses it; versions before 0.4 did."""


class _ShardFiles(Protocol):
    """Gives access to shards and their tables, wherever they are."""

    def read(self, shard: str, /, start: int, length: int) -> bytes: ...

    def table(self, shard: str) -> Columns: ...

    def table_problem(self, shard: Shard) -> str: ...


class _LocalShards(OpenFiles):
    """Shards in a folder."""

    def table(self, shard: str) -> Columns:
        return load_table(self.root / shard)

    def table_problem(self, shard: Shard) -> str:
        """Describe damaged positions or labels in a shard's table; empty if there are none.

        Without a hash the table is compared with the tar, which has every label too.
        """
        path = self.root / shard.name
        if shard.table_sha256:
            same = table_path(path).is_file() and sha256_of_file(table_path(path)) == shard.table_sha256
            return "" if same else "the content of its table, which has the labels, does not match its hash"
        try:
            scanned, table = scan_tar(path), self.table(shard.name)
        except ConfigError as error:
            return str(error)
        same = all(np.array_equal(scanned[key], table[key]) for key in ("offset", "size", "label"))
        return "" if same else "its table has other labels or positions than the tar"


class _ForeignShards(_LocalShards):
    """Shards of other origin in a folder."""

    def table(self, shard: str) -> Columns:
        return load_foreign_table(self.root / shard)


class ShardSource(EncodedSource):
    """The samples of a list of shards, in order. Memory grows with the shards, not with the samples."""

    def __init__(self, files: _ShardFiles, shards: Sequence[Shard], classes: tuple[str, ...], where: str) -> None:
        self.classes, self.shards, self._files, self._where = classes, tuple(shards), files, where
        self._starts = [0, *itertools.accumulate(s.samples for s in shards)]
        self._tables: dict[int, Columns] = {}
        self.labels = _ShardLabels(self)
        if rewritten := sum(s.restart_indexed for s in shards if not s.keeps_exif):
            self.notes = (
                f"{where}: a version before 0.4 stored {plural(rewritten, 'JPEG')} without EXIF data, so photographs "
                "that it turns are not upright. If there are such, prepare the shards again",
            )

    def __len__(self) -> int:
        return self._starts[-1]

    @property
    def starts(self) -> Indices:
        """The first sample of each shard, and the number of samples last."""
        return np.asarray(self._starts, dtype=np.int64)

    def _locate(self, index: int) -> tuple[Shard, Columns, int]:
        """A sample's shard, the shard's table, and the sample's row in it."""
        # An empty shard begins where the next one does: `right` skips it.
        number = bisect.bisect_right(self._starts, index) - 1
        return self.shards[number], self.table(number), index - self._starts[number]

    def table(self, number: int) -> Columns:
        """The table of a shard. Raises RunFailed if it does not fit the shard."""
        table = self._tables.get(number)
        if table is None:
            shard = self.shards[number]
            table = self._files.table(shard.name)
            if len(table["offset"]) != shard.samples:
                raise RunFailed(
                    f"{self._where}: the table of {shard.name} has {len(table['offset'])} samples, "
                    f"{shard.samples} were expected. Prepare the shards again."
                )
            self._check_labels(shard, table)
            self._tables[number] = table
        return table

    def _check_labels(self, shard: Shard, table: Columns) -> None:
        """Raises RunFailed for labels without a class: the shard's hash does not cover its table."""
        labels = table["label"]
        if len(labels) and not 0 <= labels.min() <= labels.max() < len(self.classes):
            raise RunFailed(
                f"{self._where}: the labels of {shard.name} go from {labels.min()} to {labels.max()}, but there are "
                f"{len(self.classes):,} classes, counted from 0. The table beside it is damaged: prepare the shards "
                "again."
            )

    def _find_image(self, index: int) -> tuple[Shard, Columns, int, int, int]:
        """A sample's shard, table, row, position and size. Raises BadImage where they are not in the shard."""
        shard, table, row = self._locate(index)
        offset, size = int(table["offset"][row]), int(table["size"][row])
        if not 0 <= offset <= offset + size <= shard.bytes:
            raise BadImage("the table of its shard is damaged: it lies beyond the end of the shard")
        return shard, table, row, offset, size

    def read(self, index: int) -> bytes:
        shard, _, _, offset, size = self._find_image(index)
        return self._files.read(shard.name, offset, size)

    def stored(self, samples: Indices) -> Stored | None:
        if not isinstance(self._files, _LocalShards):
            return None
        located = [self._locate(index) for index in samples.tolist()]
        shards = [(self._files.handle(shard.name), shard.bytes, table) for shard, table, _ in located]
        return shards, [row for _, _, row in located]

    def lazy_image(self, index: int) -> Croppable:
        shard, table, row, offset, size = self._find_image(index)
        if (segments := read_segments(table, row)) is None:
            return super().lazy_image(index)

        def read_range(start: int, stop: int) -> bytes:
            # The positions are the table's: a damaged one must not ask for all memory.
            if not 0 <= start <= stop:
                raise BadImage("the table of its shard is damaged: its positions are not in order")
            return self._files.read(shard.name, offset + start, max(0, min(stop, size) - start))

        image = SegmentedJpeg(read_range, segments)
        return upright(image, read_orientation(image.header)) if self.exif else image

    def describe(self, index: int) -> str:
        shard, table, row = self._locate(index)
        return f"{self._where}/{shard.name}:{_read_name(table, row)}"

    def files(self) -> Files:
        local = isinstance(self._files, _LocalShards)
        return len(self.shards) if local else 0, lambda number: os.path.join(self._where, self.shards[number].name)

    def fingerprint(self) -> str:
        listing = "\n".join(f"{s.name} {s.samples} {s.bytes} {s.sha256}" for s in self.shards)
        return self._fingerprint(listing.encode())

    def verify_shard(self, number: int) -> str:
        """Describe damaged bytes or labels of a shard; empty if there are none."""
        shard = self.shards[number]
        if shard.sha256:
            total = hashlib.sha256()
            # In pieces: a shard can be larger than memory.
            for start in range(0, shard.bytes, _HASHED_PIECE):
                total.update(self._files.read(shard.name, start, min(_HASHED_PIECE, shard.bytes - start)))
            if total.hexdigest() != shard.sha256:
                return "content does not match its hash"
        return self._files.table_problem(shard)

    def describe_coverage(self) -> str:
        """Describe what is not covered by a hash; empty if everything is covered."""
        without = sum(not shard.table_sha256 for shard in self.shards if shard.sha256)
        return (
            f"{self._where}: the labels of {plural(without, 'shard')} are covered by no hash, because an earlier "
            "version prepared them; shards that are prepared again have one"
            if without
            else ""
        )


def _read_name(table: Columns, row: int) -> str:
    """The name that an image had before it was packed, or that it has in the tar."""
    return Names(table["names"], table["name_ends"])[row]


class _ShardLabels:
    """Looks labels up shard by shard."""

    def __init__(self, source: ShardSource) -> None:
        self._source = source

    def __len__(self) -> int:
        return len(self._source)

    def __getitem__(self, samples: Any) -> Any:
        indices = np.atleast_1d(np.asarray(samples, dtype=np.int64))
        starts = self._source.starts
        numbers = np.searchsorted(starts, indices, side="right") - 1
        labels = np.empty(len(indices), dtype=np.int64)
        # Shard by shard, so that each table is looked up once.
        for number in np.unique(numbers):
            chosen = numbers == number
            labels[chosen] = self._source.table(int(number))["label"][indices[chosen] - starts[number]]
        return labels if np.ndim(samples) else labels[0]


# ------------------------------------------------------------------------------------------------------------ opening


def manifest_name(split: str) -> str:
    """The file that lists the shards of a split."""
    return f"{split}.shards.json"


def read_manifest(text: str, where: str) -> tuple[tuple[str, ...], list[Shard]]:
    """Classes and shards of a split."""
    try:
        tree = parse_json(text)
        if tree["format"] != FORMAT or tree["version"] > VERSION:
            raise ConfigError(
                f"{where} is {tree['format']} version {tree['version']}; this Vernier reads {FORMAT} {VERSION}."
            )
        shards = [decode(Shard, {"sha256": entry["sha256"], **entry}) for entry in tree["shards"]]
        # A manifest may be untrusted: it must not make Vernier read files elsewhere.
        if any("/" in s.name or "\0" in s.name or s.name in ("", ".", "..") for s in shards):
            raise ConfigError(f"{where} names a shard outside its folder.")
        if len({s.name for s in shards}) < len(shards):
            raise ValueError("a shard is listed twice")
        for shard in shards:
            f"{shard.name} {shard.sha256}".encode()  # raises ValueError for half a character
        if not all(0 <= number <= LARGEST_ID for s in shards for number in (s.samples, s.bytes)):
            raise ValueError("a shard has an impossible size")
        if not any(s.samples for s in shards):
            raise ValueError("it lists no images")
        return check_class_names(tree["classes"]), shards
    except ConfigError:
        raise
    except UNREADABLE as error:
        raise ConfigError(f"{where} is not a list of shards: {error!r}.") from None


def open_shards(root: Path, split: str) -> ShardSource | None:
    """The shards of a split in a folder, made by Vernier or of other origin; None if there are none."""
    manifest = root / manifest_name(split)
    if manifest.is_file():
        classes, shards = read_manifest(read_text(manifest), str(manifest))
        for shard in shards:
            _check_size(root / shard.name, shard.bytes)
        return ShardSource(_LocalShards(root), shards, classes, str(root))
    folder, names = _find_foreign(root, split)
    return _open_foreign(root, folder, names, split) if names else None


def _check_size(path: Path, size: int) -> None:
    actual = path.stat().st_size if path.is_file() else None
    if actual != size:
        state = "is missing" if actual is None else f"has {actual:,} bytes"
        raise ConfigError(f"The shard {path} {state}; its manifest says {size:,} bytes. Copy it again.")


def _find_foreign(root: Path, split: str) -> tuple[Path, list[str]]:
    """The folder and the names of shards of other origin."""
    for folder, pattern in ((root / split, "*.tar"), (root, f"*{split}*.tar")):
        if paths := sorted(visible_paths(folder, pattern)):
            return folder, [p.name for p in paths]
    return root, []


def _open_foreign(root: Path, folder: Path, names: list[str], split: str) -> ShardSource:
    files = _ForeignShards(folder)
    shards = [
        Shard(name=name, samples=len(files.table(name)["offset"]), bytes=(folder / name).stat().st_size)
        for name in names
    ]
    # The number of classes is that of all splits together: a small one may lack the last.
    count = 1 + max(_largest_label(*_find_foreign(root, other)) for other in {"train", "val", split})
    if count == 0:
        raise ConfigError(f"{folder}: no images with a .cls or .json beside them in {', '.join(names[:3])}.")
    return ShardSource(files, shards, _read_foreign_classes(folder, count), str(folder))


def _largest_label(folder: Path, names: list[str]) -> int:
    labels = (load_foreign_table(folder / name)["label"] for name in names)
    return max((int(column.max()) for column in labels if len(column)), default=-1)


def _read_foreign_classes(folder: Path, count: int) -> tuple[str, ...]:
    """The lines of classes.txt if there is one, otherwise the numbers."""
    for path in (folder / "classes.txt", folder.parent / "classes.txt"):
        if path.is_file():
            names = read_lines(path)
            if len(names) < count:
                raise ConfigError(f"{path} names {len(names)} classes, but the labels go up to {count - 1}.")
            return names
    return tuple(map(str, range(count)))
