"""Columns of numbers in one file, mapped into memory when read: the safetensors layout, with a few strings of metadata.

Not the safetensors library: it copies a whole column to read one value, and writes the metadata in a different order
each time, whereas here equal tables are equal files. Also owns where the table of a data file is stored: beside it,
or in the cache if that folder cannot be written to.
"""

import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from vernier.folders import data_home
from vernier.store.durable import replaced_atomically

Columns = dict[str, npt.NDArray[Any]]
_DTYPES = {"U8": "u1", "U16": "<u2", "U32": "<u4", "U64": "<u8", "I32": "<i4", "I64": "<i8", "F32": "<f4"}
_DTYPE_NAMES = {np.dtype(dtype): name for name, dtype in _DTYPES.items()}
_LARGEST_HEADER_BYTES = 100_000_000


def write_table(path: Path, columns: Columns, metadata: dict[str, str]) -> None:
    """Write under a temporary name, then rename: a reader sees the whole table or none."""
    header: dict[str, object] = {"__metadata__": dict(sorted(metadata.items()))}
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
        if length > min(_LARGEST_HEADER_BYTES, size - 8):
            raise ValueError(f"{path} is not a table")
        header = json.loads(f.read(length))
    metadata = header.pop("__metadata__", {})
    if size != 8 + length + max((entry["data_offsets"][1] for entry in header.values()), default=0):
        raise ValueError(f"{path} is truncated")
    columns: Columns = {}
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        if begin == end:
            columns[name] = np.zeros(entry["shape"], _DTYPES[entry["dtype"]])
        else:
            mapped = np.memmap(path, _DTYPES[entry["dtype"]], "r", 8 + length + begin, tuple(entry["shape"]))
            columns[name] = mapped.view(np.ndarray)  # slicing the subclass costs microseconds
    return columns, metadata


def table_path(file: Path) -> Path:
    """The path of a data file's table when it is stored beside the file."""
    return file.with_name(file.name + ".table")


def cached_table_path(kind: str, path: Path) -> Path:
    """Where Vernier's cache has the table of a file or folder."""
    return data_home() / kind / (hashlib.sha256(os.fsencode(path.resolve())).hexdigest()[:24] + ".table")


def load_or_scan(
    file: Path, stamp: dict[str, str], scan: Callable[[], tuple[Columns, dict[str, str]]]
) -> tuple[Columns, dict[str, str]]:
    """The table of a data file and its metadata.

    Looked for beside the file, then in Vernier's cache. If neither has this stamp, `scan` makes the table, which
    is then stored at the first of the two that can be written.
    """
    paths = (table_path(file), cached_table_path("tables", file))
    for path in paths:
        try:
            columns, metadata = read_table(path)
        except (OSError, ValueError, KeyError):
            continue
        if all(metadata.get(k) == v for k, v in stamp.items()):
            return columns, metadata
    columns, scanned_metadata = scan()
    metadata = {**stamp, **scanned_metadata}
    for path in paths:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_table(path, columns, metadata)
            break
        except OSError:
            continue
    return columns, metadata
