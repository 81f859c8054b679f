"""Tar shards with WebDataset naming (`000001.jpg` + `000001.cls` or `.json`), read by index.

Owns the manifest of a split and the source that reads its shards; the table of each shard is up to `shard_index`.
Shards are written by `data.preparing.shards` and fetched from elsewhere by `remote`.
"""

import bisect
import hashlib
import itertools
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from vernier.data.decoding.decode import Croppable, SegmentedJpeg
from vernier.data.sources.base import EncodedSource, Indices, OpenFiles, read_lines
from vernier.errors import ConfigError, RunFailed
from vernier.frozen import frozen

from .shard_index import VERSION, load_table, read_name, read_segments
from .tables import Columns

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


class ShardFiles(Protocol):
    """Gives access to shards and their tables, wherever they are."""

    def read(self, shard: str, /, start: int, length: int) -> bytes: ...

    def table(self, shard: str) -> Columns: ...


class LocalShards(OpenFiles):
    """Shards in a folder."""

    def table(self, shard: str) -> Columns:
        return load_table(self.root / shard)


class ShardSource(EncodedSource):
    """The samples of a list of shards, in order. Memory grows with the shards, not with the samples."""

    def __init__(self, files: ShardFiles, shards: Sequence[Shard], classes: tuple[str, ...], where: str) -> None:
        self.classes, self.shards, self._files, self._where = classes, tuple(shards), files, where
        self._starts = [0, *itertools.accumulate(s.samples for s in shards)]
        self._tables: dict[int, Columns] = {}
        self.labels = _ShardLabels(self)

    def __len__(self) -> int:
        return self._starts[-1]

    @property
    def starts(self) -> Indices:
        """The first sample of each shard, and the number of samples last."""
        return np.asarray(self._starts, dtype=np.int64)

    def _locate(self, index: int) -> tuple[Shard, Columns, int]:
        """A sample's shard, the shard's table, and the sample's row in it."""
        number = bisect.bisect_right(self._starts, index) - 1
        return self.shards[number], self.table(number), index - self._starts[number]

    def table(self, number: int) -> Columns:
        """The table of a shard. Raises RunFailed if it does not fit the shard."""
        table = self._tables.get(number)
        if table is None:
            shard = self.shards[number]
            table = self._tables[number] = self._files.table(shard.name)
            if len(table["offset"]) != shard.samples:
                raise RunFailed(
                    f"{self._where}: the table of {shard.name} has {len(table['offset'])} samples, "
                    f"{shard.samples} were expected. Prepare the shards again."
                )
        return table

    def read(self, index: int) -> bytes:
        shard, table, row = self._locate(index)
        return self._files.read(shard.name, int(table["offset"][row]), int(table["size"][row]))

    def lazy_image(self, index: int) -> Croppable:
        shard, table, row = self._locate(index)
        if (segments := read_segments(table, row)) is None:
            return super().lazy_image(index)
        offset = int(table["offset"][row])
        return SegmentedJpeg(lambda a, b: self._files.read(shard.name, offset + a, b - a), segments)

    def describe(self, index: int) -> str:
        shard, table, row = self._locate(index)
        return f"{self._where}/{shard.name}:{read_name(table, row)}"

    def fingerprint(self) -> str:
        listing = "\n".join(f"{s.name} {s.samples} {s.bytes} {s.sha256}" for s in self.shards)
        return self._fingerprint(listing.encode())

    def verify_shard(self, number: int) -> str:
        """What is wrong with a shard's bytes; empty if its hash agrees or if it has none."""
        shard = self.shards[number]
        if not shard.sha256:
            return ""
        total = hashlib.sha256()
        for start in range(0, shard.bytes, _HASHED_PIECE):
            total.update(self._files.read(shard.name, start, min(_HASHED_PIECE, shard.bytes - start)))
        return "" if total.hexdigest() == shard.sha256 else "content does not match its hash"


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
        tree = json.loads(text)
        if tree["format"] != FORMAT or tree["version"] > VERSION:
            raise ConfigError(
                f"{where} is {tree['format']} version {tree['version']}; this Vernier reads {FORMAT} {VERSION}."
            )
        shards = [Shard(**{k: entry[k] for k in ("name", "samples", "bytes", "sha256")}) for entry in tree["shards"]]
        if any("/" in s.name or s.name in ("", ".", "..") for s in shards):
            raise ConfigError(f"{where} names a shard outside its folder.")
        return tuple(tree["classes"]), shards
    except ConfigError:
        raise
    except (ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"{where} is not a list of shards: {error!r}.") from None


def open_shards(root: Path, split: str) -> ShardSource | None:
    """The shards of a split in a folder, made by Vernier or of other origin; None if there are none."""
    manifest = root / manifest_name(split)
    if manifest.is_file():
        classes, shards = read_manifest(manifest.read_text(encoding="utf-8"), str(manifest))
        for shard in shards:
            _check_size(root / shard.name, shard.bytes)
        return ShardSource(LocalShards(root), shards, classes, str(root))
    folder, names = _find_foreign(root, split)
    return _open_foreign(root, folder, names) if names else None


def _check_size(path: Path, size: int) -> None:
    actual = path.stat().st_size if path.is_file() else None
    if actual != size:
        state = "is missing" if actual is None else f"has {actual:,} bytes"
        raise ConfigError(f"The shard {path} {state}; its manifest says {size:,} bytes. Copy it again.")


def _find_foreign(root: Path, split: str) -> tuple[Path, list[str]]:
    """The folder and the names of shards of other origin."""
    for folder, pattern in ((root / split, "*.tar"), (root, f"*{split}*.tar")):
        if paths := sorted(folder.glob(pattern)):
            return folder, [p.name for p in paths]
    return root, []


def _open_foreign(root: Path, folder: Path, names: list[str]) -> ShardSource:
    files = LocalShards(folder)
    shards = [
        Shard(name=name, samples=len(files.table(name)["offset"]), bytes=(folder / name).stat().st_size)
        for name in names
    ]
    # Both splits together say how many classes there are: a small one may lack the last.
    count = 1 + max(_largest_label(*_find_foreign(root, split)) for split in ("train", "val"))
    if count == 0:
        raise ConfigError(f"{folder}: no images with a .cls or .json beside them in {', '.join(names[:3])}.")
    return ShardSource(files, shards, _read_foreign_classes(folder, count), str(folder))


def _largest_label(folder: Path, names: list[str]) -> int:
    labels = (load_table(folder / name)["label"] for name in names)
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
