"""Columns of numbers in one file, mapped into memory when read: the safetensors layout, with a few words about them.

Also owns where the table of a data file is kept: beside it, or in a cache where that folder cannot be written to.
"""

import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

Columns = dict[str, npt.NDArray[Any]]
_TYPES = {"U8": "u1", "U16": "<u2", "U32": "<u4", "U64": "<u8", "I32": "<i4", "I64": "<i8", "F32": "<f4"}
_NAMES = {np.dtype(kind): name for name, kind in _TYPES.items()}
_LARGEST_HEADER = 100_000_000


def write_table(path: Path, columns: Columns, about: dict[str, str]) -> None:
    """Write under another name, then rename: a reader sees the whole table or none. Equal tables are equal files."""
    header: dict[str, Any] = {"__metadata__": dict(sorted(about.items()))}
    arrays, at = sorted(columns.items(), key=lambda c: (-c[1].itemsize, c[0])), 0
    for name, values in arrays:
        header[name] = {
            "dtype": _NAMES[values.dtype], "shape": list(values.shape), "data_offsets": [at, at + values.nbytes]
        }  # fmt: skip
        at += values.nbytes
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    temporary = path.with_name(f".{path.name}.tmp-{os.getpid()}")
    with temporary.open("wb") as f:
        f.write(len(text).to_bytes(8, "little") + text)
        for _, values in arrays:
            f.write(np.ascontiguousarray(values).data)
    temporary.replace(path)


def read_table(path: Path) -> tuple[Columns, dict[str, str]]:
    """The columns, read from disk as they are touched, and what was written about them. Raises ValueError when damaged."""
    size = path.stat().st_size
    with path.open("rb") as f:
        length = int.from_bytes(f.read(8), "little")
        if length > min(_LARGEST_HEADER, size - 8):
            raise ValueError(f"{path} is not a table")
        header = json.loads(f.read(length))
    about = header.pop("__metadata__", {})
    if size != 8 + length + max((entry["data_offsets"][1] for entry in header.values()), default=0):
        raise ValueError(f"{path} is truncated")
    columns: Columns = {}
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        if begin == end:
            columns[name] = np.zeros(entry["shape"], _TYPES[entry["dtype"]])
        else:
            mapped = np.memmap(path, _TYPES[entry["dtype"]], "r", 8 + length + begin, tuple(entry["shape"]))
            columns[name] = mapped.view(np.ndarray)  # slicing the subclass costs microseconds
    return columns, about


def table_path(file: Path) -> Path:
    """Where the table of a data file stands when it can stand beside it."""
    return file.with_name(file.name + ".table")


def kept_table(
    file: Path, cache: Path, stamp: dict[str, str], scan: Callable[[], tuple[Columns, dict[str, str]]]
) -> tuple[Columns, dict[str, str]]:
    """The table of a data file and the words about it.

    Looked for beside the file, then in `cache`; where none has this stamp, made by `scan` and kept in the first place that can be.
    """
    away = cache / (hashlib.sha256(os.fsencode(file.resolve())).hexdigest()[:24] + ".table")
    for path in (table_path(file), away):
        try:
            columns, about = read_table(path)
        except (OSError, ValueError, KeyError):
            continue
        if all(about.get(k) == v for k, v in stamp.items()):
            return columns, about
    columns, words = scan()
    about = {**stamp, **words}
    for path in (table_path(file), away):
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_table(path, columns, about)
            break
        except OSError:
            continue
    return columns, about
