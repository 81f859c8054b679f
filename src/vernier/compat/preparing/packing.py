"""Writes a split as tar shards or as decoded images in one file: `vernier data prepare --format shards`, `raw`.

Everything is written under a hidden name and renamed when it is whole. Until all splits are written, a hidden note says
what is whole already, so that an interrupted run resumes after it: after its last whole shard, or after a whole raw
file. The list of shards is written last. `sources.containers` reads both.
"""

import hashlib
import io
import itertools
import json
import os
import tarfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import numpy as np

from vernier.data.augment.crop_flip import resize
from vernier.data.decoding.decode import BadImage, Image, read_orientation
from vernier.data.decoding.jpeg_slicing import SOI, NotSliceable
from vernier.data.sources.base import EncodedSource, Names, Source
from vernier.data.sources.containers import raw
from vernier.data.sources.containers.shard_index import UNNAMED, VERSION, TableBuilder, store_table
from vernier.data.sources.containers.shards import FORMAT, Shard, manifest_name
from vernier.data.sources.containers.tables import CONTENT, Columns, hash_content, table_path, write_table
from vernier.errors import ConfigError, RunFailed
from vernier.frozen import frozen
from vernier.randomness import Stream, key, permuted
from vernier.records.codec import encode
from vernier.references import plain
from vernier.store.durable import (
    DamagedFile,
    read_record,
    replaced_atomically,
    sha256_of_file,
    sync_to_disk,
    write_atomically,
)

from .restarts import TARGET_INTERVAL, RestartWriter, add_restart_markers, find_writer
from .threads import map_in_order

Progress = Callable[[int, int], None]
_AnyNote = TypeVar("_AnyNote", bound="_Note")
Origin = dict[str, str | int]
"""The source and the settings that a file was written with."""


@frozen
class PackedSplit:
    """What was written for one split. `vernier data prepare --json` prints it."""

    split: str
    samples: int = 0
    bytes: int = 0
    source_bytes: int = 0
    shards: int = 0
    files: int = 0
    """TFRecord only."""
    converted: int = 0
    """TFRecord only: images that were no RGB JPEG and were encoded again, at quality 100."""
    restart_indexed: int = 0
    kept_as_they_are: int = 0
    continued_after: int = 0
    """Samples that an interrupted run had written."""
    left_out: tuple[str, ...] = ()
    """Unreadable images, with the reason."""
    notes: tuple[str, ...] = ()


def read_encoded(source: EncodedSource, index: int) -> bytes:
    """An encoded image, unchanged. Raises RunFailed with its name where it cannot be read."""
    try:
        return source.read(index)
    except (OSError, BadImage) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise RunFailed(f"Cannot read {source.describe(index)}: {reason}. Repair or remove it.") from None


def pack_order(source: Source, split: str) -> list[int]:
    """Training samples are stored shuffled, so that a shard has all classes; other splits in the order of the
    source."""
    count = len(source)
    if split != "train":
        return list(range(count))
    # Keyed by the number of samples alone: preparing a set again gives the same files, whatever the seed of a run.
    order: list[int] = permuted(key(Stream.PACK, count), np.arange(count), count).tolist()
    return order


def make_room(out: Path, name: str) -> None:
    """Make the folder. Raises ConfigError where that fails or `name` is there already."""
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"Cannot create the folder {out}: {error.strerror}.") from None
    if (out / name).exists():
        raise ConfigError(f"{out / name} exists already. Remove it or choose another folder.")


@frozen
class _Note:
    """What an interrupted run had finished, in a hidden file until every split is written."""

    made_of: Origin


def _read_note(kind: type[_AnyNote], path: Path) -> _AnyNote | None:
    try:
        return read_record(kind, path)
    except (FileNotFoundError, DamagedFile):
        return None


def forget_progress(out: Path) -> None:
    """Remove the notes, and what killed runs left, once all splits are whole: the next run refuses to overwrite
    them."""
    # Only hidden names that this package makes: the folder may hold files of its owner.
    for pattern in (".*.progress", ".*.tmp-*", ".*.writing"):
        for path in out.glob(pattern):
            path.unlink()


# --------------------------------------------------------------------------------------------------------------- shards


@frozen
class _ShardEntry(Shard):
    """One whole shard, as the list of shards names it."""

    source_bytes: int


