"""Fingerprints of the files of a split, taken in seconds: a resumed run must not continue on other images unnoticed.

A small set is hashed whole. Of a larger one: the size of every file, parts of a sample of them, and when each was
changed. `vernier data inspect --verify` reads everything.
"""

import os
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path

from vernier.records.run import DataContent
from vernier.store.durable import sha256_of_file

from .base import Files, Source, fingerprint_of, spread_evenly
from .containers.tables import file_stamp

WHOLE_BYTES = 1 << 26
"""Up to this size everything is hashed: 64 MiB, about a quarter of a second."""
SAMPLED_FILES = 256
PARTS = 16
"""The times of the files are kept for this many parts of the list. In a copy of the set all of them are new; if one
file is replaced, one of them is."""


def content_of(source: Source) -> DataContent:
    """Returns the fingerprint of a source's files. Files that cannot be read count as absent: loading reports them."""
    files = count, path_of = source.files()
    edges = [number * count // PARTS for number in range(PARTS + 1)]
    # Threads, since on a network file system each file takes a round trip.
    with ThreadPoolExecutor(PARTS) as pool:
        parts = list(pool.map(partial(_look, files), edges[:-1], edges[1:]))
        whole = sum(total for total, _, _ in parts) <= WHOLE_BYTES
        numbers = range(count) if whole else spread_evenly(count, SAMPLED_FILES)
        hashes = list(pool.map(lambda number: _hash(path_of(number), whole=whole), numbers))
    sizes, times = [size for _, size, _ in parts], [time for _, _, time in parts]
    content = fingerprint_of(source.fingerprint().encode(), *sizes, *hashes)
    return DataContent(content=content, times=() if whole else tuple(times))


def describe_change(was: DataContent, now: DataContent) -> str:
    """How the files of a set differ from what they were; empty if they do not, or if they were copied as a whole."""
    if was.content != now.content:
        return "names, sizes or contents differ"
    changed = [old != new for old, new in zip(was.times, now.times, strict=True)]
    return "some files were written again" if any(changed) and not all(changed) else ""


def _look(files: Files, first: int, stop: int) -> tuple[int, bytes, str]:
    """The total size of some files, all sizes, and a hash of the times at which they were changed."""
    total, sizes, times = 0, [], []
    for number in range(first, stop):
        size, modified = -1, -1
        with suppress(OSError, ValueError):
            status = os.stat(files[1](number))  # noqa: PTH116  a million times: a Path costs more than the call
            size, modified = status.st_size, status.st_mtime_ns
        total += size
        sizes.append(size)
        times.append(modified)
    return total, repr(sizes).encode(), fingerprint_of(repr(times).encode())


def _hash(path: str, *, whole: bool) -> bytes:
    try:
        return (sha256_of_file(Path(path)) if whole else file_stamp(Path(path))["parts"]).encode()
    except (OSError, ValueError):
        return b""
