"""Writes a split as tar shards: `vernier data prepare ... --format shards`. `sources.containers.shards` reads them.

The list of shards is written last; an interrupted run resumes after its last whole shard.
"""

import io
import itertools
import json
import os
import tarfile
from dataclasses import replace
from pathlib import Path

from vernier.data.decoding.jpeg_slicing import SOI, NotSliceable
from vernier.data.decoding.restarts import TARGET_INTERVAL, RestartWriter, add_restart_markers, find_writer
from vernier.data.sources.base import EncodedSource
from vernier.data.sources.containers.shard_index import UNNAMED, VERSION, TableBuilder, store_table
from vernier.data.sources.containers.shards import FORMAT, Shard, manifest_name
from vernier.data.sources.containers.tables import table_path
from vernier.errors import ConfigError
from vernier.frozen import frozen
from vernier.records.codec import encode
from vernier.references import plain
from vernier.store.durable import DamagedFile, read_record, sha256_of_file, write_atomically

from .packing import (
    Origin,
    PackedSplit,
    Progress,
    make_room,
    map_in_order,
    pack_order,
    read_encoded,
)


@frozen
class ShardEntry(Shard):
    """One whole shard, as the list of shards names it."""

    source_bytes: int
    restart_indexed: int


@frozen
class _Manifest:
    """The list of shards."""

    format: str = FORMAT
    version: int = VERSION
    classes: tuple[str, ...]
    samples: int
    restart_indexed: int
    shards: tuple[ShardEntry, ...]


@frozen
class _Note:
    """The shards that are whole, kept in a hidden file until every split is written."""

    made_of: Origin
    entries: tuple[ShardEntry, ...]


def _finished_shards(out: Path, split: str, origin: Origin) -> tuple[ShardEntry, ...]:
    """The shards that an earlier run has written and that are still there. Raises ConfigError if it had other
    settings."""
    try:
        note = read_record(_Note, _note_path(out, split))
    except (FileNotFoundError, DamagedFile):
        return ()
    if note.made_of != origin:
        make_room(out, manifest_name(split))
        raise ConfigError(
            f"{out} holds the first shards of an interrupted run with another source or other settings. "
            "Remove it or choose another folder."
        )
    return tuple(itertools.takewhile(lambda entry: _is_whole(out / entry.name, entry), note.entries))


def _note_path(out: Path, split: str) -> Path:
    return out / f".{split}.shards.progress"


def _is_whole(path: Path, entry: ShardEntry) -> bool:
    return path.is_file() and path.stat().st_size == entry.bytes and table_path(path).is_file()


