"""The table of a tar shard: position, size and label of every image, and the restart segments of JPEGs that have them.

With it, a crop reads and decodes only the segments that it touches. The table of a shard of other origin is made on
first use by reading the whole tar, which is refused if it ends early, is compressed, or hides files behind links that
lead nowhere. Which shards a split has is up to `shards`; how a table is stored, to `tables`.
"""

import itertools
import os
import posixpath
import tarfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import numpy as np
import numpy.typing as npt

from vernier.data.decoding.decode import BadImage, read_size
from vernier.data.decoding.jpeg_slicing import NotSliceable, Segments, find_segments
from vernier.data.sources.base import Names
from vernier.data.sources.folder import IMAGE_SUFFIXES
from vernier.data.sources.values import UNREADABLE, class_label, parse_json
from vernier.errors import ConfigError
from vernier.frozen import frozen

from .tables import Columns, file_stamp, load_or_scan, read_table, report_scan, table_path, write_table

_COMPRESSED = {b"\x1f\x8b": "gzip", b"BZ": "bzip2", b"\xfd7": "xz", b"\x28\xb5": "zstd"}
_PIECE = 1 << 20
LABEL_SUFFIXES = (".cls", ".json")
SAMPLE_SUFFIXES = IMAGE_SUFFIXES.union(LABEL_SUFFIXES)
TAR_ERRORS = (tarfile.TarError, OSError, EOFError, MemoryError, zlib.error, *UNREADABLE)
"""What tarfile raises for a damaged file."""


# -------------------------------------------------------------------------------------------------- samples of any tar


@frozen
class _Member:
    """A file in an open tar; for a link, the file that it is a link to."""

    name: str
    offset: int
    size: int
    file: BinaryIO

    def read(self, limit_bytes: int | None = None) -> bytes:
        """The content, or its first bytes."""
        self.file.seek(self.offset)
        return self.file.read(self.size if limit_bytes is None else min(self.size, limit_bytes))


def _read_samples(path: Path) -> Iterator[tuple[str, list[_Member]]]:
    """The key and the members of each sample: neighbouring files whose names agree up to the first dot.

    Hidden files, such as macOS's `._name`, belong to none. Raises ConfigError where the tar cannot be read to its end.
    """
    try:
        with path.open("rb") as f:
            if kind := _COMPRESSED.get(f.read(2)):
                raise ConfigError(
                    f"{path} is compressed ({kind}), so its images cannot be read at their positions. Unpack it to a "
                    "plain tar."
                )
            f.seek(0)
            with tarfile.open(fileobj=f, mode="r:") as tar:
                for key, members in itertools.groupby(_files(path, f, tar), key=lambda m: _sample_key(m.name)):
                    yield key, list(members)
                _check_end(path, f, tar.offset)
    except ConfigError:
        raise
    except TAR_ERRORS as error:
        raise ConfigError(f"{path} is not a readable tar file: {error or type(error).__name__}.") from None


def _sample_key(name: str) -> str:
    folder, _, base = name.rpartition("/")
    return f"{folder}/{base.split('.')[0]}"


def read_members(tar: tarfile.TarFile) -> Iterator[tarfile.TarInfo]:
    """The members of a tar, which end: a negative size would lead back to earlier ones forever. Raises TarError."""
    for member in tar:
        if member.size < 0:
            raise tarfile.ReadError(f"its member {member.name} has the size {member.size}")
        yield member


def _files(path: Path, f: BinaryIO, tar: tarfile.TarFile) -> Iterator[_Member]:
    """The files of a tar in order; links are followed to files before them. Raises ConfigError where that fails."""
    size, earlier = os.fstat(f.fileno()).st_size, dict[str, _Member]()
    for member in read_members(tar):
        if posixpath.basename(member.name).startswith(".") or not (member.isfile() or member.islnk() or member.issym()):
            continue
        if member.isfile():
            if member.issparse():
                raise ConfigError(f"{path}: its member {member.name} is a sparse file. Write the tar without --sparse.")
            if member.offset_data + member.size > size:
                raise ConfigError(f"{path} is truncated: it ends within its member {member.name}. Copy it again.")
            file = _Member(name=member.name, offset=member.offset_data, size=member.size, file=f)
        else:
            beside = posixpath.dirname(member.name) if member.issym() else ""
            target = earlier.get(posixpath.normpath(posixpath.join(beside, member.linkname)))
            if target is None and posixpath.splitext(member.name)[1].lower() not in SAMPLE_SUFFIXES:
                continue
            if target is None:
                raise ConfigError(
                    f"{path}: its member {member.name} is a link to {member.linkname}, which is no file before it in "
                    "the tar. Write the tar with --dereference (and --hard-dereference)."
                )
            file = _Member(name=member.name, offset=target.offset, size=target.size, file=f)
        earlier[posixpath.normpath(member.name)] = file
        yield file


