"""Writes a split as decoded images in one file: `vernier data prepare ... --format raw`. `sources.containers.raw`
reads it."""

import hashlib
import json
from dataclasses import replace
from pathlib import Path

import numpy as np

from vernier.data.augment.crop_flip import resize
from vernier.data.decoding.decode import BadImage, Image
from vernier.data.sources.base import Names, Source
from vernier.data.sources.containers.raw import FORMAT, VERSION
from vernier.data.sources.containers.tables import CONTENT, Columns, hash_content, table_path, write_table
from vernier.errors import ConfigError
from vernier.frozen import frozen
from vernier.records.codec import encode
from vernier.store.durable import DamagedFile, read_record, replaced_atomically, write_atomically

from .packing import Origin, PackedSplit, Progress, make_room, map_in_order, pack_order


@frozen
class _Note:
    """A split that is whole, kept in a hidden file until every split is written."""

    made_of: Origin
    packed: PackedSplit


def pack_raw(
    source: Source, out: Path, split: str, *, short_side_px: int, workers: int, progress: Progress | None = None
) -> PackedSplit:
    """Write a split as decoded images whose short side is at most `short_side_px`; unreadable ones are left out.

    A split that an interrupted run had finished is left alone, until `packing.forget_progress`.
    """
    note_path, path = out / f".{split}.raw.progress", out / f"{split}.raw"
    origin: Origin = {"source": source.fingerprint(), "short_side_px": short_side_px}
    if path.is_file() and (earlier := _finished_split(note_path, origin)) is not None:
        return earlier
    make_room(out, path.name)
    order = pack_order(source, split)
    rows: list[tuple[int, int, int, int]] = []
    names: list[str] = []
    left_out: list[str] = []
    total = hashlib.sha256()

    def decode_small(index: int) -> tuple[int, Image | str]:
        try:
            return index, limit_size(source.image(index), short_side_px)
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
                    pixels = np.ascontiguousarray(image).data
                    total.update(pixels)
                    f.write(pixels)
                if progress:
                    progress(done, len(order))
            size = f.tell()
        if not rows:
            raise ConfigError(f"{path}: none of the {len(order):,} images could be read.")
        about = {
            "format": FORMAT,
            "version": VERSION,
            "bytes": str(size),
            "sha256": total.hexdigest(),
            "short_side_px": str(short_side_px),
            "classes": json.dumps(source.classes),
        }
        columns = _columns(rows, names)
        write_table(table_path(path), columns, {**about, CONTENT: hash_content(columns, about)})
    packed = PackedSplit(split=split, samples=len(rows), bytes=size, shards=1, left_out=tuple(left_out))
    write_atomically(note_path, json.dumps(encode(_Note(made_of=origin, packed=packed))))
    return packed


def _finished_split(note_path: Path, origin: Origin) -> PackedSplit | None:
    try:
        note = read_record(_Note, note_path)
    except (FileNotFoundError, DamagedFile):
        return None
    return replace(note.packed, continued_after=note.packed.samples) if note.made_of == origin else None


def _columns(rows: list[tuple[int, int, int, int]], names: list[str]) -> Columns:
    values, packed = np.array(rows, dtype=np.int64), Names.of(names)
    return {
        "offset": values[:, 0].astype("u8"),
        "height": values[:, 1].astype("u4"),
        "width": values[:, 2].astype("u4"),
        "label": values[:, 3].astype("i4"),
        "names": np.frombuffer(packed.joined, np.uint8),
        "name_ends": packed.ends,
    }


def limit_size(image: Image, short_side_px: int) -> Image:
    """The image, made smaller when its short side is above the limit."""
    height, width = image.shape[:2]
    short = min(height, width)
    if short <= short_side_px:
        return image
    return resize(image, max(1, round(width * short_side_px / short)), max(1, round(height * short_side_px / short)))
