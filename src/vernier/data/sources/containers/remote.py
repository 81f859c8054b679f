"""Shards that are somewhere else: s3://, gs://, https:// and whatever else fsspec reaches.

A shard is fetched whole the first time it is touched, checked against its hash, and kept in a local cache that stays
below a limit by giving up what was used longest ago. A shard larger than the limit is read by ranges instead.
"""

import errno
import hashlib
import os
import threading
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any

from vernier.data.sources.containers.shards import Shard, ShardSource, manifest_name, read_manifest
from vernier.data.sources.containers.tables import Columns, read_table
from vernier.errors import ConfigError, NoSuchSplit, RunFailed
from vernier.folders import data_home

LIMIT_VARIABLE = "VERNIER_SHARD_CACHE_GB"
DEFAULT_LIMIT_GB = 50.0
_PIECE = 8 << 20


def cache_limit_bytes() -> int:
    """What the cache may take on disk: $VERNIER_SHARD_CACHE_GB, by default 50 GB."""
    text = os.environ.get(LIMIT_VARIABLE, "")
    try:
        gigabytes = float(text) if text else DEFAULT_LIMIT_GB
    except ValueError:
        gigabytes = -1.0
    if not 0 <= gigabytes < 1e9:
        raise ConfigError(f"{LIMIT_VARIABLE}={text} is no size in GB; 0 switches the cache off.")
    return int(gigabytes * 1e9)


def open_remote(url: str, split: str, *, cache: Path | None = None, limit_bytes: int | None = None) -> ShardSource:
    """The shards of a split at an address. Needs fsspec and, for each kind of address, what fsspec needs for it."""
    files, root = _file_system(url)
    home = cache or data_home() / "shards"
    folder = home / hashlib.sha256(url.rstrip("/").encode()).hexdigest()[:16]
    manifest = f"{root.rstrip('/')}/{manifest_name(split)}"
    try:
        text = files.cat_file(manifest).decode()
    except Exception as error:  # each file system has errors of its own
        missing = isinstance(error, FileNotFoundError)
        why = "it is not there" if missing else error or type(error).__name__
        raise (NoSuchSplit if missing else ConfigError)(
            f"Cannot read {url.rstrip('/')}/{manifest_name(split)}: {why}. "
            "An address must hold shards made by: vernier data prepare ... --format shards."
        ) from None
    classes, shards = read_manifest(text, manifest)
    limit = cache_limit_bytes() if limit_bytes is None else limit_bytes
    return ShardSource(RemoteShards(files, root, folder, shards, limit), shards, classes, url.rstrip("/"))


def _file_system(url: str) -> tuple[Any, str]:
    try:
        import fsspec

        files, root = fsspec.core.url_to_fs(url)
    except ImportError as error:
        raise ConfigError(f"Reading {url} needs more packages ({error}). pip install 'vernier[remote]'") from None
    except ValueError as error:
        raise ConfigError(f"Cannot read {url}: {error}.") from None
    return files, str(root)


class _OpenFile:
    """An open file that is closed when the last reader lets go of it, evicted or not."""

    def __init__(self, path: Path) -> None:
        self.handle = os.open(path, os.O_RDONLY)

    def __del__(self) -> None:
        if hasattr(self, "handle"):
            os.close(self.handle)


def _sizes_and_times(home: Path) -> dict[Path, tuple[int, int]]:
    """Every shard in the cache; another process may be removing some."""
    found = {}
    for path in home.glob("*/*.tar"):
        try:
            about = path.stat()
        except FileNotFoundError:
            continue
        found[path] = (about.st_size, about.st_mtime_ns)
    return found


