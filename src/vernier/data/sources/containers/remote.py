"""Shards at an address: s3://, gs://, https:// and whatever else fsspec reads.

A shard is downloaded the first time it is used, checked against its hash, and stored in a local cache; the least
recently used shards are removed to keep the cache below its limit. A shard larger than the limit is read by ranges.
"""

import errno
import hashlib
import os
import threading
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any

from vernier.errors import ConfigError, NoSuchSplit, RunFailed
from vernier.folders import data_home

from .shards import Shard, ShardSource, manifest_name, read_manifest
from .tables import Columns, read_table

LIMIT_VARIABLE = "VERNIER_SHARD_CACHE_GB"
DEFAULT_LIMIT_GB = 50.0
_PIECE_BYTES = 8 << 20


def cache_limit_bytes() -> int:
    """The largest size of the cache: $VERNIER_SHARD_CACHE_GB, 50 GB by default."""
    text = os.environ.get(LIMIT_VARIABLE, "")
    try:
        gigabytes = float(text) if text else DEFAULT_LIMIT_GB
    except ValueError:
        gigabytes = -1.0
    if not 0 <= gigabytes < 1e9:
        raise ConfigError(f"{LIMIT_VARIABLE}={text} is not a size in GB. Set it to a number; 0 switches the cache off.")
    return int(gigabytes * 1e9)


def open_remote(url: str, split: str, *, cache: Path | None = None, limit_bytes: int | None = None) -> ShardSource:
    """Open the shards of a split at an address. Needs fsspec, and the packages that fsspec needs for the address."""
    files, root = _open_file_system(url)
    home = cache or data_home() / "shards"
    folder = home / hashlib.sha256(url.rstrip("/").encode()).hexdigest()[:16]
    manifest = f"{root.rstrip('/')}/{manifest_name(split)}"
    try:
        text = files.cat_file(manifest).decode()
    except Exception as error:  # every file system raises its own errors
        missing = isinstance(error, FileNotFoundError)
        reason = "it does not exist" if missing else error or type(error).__name__
        raise (NoSuchSplit if missing else ConfigError)(
            f"Cannot read {url.rstrip('/')}/{manifest_name(split)}: {reason}. "
            "There must be shards at the address, made by: vernier data prepare ... --format shards."
        ) from None
    classes, shards = read_manifest(text, manifest)
    limit = cache_limit_bytes() if limit_bytes is None else limit_bytes
    return ShardSource(RemoteShards(files, root, folder, shards, limit), shards, classes, url.rstrip("/"))


def _open_file_system(url: str) -> tuple[Any, str]:
    try:
        import fsspec

        files, root = fsspec.core.url_to_fs(url)
    except ImportError as error:
        raise ConfigError(f"Reading {url} needs more packages ({error}). pip install 'vernier[remote]'") from None
    except ValueError as error:
        raise ConfigError(f"Cannot read {url}: {error}.") from None
    return files, str(root)


class _OpenFile:
    """An open file, closed when the last reader drops it, even if it was removed from the cache before."""

    def __init__(self, path: Path) -> None:
        self.handle = os.open(path, os.O_RDONLY)

    def __del__(self) -> None:
        if hasattr(self, "handle"):
            os.close(self.handle)


def _sizes_and_times(home: Path) -> dict[Path, tuple[int, int]]:
    """Every shard in the cache, whatever its address; another process may be removing some."""
    shards = {}
    for path in home.glob("*/*.tar"):
        try:
            status = path.stat()
        except FileNotFoundError:
            continue
        shards[path] = (status.st_size, status.st_mtime_ns)
    return shards


