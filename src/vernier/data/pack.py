"""Writes a source as tar shards or as decoded images: `vernier data prepare ... --format shards|raw`.

Everything is written under a hidden name and renamed when whole; the list of shards comes last. Reading it back is up to
`sources.shards` and `sources.raw`.
"""

import hashlib
import io
import json
import os
import tarfile
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from vernier.data.chance import key, permuted
from vernier.data.decode import BadImage
from vernier.data.jpeg import SOI, NotSliceable, find_jpegtran, with_restarts
from vernier.data.sources.base import EncodedSource, Names, Source
from vernier.data.sources.raw import FORMAT as RAW_FORMAT
from vernier.data.sources.raw import VERSION as RAW_VERSION
from vernier.data.sources.shards import FORMAT, VERSION, TableWriter, manifest_name, write_table_beside
from vernier.data.tables import Columns, write_table
from vernier.data.transforms import Image, resize
from vernier.errors import ConfigError

Progress = Callable[[int, int], None]
T = TypeVar("T")
_STREAM_PACK = 4
_AHEAD = 16


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


def pack_order(source: Source, split: str) -> list[int]:
    """Training samples are stored shuffled, so that neighbours in a shard are no neighbours in class; others as they are."""
    count = len(source)
    if split != "train":
        return list(range(count))
    order: list[int] = permuted(key(_STREAM_PACK, count), np.arange(count), count).tolist()
    return order


# -------------------------------------------------------------------------------------------------------------- shards


class _ShardWriter:
    """Shards of a split, one after the other."""

    def __init__(self, out: Path, split: str, shard_bytes: int) -> None:
        self._out, self._split, self._limit = out, split, shard_bytes
        self.entries: list[dict[str, Any]] = []
        self._count = 0
        self._begin()

    def _begin(self) -> None:
        self._name = f"{self._split}-{len(self.entries):06d}.tar"
        self._temporary = self._out / f".{self._name}.writing"
        self._tar = tarfile.open(self._temporary, "w", format=tarfile.USTAR_FORMAT)  # noqa: SIM115 (closed in _end)
        self._table, self._samples = TableWriter(), 0

    def add(self, name: str, label: int, encoded: bytes) -> None:
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
        write_table_beside(final, self._table.columns())
        size = final.stat().st_size
        self.entries.append({"name": self._name, "samples": self._samples, "bytes": size, "sha256": digest})

    def finish(self, classes: tuple[str, ...], facts: dict[str, Any]) -> None:
        self._end()
        tree = {"format": FORMAT, "version": VERSION, "classes": list(classes), **facts, "shards": self.entries}
        _replace_text(self._out / manifest_name(self._split), json.dumps(tree, indent=1) + "\n")


def pack_shards(
    source: EncodedSource, out: Path, split: str, *, shard_bytes: int, restarts: bool, workers: int, progress: Progress | None = None
) -> Packed:  # fmt: skip
    """Write a split as shards; with `restarts`, baseline JPEGs are rewritten without loss so that crops can be cut out."""
    jpegtran = find_jpegtran() if restarts else ""
    _make_room(out, manifest_name(split))
    done = Packed(split)
    writer = _ShardWriter(out, split, shard_bytes)
    order = pack_order(source, split)

    def prepared(index: int) -> tuple[int, bytes, bytes | None]:
        encoded = source.read(index)
        try:
            return index, encoded, with_restarts(encoded, jpegtran)[0] if restarts else None
        except NotSliceable:
            return index, encoded, None

    for index, original, rewritten in in_order(prepared, order, workers):
        writer.add(source.name(index), int(source.labels[index]), original if rewritten is None else rewritten)
        done.samples += 1
        done.source_bytes += len(original)
        done.restart_indexed += rewritten is not None
        if progress:
            progress(done.samples, len(order))
    done.kept_as_they_are = done.samples - done.restart_indexed
    writer.finish(source.classes, {"samples": done.samples, "restart_indexed": done.restart_indexed})
    done.shards, done.bytes = len(writer.entries), sum(e["bytes"] for e in writer.entries)
    return done


# ----------------------------------------------------------------------------------------------------------------- raw


def pack_raw(
    source: Source, out: Path, split: str, *, short_side_px: int, workers: int, progress: Progress | None = None
) -> Packed:
    """Write a split as decoded images whose short side is at most `short_side_px`. Unreadable images are left out and named."""
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
    write_table(final.with_name(final.name + ".table"), columns, about)
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
