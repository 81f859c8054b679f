"""Columns of numbers in one file, mapped into memory when read: the safetensors layout, with a few strings of metadata.

Not the safetensors library: it copies a whole column to read one value, and writes the metadata in a different order
each time, whereas here equal tables are equal files. Also owns where the table of a data file is stored: beside it,
or in the cache if that folder cannot be written to.
"""

import hashlib
import json
import math
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from vernier.data.sources.values import UNREADABLE, parse_json, whole_number
from vernier.data.trusted import is_trusted
from vernier.folders import data_home
from vernier.store.durable import replaced_atomically

Columns = dict[str, npt.NDArray[Any]]
ScanProgress = Callable[[str, int, int], None]
"""Called with what is being done, the bytes done and the total."""
_progress: ContextVar[ScanProgress | None] = ContextVar("progress", default=None)
_DTYPES = {"U8": "u1", "U16": "<u2", "U32": "<u4", "U64": "<u8", "I32": "<i4", "I64": "<i8", "F32": "<f4"}
_DTYPE_NAMES = {np.dtype(dtype): name for name, dtype in _DTYPES.items()}
_LARGEST_HEADER_BYTES = 100_000_000  # the limit of the safetensors library
_STAMPED_BYTES = 1 << 16  # 64 KiB each at the start, in the middle and at the end
CONTENT = "content"
"""The hash of a table among the metadata that `load_or_scan` stores."""


def write_table(path: Path, columns: Columns, metadata: dict[str, str]) -> None:
    """Write under a temporary name, then rename: a reader sees the whole table or none."""
    header: dict[str, object] = {"__metadata__": dict(sorted(metadata.items()))}
    # Wide types first, behind a header padded to 8 bytes: each column begins at a multiple of its item size.
    arrays, offset = sorted(columns.items(), key=lambda c: (-c[1].itemsize, c[0])), 0
    for name, values in arrays:
        end = offset + values.nbytes
        header[name] = {
            "dtype": _DTYPE_NAMES[values.dtype],
            "shape": list(values.shape),
            "data_offsets": [offset, end],
        }
        offset = end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with replaced_atomically(path) as temporary, temporary.open("wb") as f:
        f.write(len(text).to_bytes(8, "little") + text)
        for _, values in arrays:
            f.write(np.ascontiguousarray(values).data)


def read_table(path: Path) -> tuple[Columns, dict[str, str]]:
    """The columns, read from disk as they are touched, and the metadata. Raises ValueError if the file is damaged."""
    size = path.stat().st_size
    with path.open("rb") as f:
        length = int.from_bytes(f.read(8), "little")
        # The first 8 bytes of a damaged file are any number: do not read that many bytes.
        if length > min(_LARGEST_HEADER_BYTES, size - 8):
            raise ValueError(f"{path} is not a table")
        header = f.read(length)
    try:
        tree = parse_json(header)
        metadata = {name: str(value) for name, value in tree.pop("__metadata__", {}).items()}
        extents = {name: _read_extent(entry) for name, entry in tree.items()}
    except UNREADABLE as error:
        raise ValueError(f"{path} is not a table: {error!r}") from None
    # An interrupted copy is shorter than its header promises.
    if size != 8 + length + max((extent.end for extent in extents.values()), default=0):
        raise ValueError(f"{path} is truncated")
    columns: Columns = {}
    for name, extent in extents.items():
        if extent.begin == extent.end:
            columns[name] = np.zeros(extent.shape, extent.dtype)
        else:
            mapped = np.memmap(path, extent.dtype, "r", 8 + length + extent.begin, extent.shape)
            columns[name] = mapped.view(np.ndarray)  # slicing the subclass costs microseconds
    return columns, metadata


class _Extent(NamedTuple):
    """Type, shape and position of a column."""

    dtype: str
    shape: tuple[int, ...]
    begin: int
    end: int


