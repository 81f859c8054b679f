"""Writes a source as tar shards or as decoded images: `vernier data prepare ... --format shards|raw`.

Everything is written under a hidden name and renamed when whole; the list of shards comes last. Until then a hidden file says
which shards are whole, so that an interrupted run goes on behind them. Reading back is up to `sources.shards` and `sources.raw`.
"""

import hashlib
import io
import itertools
import json
import os
import tarfile
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from vernier.data.augment.crop_flip import resize
from vernier.data.decoding.decode import BadImage, Image
from vernier.data.decoding.jpeg_slicing import SOI, TARGET_INTERVAL, NotSliceable, add_restart_markers, find_jpegtran
from vernier.data.sources.base import EncodedSource, Names, Source
from vernier.data.sources.containers.raw import FORMAT as RAW_FORMAT
from vernier.data.sources.containers.raw import VERSION as RAW_VERSION
from vernier.data.sources.containers.shards import FORMAT, manifest_name
from vernier.data.sources.containers.tables import Columns, table_path, write_table
from vernier.data.sources.containers.tar_index import VERSION, TableBuilder, store_table
from vernier.errors import ConfigError, RunFailed
from vernier.randomness import Stream, key, permuted

Progress = Callable[[int, int], None]
T = TypeVar("T")
_AHEAD = 16
_ENTRY = ("name", "samples", "bytes", "sha256", "source_bytes", "restart_indexed")


@dataclass
class Packed:
    """What was written for one split."""

    split: str
    samples: int = 0
    bytes: int = 0
    source_bytes: int = 0
    shards: int = 0
    restart_indexed: int = 0
    kept_as_they_are: int = 0
    continued_after: int = 0
    """Samples that an interrupted run had written."""
    left_out: list[str] = field(default_factory=list)


def in_order(work: Callable[[int], T], items: Iterable[int], workers: int) -> Iterator[T]:
    """`map` with threads, in order, a bounded number of results ahead."""
    with ThreadPoolExecutor(workers) as pool:
        waiting: deque[Future[T]] = deque()
        try:
            for item in items:
                waiting.append(pool.submit(work, item))
                if len(waiting) >= _AHEAD * workers:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for job in waiting:
                job.cancel()


def read(source: EncodedSource, index: int) -> bytes:
    """An encoded image as it is. Raises RunFailed, with its name, where it cannot be had."""
    try:
        return source.read(index)
    except OSError as error:
        raise RunFailed(f"Cannot read {source.describe(index)}: {error.strerror}. Repair or remove it.") from None


def pack_order(source: Source, split: str) -> list[int]:
    """Training samples are stored shuffled, so that neighbours in a shard are no neighbours in class; others as they are."""
    count = len(source)
    if split != "train":
        return list(range(count))
    order: list[int] = permuted(key(Stream.PACK, count), np.arange(count), count).tolist()
    return order


# -------------------------------------------------------------------------------------------------------------- shards


class _Progress:
    """Which shards of a split are whole, and of what they were made: kept until every split is written."""

    def __init__(self, out: Path, split: str, made_of: dict[str, Any]) -> None:
        self._out, self._split, self._made_of = out, split, made_of
        self._path = out / f".{split}.shards.progress"

    def entries(self) -> list[dict[str, Any]]:
        """The shards that an earlier run has finished and that are still there. Raises ConfigError when it made something else."""
        try:
            found = json.loads(self._path.read_text(encoding="utf-8"))
            made_of, entries = found["made_of"], [{key: e[key] for key in _ENTRY} for e in found["entries"]]
        except (OSError, ValueError, KeyError, TypeError):
            return []
        if made_of != self._made_of:
            _make_room(self._out, manifest_name(self._split))
            raise ConfigError(
                f"{self._out} holds the beginning of shards from another source or with other settings. "
                f"Remove it or choose another folder."
            )
        return list(itertools.takewhile(self._is_whole, entries))

    def _is_whole(self, entry: dict[str, Any]) -> bool:
        path = self._out / entry["name"]
        return path.is_file() and path.stat().st_size == entry["bytes"] and table_path(path).is_file()

    def keep(self, entries: list[dict[str, Any]]) -> None:
        _replace_text(self._path, json.dumps({"made_of": self._made_of, "entries": entries}))


def forget_progress(out: Path) -> None:
    """To be called when all splits of a set are whole: from then on they are what is there, not what could be continued."""
    for path in out.glob(".*.progress"):
        path.unlink()