def _check_end(path: Path, f: BinaryIO, offset: int) -> None:
    """Raises ConfigError unless the tar has its end mark at `offset`, where no further member was read, and nothing
    but padding behind it."""
    f.seek(offset)
    block = f.read(tarfile.BLOCKSIZE)
    if len(block) < tarfile.BLOCKSIZE:
        raise ConfigError(
            f"{path} is truncated: it ends at byte {offset + len(block):,} without the end mark of a tar. Copy it "
            f"again. If it is whole and its writer left the mark out, add it: truncate -s +1024 {path.name}"
        )
    if block.strip(b"\0"):
        raise ConfigError(f"{path} is damaged at byte {offset:,}: there is no header of a tar. Copy it again.")
    while piece := f.read(_PIECE):
        if piece.strip(b"\0"):
            raise ConfigError(
                f"{path} has more data behind its end mark at byte {offset:,}, as joined tars do. Write it as one tar."
            )


VERSION = 1  # in the stamps of tables; those of other versions are not used
FOREIGN_VERSION = "2"
UNNAMED = "img"
"""The ending of an image in a shard if neither its content nor its name shows its format."""
_PARTS = "parts"
_LABEL_KEYS = ("label", "cls", "class")
# Order matters: `TableBuilder` makes its rows in this one, and compiled code reads tables in it.
COLUMN_TYPES = {
    "offset": "u8",
    "size": "u8",
    "label": "i4",
    "width": "u4",
    "height": "u4",
    "scan_at": "u2",  # 0, like all columns below, for an image that cannot be sliced
    "frame_at": "u2",
    "mcu": "u1",  # width and height in blocks of 8 pixels, four bits each
    "interval": "u2",  # MCUs per restart segment
    "rows_at": "u8",  # where the image's part of the column `row_starts` begins
    "within_at": "u8",  # the same for the column `within`
}
_LARGEST_LABEL_BYTES = 1 << 20
_DAMAGED = "the table of its shard is damaged: prepare the shards again"


class TableBuilder:
    """Collects the rows of a shard's table."""

    def __init__(self) -> None:
        self._rows: list[tuple[int, ...]] = []
        self._names: list[str] = []
        # The empty arrays give a table without any segments columns of the right type.
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
        values = np.array(self._rows, dtype=np.int64).reshape(-1, len(COLUMN_TYPES))
        return {
            **{key: values[:, i].astype(dtype) for i, (key, dtype) in enumerate(COLUMN_TYPES.items())},
            "names": np.frombuffer(names.joined, np.uint8),
            "name_ends": names.ends,
            "row_starts": np.concatenate(self._row_starts),
            "within": np.concatenate(self._within),
        }