def _read_extent(entry: Any) -> _Extent:
    """A column's entry in the header. Raises one of UNREADABLE where it is damaged."""
    begin, end = map(whole_number, entry["data_offsets"])
    extent = _Extent(_DTYPES[entry["dtype"]], tuple(map(whole_number, entry["shape"])), begin, end)
    # The product alone would accept a shape such as [-1, -4].
    if min((begin, *extent.shape)) < 0 or end - begin != math.prod(extent.shape) * np.dtype(extent.dtype).itemsize:
        raise ValueError("a column does not have the size of its shape")
    return extent


def table_path(file: Path) -> Path:
    """The path of a data file's table when it is stored beside the file."""
    return file.with_name(file.name + ".table")


def cached_table_path(kind: str, path: Path) -> Path:
    """Where Vernier's cache has the table of a file or folder."""
    # resolve: the same file through a link has the same table.
    return data_home() / kind / (hashlib.sha256(os.fsencode(path.resolve())).hexdigest()[:24] + ".table")


@contextmanager
def watched_scans(progress: ScanProgress) -> Iterator[None]:
    """Report the scans inside the block: the first one of a large file takes minutes."""
    token = _progress.set(progress)
    try:
        yield
    finally:
        _progress.reset(token)


def report_scan(file: Path, position: int, size: int) -> None:
    """Called by scans now and then, with the bytes that are read."""
    if (progress := _progress.get()) is not None:
        progress(f"indexing {file.name}", position, size)


def file_stamp(file: Path) -> dict[str, str]:
    """Tells a file from one that replaced it: its size, when it was changed, and a hash of three parts of it.

    Size and time alone do not: tars are padded to equal sizes, and copying programs set times back. A change in
    another part of the file that keeps both is not seen.
    """
    status, digest = file.stat(), hashlib.sha256()
    with file.open("rb", buffering=0) as f:
        for start in (0, status.st_size // 2, max(0, status.st_size - _STAMPED_BYTES)):
            f.seek(start)
            digest.update(f.read(_STAMPED_BYTES))
    return {"bytes": str(status.st_size), "modified": str(status.st_mtime_ns), "parts": digest.hexdigest()}


def hash_content(columns: Columns, metadata: dict[str, str]) -> str:
    """A hash of the columns, and of the metadata without this hash."""
    about = {key: value for key, value in metadata.items() if key != CONTENT}
    total = hashlib.sha256(json.dumps(about, sort_keys=True).encode())
    for name, values in sorted(columns.items()):
        # Type and shape, because the same bytes can be other numbers.
        total.update(f"{name} {values.dtype.str} {values.shape}\n".encode())
        total.update(np.ascontiguousarray(values).data)
    return total.hexdigest()


def load_or_scan(
    file: Path, stamp: dict[str, str], scan: Callable[[], tuple[Columns, dict[str, str]]]
) -> tuple[Columns, dict[str, str]]:
    """The table of a data file and its metadata.

    Looked for beside the file, then in Vernier's cache. If neither is whole and has this stamp, `scan` makes the table,
    which is then stored at the first of the two that can be written.
    """
    paths = (table_path(file), cached_table_path("tables", file))
    for path in paths:
        if path is paths[1] and not is_trusted(path):
            continue  # beside the file it is as trustworthy as the file; the cache may be shared
        try:
            columns, metadata = read_table(path)
        except (OSError, ValueError):
            continue
        # A table with one changed byte would give wrong positions or labels, and no error: hence the hash.
        if stamp.items() <= metadata.items() and metadata.get(CONTENT) == hash_content(columns, metadata):
            return columns, metadata
    columns, scanned_metadata = scan()
    metadata = {**stamp, **scanned_metadata}
    metadata[CONTENT] = hash_content(columns, metadata)
    for path in paths:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_table(path, columns, metadata)
            break
        except OSError:
            # If neither place can be written, the next start scans again.
            continue
    return columns, metadata