class _ShardWriter:
    """Shards of a split, one after the other, behind those that are there."""

    def __init__(self, out: Path, split: str, shard_bytes: int, progress: _Progress) -> None:
        self._out, self._split, self._limit, self._progress = out, split, shard_bytes, progress
        self.entries = progress.entries()
        self._begin()

    def total(self, what: str) -> int:
        """Samples, bytes, source_bytes or restart_indexed of the whole shards."""
        return sum(int(entry[what]) for entry in self.entries)

    def _begin(self) -> None:
        self._name = f"{self._split}-{len(self.entries):06d}.tar"
        self._temporary = self._out / f".{self._name}.writing"
        self._tar = tarfile.open(self._temporary, "w", format=tarfile.USTAR_FORMAT)  # noqa: SIM115 (closed in _end)
        self._table, self._count = TableBuilder(), self.total("samples")
        self._samples = self._source_bytes = self._restart_indexed = 0

    def add(self, name: str, label: int, original: bytes, rewritten: bytes | None) -> None:
        encoded = original if rewritten is None else rewritten
        if self._samples and self._tar.offset + len(encoded) > self._limit:
            self._end()
            self._begin()
        stem = f"{self._count:06d}"
        suffix = "jpg" if encoded[:2] == SOI else os.path.splitext(name)[1].lstrip(".").lower() or "img"
        offset = self._member(f"{stem}.{suffix}", encoded)
        self._member(f"{stem}.cls", str(label).encode())
        self._table.add(name, label, offset, encoded)
        self._samples += 1
        self._count += 1
        self._source_bytes += len(original)
        self._restart_indexed += rewritten is not None

    def _member(self, name: str, content: bytes) -> int:
        info = tarfile.TarInfo(name)
        info.size, info.mode = len(content), 0o644
        offset: int = self._tar.offset + tarfile.BLOCKSIZE
        self._tar.addfile(info, io.BytesIO(content))
        return offset

    def _end(self) -> None:
        self._tar.close()
        final = self._out / self._name
        with self._temporary.open("rb") as f:
            digest = hashlib.file_digest(f, "sha256").hexdigest()
        self._temporary.replace(final)
        store_table(final, self._table.columns())
        self.entries.append({
            "name": self._name, "samples": self._samples, "bytes": final.stat().st_size, "sha256": digest,
            "source_bytes": self._source_bytes, "restart_indexed": self._restart_indexed,
        })  # fmt: skip
        self._progress.keep(self.entries)

    def finish(self, classes: tuple[str, ...]) -> None:
        if self._samples:
            self._end()
        else:  # everything was there already
            self._tar.close()
            self._temporary.unlink()
        tree = {
            "format": FORMAT, "version": VERSION, "classes": list(classes),
            "samples": self.total("samples"), "restart_indexed": self.total("restart_indexed"), "shards": self.entries,
        }  # fmt: skip
        _replace_text(self._out / manifest_name(self._split), json.dumps(tree, indent=1) + "\n")


def pack_shards(
    source: EncodedSource, out: Path, split: str, *, shard_bytes: int, restarts: bool, workers: int, progress: Progress | None = None
) -> Packed:  # fmt: skip
    """Write a split as shards; with `restarts`, baseline JPEGs are rewritten without loss so that crops can be cut out.

    Goes on behind the whole shards that an interrupted run left, until `forget_progress`.
    """
    jpegtran = find_jpegtran() if restarts else ""
    made_of = {
        "source": source.fingerprint(),
        "shard_bytes": shard_bytes,
        "interval": TARGET_INTERVAL if restarts else 0,
    }
    kept = _Progress(out, split, made_of)
    if not kept.entries():
        _make_room(out, manifest_name(split))
    writer = _ShardWriter(out, split, shard_bytes, kept)
    order, there = pack_order(source, split), writer.total("samples")

    def prepared(index: int) -> tuple[int, bytes, bytes | None]:
        encoded = read(source, index)
        try:
            return index, encoded, add_restart_markers(encoded, jpegtran)[0] if restarts else None
        except NotSliceable:
            return index, encoded, None

    for seen, (index, original, rewritten) in enumerate(in_order(prepared, order[there:], workers), start=there + 1):
        writer.add(source.name(index), int(source.labels[index]), original, rewritten)
        if progress:
            progress(seen, len(order))
    writer.finish(source.classes)
    samples, indexed = writer.total("samples"), writer.total("restart_indexed")
    return Packed(
        split, samples=samples, bytes=writer.total("bytes"), source_bytes=writer.total("source_bytes"), shards=len(writer.entries),
        restart_indexed=indexed, kept_as_they_are=samples - indexed, continued_after=there,
    )  # fmt: skip