def read_segments(table: Columns, row: int) -> Segments | None:
    """The restart segments of an image; None if it cannot be sliced. Raises BadImage where the table is damaged."""
    scan_at = int(table["scan_at"][row])
    if not scan_at:
        return None
    mcu, interval, width = int(table["mcu"][row]), int(table["interval"][row]), int(table["width"][row])
    mcu_width, mcu_height, height = 8 * (mcu >> 4), 8 * (mcu & 15), int(table["height"][row])
    # A damaged table: a zero would be divided by below.
    if not mcu_width * mcu_height * interval * width * height:
        raise BadImage(_DAMAGED)
    rows, columns = -(-height // mcu_height), -(-width // (mcu_width * interval))
    rows_at, within_at = int(table["rows_at"][row]), int(table["within_at"][row])
    row_starts = table["row_starts"][rows_at : rows_at + rows]
    within = table["within"][within_at : within_at + rows * (columns + 1)]
    # A position beyond the end of a column gives a shorter slice, not an error.
    if len(row_starts) != rows or len(within) != rows * (columns + 1):
        raise BadImage(_DAMAGED)
    return Segments(
        width=width,
        height=height,
        mcu_width=mcu_width,
        mcu_height=mcu_height,
        interval=interval,
        frame_at=int(table["frame_at"][row]),
        scan_at=scan_at,
        row_starts=row_starts,
        within=within.reshape(rows, columns + 1),
    )


def check_table(columns: Columns) -> None:
    """Raises ValueError where the columns are not those of one table."""
    lengths = {len(columns[name]) if name in columns else -1 for name in (*COLUMN_TYPES, "name_ends")}
    if len(lengths) > 1 or min(lengths) < 0 or not {"names", "row_starts", "within"} <= columns.keys():
        raise ValueError("columns are missing or of unequal lengths")
    for name, dtype in COLUMN_TYPES.items():
        if columns[name].dtype != np.dtype(dtype) or columns[name].ndim != 1:
            raise ValueError(f"the column {name} is not of its type")


def load_table(shard: Path) -> Columns:
    """The table that `compat.preparing` stored beside its shard; made from the tar itself where it cannot be read."""
    try:
        columns, metadata = read_table(table_path(shard))
        check_table(columns)
    except (OSError, ValueError):
        return load_foreign_table(shard)
    # A table of version 0.2, which has no hash of parts, is used if the rest of its stamp agrees.
    stamp = {key: value for key, value in _stamp(shard).items() if key != _PARTS or key in metadata}
    return columns if stamp.items() <= metadata.items() else load_foreign_table(shard)


def load_foreign_table(shard: Path) -> Columns:
    """The table of a shard of other origin: stored beside it or in the cache, or made now from the tar itself."""
    stamp = {"version": FOREIGN_VERSION, **file_stamp(shard)}
    return load_or_scan(shard, stamp, lambda: (scan_tar(shard), {}))[0]


def store_table(shard: Path, columns: Columns) -> None:
    """Store the table beside its shard."""
    write_table(table_path(shard), columns, _stamp(shard))


def _stamp(shard: Path) -> dict[str, str]:
    """Returns a stamp without the time, which copying a set changes. Tables of version 0.2 have no hash of parts."""
    stamp = file_stamp(shard)
    return {"version": str(VERSION), "bytes": stamp["bytes"], _PARTS: stamp[_PARTS]}


def scan_tar(path: Path) -> Columns:
    """The table of any WebDataset shard: members with the same key are one sample. Raises ConfigError."""
    builder, size = TableBuilder(), path.stat().st_size
    for key, members in _read_samples(path):
        _add_sample(builder, path, key, members)
        report_scan(path, members[-1].offset, size)
    return builder.columns()


def _add_sample(builder: TableBuilder, path: Path, key: str, members: list[_Member]) -> None:
    label: int | None = None
    image: _Member | None = None
    for member in members:
        suffix = os.path.splitext(member.name)[1].lower()
        # A known ending wins over .img, whichever of the two comes first.
        if suffix in IMAGE_SUFFIXES or (suffix == f".{UNNAMED}" and image is None):
            image = member
        elif suffix in LABEL_SUFFIXES:
            label = _parse_label(member.read(_LARGEST_LABEL_BYTES), suffix, f"{path}:{member.name}")
    if image is None:
        return
    if label is None:
        raise ConfigError(f"{path}: the sample {key.lstrip('/')} has no .cls or .json with a label beside its image.")
    builder.add(image.name, label, image.offset, image.read())


def _parse_label(content: bytes, suffix: str, where: str) -> int:
    try:
        if suffix == ".cls":
            return class_label(content.decode())
        tree = parse_json(content)
        return class_label(tree if isinstance(tree, int) else next(tree[k] for k in _LABEL_KEYS if k in tree))
    except (ValueError, TypeError, StopIteration) as error:
        raise ConfigError(
            f"{where} has no class number: a .cls must be a whole number from 0, a .json must have 'label'"
            f"{f' ({error})' if str(error) else ''}."
        ) from None
