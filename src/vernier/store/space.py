"""Disk space of folders: what they take, and what removing some of their files would free.

Checkpoints share files that did not change (`checkpoints.commit`), so sizes cannot simply be added.
"""

import os
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path

_BLOCK_BYTES = 512
"""The unit of `st_blocks`, whatever the file system."""


def used_bytes(path: Path) -> int:
    """Bytes on disk of a file or of everything in a folder; a file with several names counts once."""
    files = {(info.st_dev, info.st_ino): _size(info) for info in _walk(path)}
    return sum(files.values())


def freed_bytes(paths: Iterable[Path]) -> int:
    """Bytes on disk that removing all of these frees: files that have another name elsewhere stay."""
    files: dict[tuple[int, int], tuple[int, int]] = {}
    for info in (info for path in paths for info in _walk(path)):
        key = info.st_dev, info.st_ino
        links_left, size = files.get(key, (info.st_nlink, _size(info)))
        files[key] = (links_left - 1, size)
    return sum(size for links_left, size in files.values() if links_left <= 0)


def newest_change_s(path: Path) -> float:
    """When a file of the folder, or the folder itself, was changed last: seconds since 1970, 0 where it is gone."""
    return max((info.st_mtime for info in _walk(path, folders=True)), default=0.0)


def _size(info: os.stat_result) -> int:
    return info.st_blocks * _BLOCK_BYTES


def _walk(path: Path, *, folders: bool = False) -> Iterator[os.stat_result]:
    """Everything below a path, without following links; what cannot be looked at is left out."""
    waiting: list[str | os.DirEntry[str]] = [os.fspath(path)]
    while waiting:
        entry = waiting.pop()
        try:
            info = entry.stat(follow_symlinks=False) if isinstance(entry, os.DirEntry) else os.lstat(entry)
            if stat.S_ISDIR(info.st_mode):
                with os.scandir(entry) as children:
                    waiting += children
                if not folders:
                    continue
        except OSError:
            continue
        yield info