# ----------------------------------------------------------------------------------------------------------------- raw


def pack_raw(
    source: Source, out: Path, split: str, *, short_side_px: int, workers: int, progress: Progress | None = None
) -> Packed:
    """Write a split as decoded images whose short side is at most `short_side_px`. Unreadable images are left out and named.

    A split that an interrupted run had finished is left alone, until `forget_progress`.
    """
    note, made_of = out / f".{split}.raw.progress", {"source": source.fingerprint(), "short_side_px": short_side_px}
    if (earlier := _finished_raw(note, made_of)) is not None and (out / f"{split}.raw").is_file():
        return earlier
    _make_room(out, f"{split}.raw")
    done, order = Packed(split, shards=1), pack_order(source, split)
    rows: list[tuple[int, int, int, int]] = []
    names: list[str] = []
    temporary = out / f".{split}.raw.writing"

    def prepared(index: int) -> tuple[int, Image | str]:
        try:
            return index, limited(source.image(index), short_side_px)
        except (BadImage, OSError) as error:
            return index, f"{source.describe(index)}: {error}"

    with temporary.open("wb") as f:
        for seen, (index, image) in enumerate(in_order(prepared, order, workers), start=1):
            if isinstance(image, str):
                done.left_out.append(image)
            else:
                rows.append((f.tell(), image.shape[0], image.shape[1], int(source.labels[index])))
                names.append(source.name(index))
                f.write(np.ascontiguousarray(image).data)
            if progress:
                progress(seen, len(order))
        done.bytes = f.tell()
    done.samples = len(rows)
    _finish_raw(temporary, out / f"{split}.raw", rows, names, source.classes, short_side_px)
    _replace_text(note, json.dumps({"made_of": made_of, "packed": asdict(done)}))
    return done


def _finished_raw(note: Path, made_of: dict[str, Any]) -> Packed | None:
    try:
        found = json.loads(note.read_text(encoding="utf-8"))
        done = Packed(**found["packed"]) if found["made_of"] == made_of else None
    except (OSError, ValueError, KeyError, TypeError):
        return None
    if done is not None:
        done.continued_after = done.samples
    return done


def _finish_raw(
    temporary: Path, final: Path, rows: list[tuple[int, int, int, int]], names: list[str], classes: tuple[str, ...], short_side_px: int
) -> None:  # fmt: skip
    if not rows:
        temporary.unlink()
        raise ConfigError(f"{final}: not one image could be read.")
    values, packed = np.array(rows, dtype=np.int64), Names.of(names)
    columns: Columns = {
        "offset": values[:, 0].astype("u8"), "height": values[:, 1].astype("u4"), "width": values[:, 2].astype("u4"),
        "label": values[:, 3].astype("i4"), "names": np.frombuffer(packed.joined, np.uint8), "name_ends": packed.ends,
    }  # fmt: skip
    about = {
        "format": RAW_FORMAT, "version": RAW_VERSION, "classes": json.dumps(classes),
        "bytes": str(temporary.stat().st_size), "short_side_px": str(short_side_px),
    }  # fmt: skip
    write_table(table_path(final), columns, about)
    temporary.replace(final)


def limited(image: Image, short_side_px: int) -> Image:
    """The image, made smaller when its short side is above the limit."""
    height, width = image.shape[:2]
    short = min(height, width)
    if short <= short_side_px:
        return image
    return resize(image, max(1, round(width * short_side_px / short)), max(1, round(height * short_side_px / short)))


# --------------------------------------------------------------------------------------------------------------- files


def _make_room(out: Path, name: str) -> None:
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"Cannot make the folder {out}: {error.strerror}.") from None
    if (out / name).exists():
        raise ConfigError(f"{out / name} exists already. Remove it or choose another folder.")


def _replace_text(path: Path, text: str) -> None:
    temporary = path.with_name(f".{path.name}.tmp-{os.getpid()}")
    temporary.write_text(text, encoding="utf-8")
    temporary.replace(path)