class _ShardWriter:
    """Writes the shards of a split one after the other, after those that are there."""

    def __init__(self, out: Path, split: str, shard_bytes: int, origin: Origin) -> None:
        self._out, self._split, self._limit = out, split, shard_bytes
        self._note = _Note(made_of=origin, entries=_finished_shards(out, split, origin))
        if not self.entries:
            make_room(out, manifest_name(split))
        self._begin()

    @property
    def entries(self) -> tuple[ShardEntry, ...]:
        return self._note.entries

    @property
    def samples(self) -> int:
        """Samples in whole shards."""
        return sum(entry.samples for entry in self.entries)

    @property
    def restart_indexed(self) -> int:
        return sum(entry.restart_indexed for entry in self.entries)

    def _begin(self) -> None:
        self._name = f"{self._split}-{len(self.entries):06d}.tar"
        self._temporary = self._out / f".{self._name}.writing"
        self._tar = tarfile.open(self._temporary, "w", format=tarfile.USTAR_FORMAT)  # noqa: SIM115 (closed in _end)
        self._table, self._count = TableBuilder(), self.samples
        self._samples = self._source_bytes = self._restart_indexed = 0

    def add(self, name: str, label: int, original: bytes, rewritten: bytes | None) -> None:
        encoded = original if rewritten is None else rewritten
        if self._samples and self._tar.offset + len(encoded) > self._limit:
            self._end()
            self._begin()
        stem = f"{self._count:06d}"
        suffix = "jpg" if encoded[:2] == SOI else os.path.splitext(name)[1].lstrip(".").lower() or UNNAMED
        offset = self._add_member(f"{stem}.{suffix}", encoded)
        self._add_member(f"{stem}.cls", str(label).encode())
        self._table.add(name, label, offset, encoded)
        self._samples += 1
        self._count += 1
        self._source_bytes += len(original)
        self._restart_indexed += rewritten is not None

    def _add_member(self, name: str, content: bytes) -> int:
        info = tarfile.TarInfo(name)
        info.size, info.mode = len(content), 0o644
        offset: int = self._tar.offset + tarfile.BLOCKSIZE
        self._tar.addfile(info, io.BytesIO(content))
        return offset

    def _end(self) -> None:
        self._tar.close()
        path = self._out / self._name
        digest = sha256_of_file(self._temporary)
        self._temporary.replace(path)
        store_table(path, self._table.columns())
        entry = ShardEntry(
            name=self._name,
            samples=self._samples,
            bytes=path.stat().st_size,
            sha256=digest,
            table_sha256=sha256_of_file(table_path(path)),
            source_bytes=self._source_bytes,
            restart_indexed=self._restart_indexed,
        )
        self._note = replace(self._note, entries=(*self.entries, entry))
        write_atomically(_note_path(self._out, self._split), json.dumps(encode(self._note)))

    def finish(self, classes: tuple[str, ...]) -> None:
        if self._samples:
            self._end()
        else:  # an earlier run had written all
            self._tar.close()
            self._temporary.unlink()
        manifest = _Manifest(
            classes=classes, samples=self.samples, restart_indexed=self.restart_indexed, shards=self.entries
        )
        write_atomically(self._out / manifest_name(self._split), json.dumps(encode(manifest), indent=1) + "\n")


def pack_shards(
    source: EncodedSource,
    out: Path,
    split: str,
    *,
    shard_bytes: int,
    restarts: bool,
    workers: int,
    progress: Progress | None = None,
) -> PackedSplit:
    """Write a split as shards; with `restarts`, baseline JPEGs are rewritten without loss so that crops can be cut out.
    If no plug-in can do that here, they are stored unchanged, and a note gives the reason.

    Resumes after the whole shards of an interrupted run, until `packing.forget_progress`.
    """
    markers, notes = _find_markers() if restarts else (None, ())
    interval = TARGET_INTERVAL if markers else 0
    origin: Origin = {"source": source.fingerprint(), "shard_bytes": shard_bytes, "interval": interval}
    writer = _ShardWriter(out, split, shard_bytes, origin)
    order, earlier = pack_order(source, split), writer.samples

    def rewrite(index: int) -> tuple[int, bytes, bytes | None]:
        encoded = read_encoded(source, index)
        try:
            return index, encoded, None if markers is None else add_restart_markers(encoded, markers)[0]
        except NotSliceable:
            return index, encoded, None

    images = map_in_order(rewrite, order[earlier:], workers)
    for done, (index, original, rewritten) in enumerate(images, start=earlier + 1):
        writer.add(source.name(index), int(source.labels[index]), original, rewritten)
        if progress:
            progress(done, len(order))
    writer.finish(source.classes)
    return PackedSplit(
        split=split,
        samples=writer.samples,
        bytes=sum(entry.bytes for entry in writer.entries),
        source_bytes=sum(entry.source_bytes for entry in writer.entries),
        shards=len(writer.entries),
        restart_indexed=writer.restart_indexed,
        kept_as_they_are=writer.samples - writer.restart_indexed,
        continued_after=earlier,
        notes=notes,
    )


def _find_markers() -> tuple[RestartWriter | None, tuple[str, ...]]:
    """What writes restart markers, or a note why nothing can."""
    try:
        return find_writer(), ()
    except ConfigError as error:
        return None, (f"without restart markers, so that crops are decoded from the top: {plain(str(error))}",)