@frozen
class _Manifest:
    """The list of shards."""

    format: str = FORMAT
    version: int = VERSION
    classes: tuple[str, ...]
    samples: int
    restart_indexed: int
    shards: tuple[_ShardEntry, ...]


@frozen
class _ShardsNote(_Note):
    entries: tuple[_ShardEntry, ...]


def _finished_shards(out: Path, split: str, origin: Origin) -> tuple[_ShardEntry, ...]:
    """The shards that an earlier run has written and that are still there. Raises ConfigError if it had other
    settings."""
    note = _read_note(_ShardsNote, _note_path(out, split))
    if note is None:
        return ()
    if note.made_of != origin:
        make_room(out, manifest_name(split))
        raise ConfigError(
            f"{out} holds the first shards of an interrupted run with another source or other settings. "
            "Remove it or choose another folder."
        )

    def is_whole(entry: _ShardEntry) -> bool:
        path = out / entry.name
        return path.is_file() and path.stat().st_size == entry.bytes and table_path(path).is_file()

    # The first one that is missing ends them: later ones would have other numbers.
    return tuple(itertools.takewhile(is_whole, note.entries))


def _note_path(out: Path, split: str) -> Path:
    return out / f".{split}.shards.progress"


class _ShardWriter:
    """Writes the shards of a split one after the other, after those that are there."""

    def __init__(self, out: Path, split: str, shard_bytes: int, origin: Origin) -> None:
        self._out, self._split, self._limit = out, split, shard_bytes
        self._note = _ShardsNote(made_of=origin, entries=_finished_shards(out, split, origin))
        if not self.entries:
            make_room(out, manifest_name(split))
        self._begin()

    @property
    def entries(self) -> tuple[_ShardEntry, ...]:
        return self._note.entries

    def total(self, field: str) -> int:
        """Sum of a field over whole shards."""
        return sum(getattr(entry, field) for entry in self.entries)

    def _begin(self) -> None:
        self._name = f"{self._split}-{len(self.entries):06d}.tar"
        self._temporary = self._out / f".{self._name}.writing"
        # USTAR has no extra headers, so a member is its header block and its content, and offsets can be computed.
        self._tar = tarfile.open(self._temporary, "w", format=tarfile.USTAR_FORMAT)  # noqa: SIM115 (closed in _end)
        self._table, self._count = TableBuilder(), self.total("samples")
        self._samples = self._source_bytes = self._restart_indexed = 0

    def add(self, name: str, label: int, original: bytes, rewritten: bytes | None) -> None:
        encoded = original if rewritten is None else rewritten
        # A sample that is larger than a whole shard gets a shard of its own.
        if self._samples and self._tar.offset + len(encoded) > self._limit:
            self._end()
            self._begin()
        stem = f"{self._count:06d}"
        # By content, since names lie: readers of WebDataset choose their decoder by this suffix.
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
        # The table comes after the shard. An interruption between the two leaves a shard that is not in the note, and
        # is written again. Synced, as the note vouches for it.
        sync_to_disk(self._temporary)
        self._temporary.replace(path)
        store_table(path, self._table.columns())
        entry = _ShardEntry(
            name=self._name,
            samples=self._samples,
            bytes=path.stat().st_size,
            sha256=digest,
            table_sha256=sha256_of_file(table_path(path)),
            source_bytes=self._source_bytes,
            keeps_exif=True,
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
            classes=classes,
            samples=self.total("samples"),
            restart_indexed=self.total("restart_indexed"),
            shards=self.entries,
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
    # In the origin: a run that continues with other markers would make a set of two kinds.
    interval = TARGET_INTERVAL if markers else 0
    origin: Origin = {"source": source.fingerprint(), "shard_bytes": shard_bytes, "interval": interval}
    writer = _ShardWriter(out, split, shard_bytes, origin)
    order, earlier = pack_order(source, split), writer.total("samples")

    def rewrite(index: int) -> tuple[int, bytes, bytes | None]:
        encoded = read_encoded(source, index)
        if markers is None or read_orientation(encoded) != 1:  # rewriting leaves EXIF out, and with it how to turn it
            return index, encoded, None
        try:
            return index, encoded, add_restart_markers(encoded, markers)[0]
        except NotSliceable:
            return index, encoded, None

    # Threads rewrite, and one writer adds in order: the same shards for any number of workers.
    images = map_in_order(rewrite, order[earlier:], workers)
    for done, (index, original, rewritten) in enumerate(images, start=earlier + 1):
        writer.add(source.name(index), int(source.labels[index]), original, rewritten)
        if progress:
            progress(done, len(order))
    writer.finish(source.classes)
    samples, indexed = writer.total("samples"), writer.total("restart_indexed")
    return PackedSplit(
        split=split,
        samples=samples,
        bytes=writer.total("bytes"),
        source_bytes=writer.total("source_bytes"),
        shards=len(writer.entries),
        restart_indexed=indexed,
        kept_as_they_are=samples - indexed,
        continued_after=earlier,
        notes=notes,
    )


def _find_markers() -> tuple[RestartWriter | None, tuple[str, ...]]:
    """What writes restart markers, or a note why nothing can."""
    try:
        return find_writer(), ()
    except ConfigError as error:
        return None, (f"without restart markers, so that crops are decoded from the top: {plain(str(error))}",)


# ------------------------------------------------------------------------------------------------------------------ raw


@frozen
class _RawNote(_Note):
    packed: PackedSplit


def pack_raw(
    source: Source, out: Path, split: str, *, short_side_px: int, workers: int, progress: Progress | None = None
) -> PackedSplit:
    """Write a split as decoded images whose short side is at most `short_side_px`; unreadable ones are left out.

    A split that an interrupted run had finished is left alone, until `packing.forget_progress`.
    """
    note_path, path = out / f".{split}.raw.progress", out / f"{split}.raw"
    origin: Origin = {"source": source.fingerprint(), "short_side_px": short_side_px}
    earlier = _read_note(_RawNote, note_path)
    if earlier is not None and earlier.made_of == origin and path.is_file():
        return replace(earlier.packed, continued_after=earlier.packed.samples)
    make_room(out, path.name)
    order = pack_order(source, split)
    rows: list[tuple[int, int, int, int]] = []
    names: list[str] = []
    left_out: list[str] = []
    total = hashlib.sha256()

    def decode_small(index: int) -> tuple[int, Image | str]:
        try:
            return index, _limit_size(source.image(index), short_side_px)
        except (BadImage, OSError) as error:
            return index, f"{source.describe(index)}: {error}"

    with replaced_atomically(path) as temporary:
        with temporary.open("wb") as f:
            for done, (index, image) in enumerate(map_in_order(decode_small, order, workers), start=1):
                if isinstance(image, str):
                    left_out.append(image)
                else:
                    rows.append((f.tell(), image.shape[0], image.shape[1], int(source.labels[index])))
                    names.append(source.name(index))
                    # A crop or a grayscale image can be a view with strides; the file has rows without gaps.
                    pixels = np.ascontiguousarray(image).data
                    total.update(pixels)
                    f.write(pixels)
                if progress:
                    progress(done, len(order))
            size = f.tell()
        if not rows:
            raise ConfigError(f"{path}: none of the {len(order):,} images could be read.")
        about = {
            "format": raw.FORMAT,
            "version": raw.VERSION,
            "bytes": str(size),
            "sha256": total.hexdigest(),
            "short_side_px": str(short_side_px),
            "classes": json.dumps(source.classes),
        }
        columns = _columns(rows, names)
        write_table(table_path(path), columns, {**about, CONTENT: hash_content(columns, about)})
        packed = PackedSplit(split=split, samples=len(rows), bytes=size, shards=1, left_out=tuple(left_out))
        # Before the file has its name: a file without a note is taken for one of somebody else.
        write_atomically(note_path, json.dumps(encode(_RawNote(made_of=origin, packed=packed))))
    return packed


def _columns(rows: list[tuple[int, int, int, int]], names: list[str]) -> Columns:
    # Columns in place of rows: they are mapped, and a loader reads a few of millions of samples.
    values, packed = np.array(rows, dtype=np.int64), Names.of(names)
    return {
        "offset": values[:, 0].astype("u8"),
        "height": values[:, 1].astype("u4"),
        "width": values[:, 2].astype("u4"),
        "label": values[:, 3].astype("i4"),
        "names": np.frombuffer(packed.joined, np.uint8),
        "name_ends": packed.ends,
    }


def _limit_size(image: Image, short_side_px: int) -> Image:
    """The image, made smaller when its short side is above the limit."""
    height, width = image.shape[:2]
    # Never larger: enlarged images would take space and have no more content.
    short = min(height, width)
    if short <= short_side_px:
        return image
    return resize(image, max(1, round(width * short_side_px / short)), max(1, round(height * short_side_px / short)))