class RemoteShards:
    """Reads shards through the cache."""

    def __init__(self, files: Any, root: str, cache: Path, shards: list[Shard], limit_bytes: int) -> None:
        self._files, self._root, self._cache, self._limit = files, root.rstrip("/"), cache, limit_bytes
        self._shards = {s.name: s for s in shards}
        self._locks = {s.name: threading.Lock() for s in shards}
        self._lock = threading.Lock()
        self._open: OrderedDict[str, _OpenFile] = OrderedDict()
        if limit_bytes:  # 0: the cache is off, and stays as it is
            self._make_room(0)

    def read(self, shard: str, start: int, length: int) -> bytes:
        if self._shards[shard].bytes > self._limit:
            return bytes(
                self._tried(
                    lambda: self._files.cat_file(f"{self._root}/{shard}", start=start, end=start + length), shard
                )
            )
        return os.pread(self._local(shard).handle, length, start)

    def table(self, shard: str) -> Columns:
        path = self._cache / f"{shard}.table"
        with self._locks[shard]:
            if not path.is_file():
                self._fetch(f"{shard}.table", path, "")
        columns, about = read_table(path)
        if about.get("bytes") != str(self._shards[shard].bytes):
            path.unlink()
            raise RunFailed(f"{self._root}/{shard}.table does not belong to its shard. Prepare the shards again.")
        return columns

    def _local(self, shard: str) -> _OpenFile:
        with self._lock:
            if (found := self._open.get(shard)) is not None:
                self._open.move_to_end(shard)
                return found
        with self._locks[shard]:
            with self._lock:
                if (found := self._open.get(shard)) is not None:
                    return found
            opened = self._kept(shard) or self._fetched(shard)
            with self._lock:
                self._open[shard] = opened
        return opened

    def _kept(self, shard: str) -> _OpenFile | None:
        """The shard in the cache, from now on the one used last; another process may remove it at any time."""
        path = self._cache / shard
        try:
            opened = _OpenFile(path)
            if os.fstat(opened.handle).st_size != self._shards[shard].bytes:
                return None
            os.utime(path)
        except FileNotFoundError:
            return None
        return opened

    def _fetched(self, shard: str) -> _OpenFile:
        entry = self._shards[shard]
        self._make_room(entry.bytes)
        return self._fetch(shard, self._cache / shard, entry.sha256)

    def _make_room(self, needed: int) -> None:
        """Remove what was opened longest ago, from whatever address: first shards that are not open here, then open ones."""
        with self._lock:
            there = _sizes_and_times(self._cache.parent)
            here = [self._cache / name for name in self._open]
            order = sorted(there.keys() - set(here), key=lambda p: there[p][1]) + [p for p in here if p in there]
            total = sum(size for size, _ in there.values())
            for path in order:
                if total + needed <= self._limit:
                    return
                path.unlink(missing_ok=True)
                if path.parent == self._cache:
                    self._open.pop(path.name, None)
                total -= there[path][0]

    def _fetch(self, name: str, path: Path, sha256: str) -> _OpenFile:
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_name(f".{name}.part-{os.getpid()}")

        def copy() -> str:
            total = hashlib.sha256()
            with self._files.open(f"{self._root}/{name}", "rb", block_size=_PIECE) as source, partial.open("wb") as out:
                while piece := source.read(_PIECE):
                    total.update(piece)
                    out.write(piece)
            return total.hexdigest()

        try:
            found = self._tried(copy, name)
        except RunFailed:
            partial.unlink(missing_ok=True)
            raise
        if sha256 and found != sha256:
            partial.unlink()
            raise RunFailed(
                f"{self._root}/{name}: the content does not match its hash. It is damaged there or was on the way."
            )
        opened = _OpenFile(partial)
        partial.replace(path)
        return opened

    def _tried(self, what: Callable[[], Any], name: str) -> Any:
        """Once more after a failure, then give up with a message."""
        for attempt in (1, 2):
            try:
                return what()
            except Exception as error:
                if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
                    raise RunFailed(
                        f"{error.strerror} for the cache of shards, {self._cache.parent}. {LIMIT_VARIABLE} is how many GB it may take."
                    ) from None
                if attempt == 2:
                    raise RunFailed(f"Cannot read {self._root}/{name}: {error or type(error).__name__}.") from None
        raise AssertionError