class RemoteShards:
    """Reads shards through the cache."""

    def __init__(self, files: Any, root: str, cache: Path, shards: list[Shard], limit_bytes: int) -> None:
        self._files, self._root, self._cache, self._limit = files, root.rstrip("/"), cache, limit_bytes
        self._shards = {s.name: s for s in shards}
        self._locks = {s.name: threading.Lock() for s in shards}
        self._lock = threading.Lock()
        self._open: OrderedDict[str, _OpenFile] = OrderedDict()
        self._downloading_bytes = 0
        if limit_bytes:  # 0: the cache is off, and its files stay
            self._make_room(0)

    def read(self, shard: str, start: int, length: int) -> bytes:
        if self._shards[shard].bytes > self._limit:
            url = f"{self._root}/{shard}"
            return bytes(self._retry(lambda: self._files.cat_file(url, start=start, end=start + length), shard))
        file = self._open_local(shard)  # the name keeps it open while it is read, even if another thread evicts it
        return os.pread(file.handle, length, start)

    def table(self, shard: str) -> Columns:
        path = self._cache / f"{shard}.table"
        with self._locks[shard]:
            if not path.is_file():
                self._fetch(f"{shard}.table", path, "")
        columns, metadata = read_table(path)
        if metadata.get("bytes") != str(self._shards[shard].bytes):
            path.unlink()
            raise RunFailed(f"{self._root}/{shard}.table does not belong to its shard. Prepare the shards again.")
        return columns

    def _open_local(self, shard: str) -> _OpenFile:
        with self._lock:
            if (file := self._open.get(shard)) is not None:
                self._open.move_to_end(shard)
                return file
        with self._locks[shard]:
            with self._lock:
                if (file := self._open.get(shard)) is not None:
                    return file
            file = self._open_cached(shard) or self._download(shard)
            with self._lock:
                self._open[shard] = file
        return file

    def _open_cached(self, shard: str) -> _OpenFile | None:
        """The shard in the cache, marked as just used; another process may remove it at any time."""
        path = self._cache / shard
        try:
            opened = _OpenFile(path)
            if os.fstat(opened.handle).st_size != self._shards[shard].bytes:
                return None
            os.utime(path)
        except FileNotFoundError:
            return None
        return opened

    def _download(self, shard: str) -> _OpenFile:
        entry = self._shards[shard]
        with self._lock:
            self._make_room(entry.bytes)
            self._downloading_bytes += entry.bytes
        try:
            return self._fetch(shard, self._cache / shard, entry.sha256)
        finally:
            with self._lock:
                self._downloading_bytes -= entry.bytes

    def _make_room(self, needed: int) -> None:
        """Remove the least recently used shards of every address: first those not open here, then open ones.

        Counts what other threads are downloading. The caller holds the lock.
        """
        cached = _sizes_and_times(self._cache.parent)
        in_use = [self._cache / name for name in self._open]
        unused = sorted(cached.keys() - set(in_use), key=lambda p: cached[p][1])
        total = sum(size for size, _ in cached.values()) + self._downloading_bytes + needed
        for path in (*unused, *(p for p in in_use if p in cached)):
            if total <= self._limit:
                return
            path.unlink(missing_ok=True)
            if path.parent == self._cache:
                self._open.pop(path.name, None)
            total -= cached[path][0]

    def _fetch(self, name: str, path: Path, sha256: str) -> _OpenFile:
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_name(f".{name}.part-{os.getpid()}")

        def copy() -> str:
            total = hashlib.sha256()
            with (
                self._files.open(f"{self._root}/{name}", "rb", block_size=_PIECE_BYTES) as source,
                partial.open("wb") as out,
            ):
                while piece := source.read(_PIECE_BYTES):
                    total.update(piece)
                    out.write(piece)
            return total.hexdigest()

        try:
            digest = self._retry(copy, name)
        except RunFailed:
            partial.unlink(missing_ok=True)
            raise
        if sha256 and digest != sha256:
            partial.unlink()
            raise RunFailed(
                f"{self._root}/{name}: the content does not match its hash: it is damaged there, or was in transfer."
            )
        file = _OpenFile(partial)
        partial.replace(path)
        return file

    def _retry(self, action: Callable[[], Any], name: str) -> Any:
        """Try twice, then raise RunFailed."""
        for attempt in (1, 2):
            try:
                return action()
            except Exception as error:
                if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
                    raise RunFailed(
                        f"{error.strerror} for the cache of shards, {self._cache.parent}. "
                        f"Set the environment variable {LIMIT_VARIABLE} to fewer GB, or free some space."
                    ) from None
                if attempt == 2:
                    raise RunFailed(f"Cannot read {self._root}/{name}: {error or type(error).__name__}.") from None
        raise AssertionError
