"""Columns of numbers in one file, mapped into memory when read: the safetensors layout, with a few words about them."""

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors.numpy import save_file

Columns = dict[str, npt.NDArray[Any]]
_TYPES = {"U8": "u1", "U16": "<u2", "U32": "<u4", "U64": "<u8", "I32": "<i4", "I64": "<i8", "F32": "<f4"}
_LARGEST_HEADER = 100_000_000


def write_table(path: Path, columns: Columns, about: dict[str, str]) -> None:
    """Write under another name, then rename: a reader sees the whole table or none."""
    temporary = path.with_name(f".{path.name}.tmp-{os.getpid()}")
    save_file({k: np.ascontiguousarray(v) for k, v in columns.items()}, temporary, metadata=about)
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
