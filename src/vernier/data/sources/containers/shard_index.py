"""The table of a tar shard: position, size and label of every image, and the restart segments of JPEGs that have them.

With it, a crop reads and decodes only the segments that it touches. The table of a shard of other origin is made on
first use by reading the whole tar. Which shards a split has is up to `shards`; how a table is stored, to `tables`.
"""

import itertools
import json
import os
import tarfile
from pathlib import Path

import numpy as np
import numpy.typing as npt

from vernier.data.decoding.decode import BadImage, read_size
from vernier.data.decoding.jpeg_slicing import NotSliceable, Segments, find_segments
from vernier.data.sources.base import Names
from vernier.data.sources.folder import IMAGE_SUFFIXES
from vernier.errors import ConfigError

from .tables import Columns, load_or_scan, table_path, write_table

VERSION = 1
_COLUMN_TYPES = {
    "offset": "u8",
    "size": "u8",
    "label": "i4",
    "width": "u4",
    "height": "u4",
    "scan_at": "u2",
    "frame_at": "u2",
    "mcu": "u1",
    "interval": "u2",
    "rows_at": "u8",
    "within_at": "u8",
}
_LARGEST_LABEL_BYTES = 1 << 20


class TableBuilder:
    """Collects the rows of a shard's table."""

    def __init__(self) -> None:
        self._rows: list[tuple[int, ...]] = []
        self._names: list[str] = []
        self._row_starts: list[npt.NDArray[np.uint32]] = [np.zeros(0, np.uint32)]
        self._within: list[npt.NDArray[np.uint16]] = [np.zeros(0, np.uint16)]
        self._rows_at = self._within_at = 0

    def add(self, name: str, label: int, offset: int, encoded: bytes) -> None:
        """Add an image whose bytes begin at `offset` of the shard."""
        self._names.append(name)
        self._rows.append((offset, len(encoded), label, *self._add_segments(encoded)))

    def _add_segments(self, encoded: bytes) -> tuple[int, ...]:
        """The columns after `label`; all but width and height are 0 for an image that cannot be sliced."""
        try:
            segments = find_segments(encoded)
        except NotSliceable:
            try:
                width, height = read_size(encoded)
            except BadImage:
                width = height = 0
            return width, height, 0, 0, 0, 0, 0, 0
        mcu = (segments.mcu_width // 8) << 4 | segments.mcu_height // 8
        rows_at, within_at = self._rows_at, self._within_at
        self._row_starts.append(segments.row_starts)
        self._within.append(segments.within.ravel())
        self._rows_at += len(segments.row_starts)
        self._within_at += segments.within.size
        size = segments.width, segments.height
        return *size, segments.scan_at, segments.frame_at, mcu, segments.interval, rows_at, within_at

    def columns(self) -> Columns:
        names = Names.of(self._names)
        values = np.array(self._rows, dtype=np.int64).reshape(-1, len(_COLUMN_TYPES))
        return {
            **{key: values[:, i].astype(dtype) for i, (key, dtype) in enumerate(_COLUMN_TYPES.items())},
            "names": np.frombuffer(names.joined, np.uint8),
            "name_ends": names.ends,
            "row_starts": np.concatenate(self._row_starts),
            "within": np.concatenate(self._within),
        }


def read_segments(table: Columns, row: int) -> Segments | None:
    """The restart segments of an image; None if it cannot be sliced."""
    scan_at = int(table["scan_at"][row])
    if not scan_at:
        return None
    mcu, interval, width = int(table["mcu"][row]), int(table["interval"][row]), int(table["width"][row])
    mcu_width, mcu_height, height = 8 * (mcu >> 4), 8 * (mcu & 15), int(table["height"][row])
    rows, columns = -(-height // mcu_height), -(-width // (mcu_width * interval))
    rows_at, within_at = int(table["rows_at"][row]), int(table["within_at"][row])
    return Segments(
        width=width,
        height=height,
        mcu_width=mcu_width,
        mcu_height=mcu_height,
        interval=interval,
        frame_at=int(table["frame_at"][row]),
        scan_at=scan_at,
        row_starts=table["row_starts"][rows_at : rows_at + rows],
        within=table["within"][within_at : within_at + rows * (columns + 1)].reshape(rows, columns + 1),
    )


def read_name(table: Columns, row: int) -> str:
    """The name that an image had before it was packed, or that it has in the tar."""
    return Names(table["names"], table["name_ends"])[row]


def load_table(shard: Path) -> Columns:
    """The table of a shard: stored beside it, stored in the cache, or made now from the tar itself."""
    return load_or_scan(shard, _stamp(shard), lambda: (scan_tar(shard), {}))[0]


def store_table(shard: Path, columns: Columns) -> None:
    """Store the table beside its shard."""
    write_table(table_path(shard), columns, _stamp(shard))


def _stamp(shard: Path) -> dict[str, str]:
    return {"version": str(VERSION), "bytes": str(shard.stat().st_size)}


def scan_tar(path: Path) -> Columns:
    """The table of any WebDataset shard: members with the same key are one sample."""
    builder = TableBuilder()
    try:
        with tarfile.open(path) as tar:
            files = (member for member in tar if member.isfile())
            for key, members in itertools.groupby(files, key=lambda m: _sample_key(m.name)):
                _add_sample(builder, tar, path, key, list(members))
    except tarfile.TarError as error:
        raise ConfigError(f"{path} is not a readable tar file: {error}.") from None
    return builder.columns()


def _sample_key(name: str) -> str:
    folder, _, base = name.rpartition("/")
    return f"{folder}/{base.split('.')[0]}"


def _add_sample(
    builder: TableBuilder, tar: tarfile.TarFile, path: Path, key: str, members: list[tarfile.TarInfo]
) -> None:
    label: int | None = None
    image: tarfile.TarInfo | None = None
    for member in members:
        suffix = os.path.splitext(member.name)[1].lower()
        if suffix in IMAGE_SUFFIXES:
            image = member
        elif suffix in (".cls", ".json"):
            label = _parse_label(_read_member(tar, member, _LARGEST_LABEL_BYTES), suffix, f"{path}:{member.name}")
    if image is None:
        return
    if label is None:
        raise ConfigError(f"{path}: the sample {key.lstrip('/')} has no .cls or .json with a label beside its image.")
    builder.add(image.name, label, image.offset_data, _read_member(tar, image))


def _read_member(tar: tarfile.TarFile, member: tarfile.TarInfo, limit_bytes: int = -1) -> bytes:
    content = tar.extractfile(member)
    assert content is not None, "a file has content"
    return content.read(limit_bytes)


def _parse_label(content: bytes, suffix: str, where: str) -> int:
    try:
        if suffix == ".cls":
            return int(content)
        tree = json.loads(content)
        return int(tree if isinstance(tree, int) else next(tree[k] for k in ("label", "cls", "class") if k in tree))
    except (ValueError, TypeError, StopIteration):
        raise ConfigError(
            f"{where} has no class number: a .cls must be a whole number, a .json must have 'label'."
        ) from None
