"""Shards at an address: s3://, gs://, https:// and others that fsspec reads.

A shard is downloaded the first time it is used, checked against its hash, and stored in a local cache; the least
recently used shards are removed to keep the cache below its limit. A shard that does not fit, because it is larger than
the limit or because other downloads fill the cache, is read by ranges.
Processes of a host share the cache: one of them downloads a shard, the others wait for it. What a server fails to give,
gives too slowly or gives damaged is asked for again, with growing pauses.
"""

import errno
import hashlib
import ipaddress
import os
import socket
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

from vernier.addresses import VARIABLE as ADDRESSES
from vernier.addresses import Address, check_allowed, check_redirect, redact, remember, with_credentials
from vernier.clock import now_s, wall_s
from vernier.data.sources.containers.shard_index import check_table
from vernier.data.sources.containers.shards import Shard, ShardSource, manifest_name, read_manifest
from vernier.data.sources.containers.tables import Columns, read_table
from vernier.data.unfinished import locked_file
from vernier.errors import ConfigError, NoSuchSplit, RunFailed
from vernier.folders import data_home
from vernier.references import command
from vernier.store.durable import sha256_of_file

T = TypeVar("T")
LIMIT_VARIABLE = "VERNIER_SHARD_CACHE_GB"
_LIMIT_SETTING = "machine.shard_cache_gb"
_DEFAULT_LIMIT_GB = 50.0
STALL_S = 60.0
"""A web server that sends nothing for this long has failed."""
RETRY_WAITS_S = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0)
"""Pauses before a request is made again; each process makes them a little longer or shorter."""
_PIECE_BYTES = 8 << 20
_FULL = (errno.ENOSPC, errno.EDQUOT)  # the disk or the quota is full: a retry would fail, too
_ABANDONED_S = 3600
"""A download that has not grown for this long belongs to a process that was killed."""


def cache_limit_bytes(limit_gb: float | None = None) -> int:
    """The largest size of the cache: `limit_gb`, or else $VERNIER_SHARD_CACHE_GB, 50 GB by default."""
    if limit_gb is not None:
        return int(limit_gb * 1e9)
    text = os.environ.get(LIMIT_VARIABLE, "")
    try:
        gigabytes = float(text) if text else _DEFAULT_LIMIT_GB
    except ValueError:
        gigabytes = -1.0
    # NaN fails the comparison, too, and is refused.
    if not 0 <= gigabytes < 1e9:
        raise ConfigError(f"{LIMIT_VARIABLE}={text} is not a size in GB. Set it to a number; 0 switches the cache off.")
    return int(gigabytes * 1e9)


def open_remote(
    url: str, split: str, limit_gb: float | None = None, *, cache: Path | None = None, limit_bytes: int | None = None
) -> ShardSource:
    """Open the shards of a split at an address. Needs fsspec, and the packages that fsspec needs for the address.

    The address is the public one; its credentials come from `vernier.addresses`, which also says whether it may be
    read. Raises ConfigError.
    """
    url = url.rstrip("/")
    check_allowed(url)
    files = _Files(with_credentials(url))
    home = cache or data_home() / "shards"
    folder = home / hashlib.sha256(url.encode()).hexdigest()[:16]
    manifest = manifest_name(split)
    try:
        text = files.read(manifest).decode()
    except ConfigError:
        raise
    except Exception as error:  # every file system raises its own errors
        missing = isinstance(error, FileNotFoundError)
        reason = f"it does not exist. {_LOGIN}" if missing else f"{_describe_failure(error)}."
        raise (NoSuchSplit if missing else ConfigError)(
            f"Cannot read {files.name_of(manifest)}: {reason} There must be shards at the address, as written by "
            f"{command('data prepare', 'folder', 'SRC', 'OUT', format='shards')}."
        ) from None
    remember(url)
    classes, shards = read_manifest(text, files.name_of(manifest))
    limit = cache_limit_bytes(limit_gb) if limit_bytes is None else limit_bytes
    return ShardSource(_RemoteShards(files, folder, shards, limit), shards, classes, url)


_LOGIN = (
    "If it needs a password or token, give it with the address (USER:PASSWORD@ before the host, or ?token=... after "
    f"the path), with the address in the environment variable {ADDRESSES}, or in ~/.netrc."
)


def _describe_failure(error: BaseException) -> str:
    """What another library says about a request that failed, without credentials, and what can be done about it."""
    status = getattr(error, "status", None)
    if isinstance(status, int):
        # aiohttp's error. Its own text would show the URL, with a token that may be in the query.
        answer = f"it answered {status} {getattr(error, 'message', '')}"
        return f"{answer}. {_LOGIN.rstrip('.')}" if status in (401, 403) else answer
    text = redact(str(error).rstrip(".")) or type(error).__name__
    if "CERTIFICATE_VERIFY_FAILED" in text:
        text += ". For an authority of your own, set the environment variable SSL_CERT_FILE to its certificate"
    return text


class _Files:
    """The files below an address, as fsspec reads them. Names that are shown are public."""

    def __init__(self, address: Address) -> None:
        base, _, query = address.public.partition("?")
        self._public, self._query = base.rstrip("/"), ""
        try:
            import fsspec

            if base.lower().startswith(("http://", "https://")):
                self._root, self._query = _with_login(base, address).rstrip("/"), address.query or query
                self._system = fsspec.filesystem("https", get_client=_web_session, skip_instance_cache=True)
            else:
                self._system, root = fsspec.core.url_to_fs(_with_login(address.public, address))
                self._root = str(root).rstrip("/")
        except ImportError as error:
            reason = f"needs more packages ({error}). pip install 'vernier[remote]'"
            raise ConfigError(f"Reading {address.public} {reason}") from None
        except Exception as error:  # some file systems connect at once, and each raises its own errors
            raise ConfigError(f"Cannot read {address.public}: {_describe_failure(error)}.") from None

    def name_of(self, name: str) -> str:
        """The public address of a file, for messages."""
        return f"{self._public}/{name}"

    def _path(self, name: str) -> str:
        # A query, such as a token, follows the name of each file.
        return f"{self._root}/{name}" + (f"?{self._query}" if self._query else "")

    def read(self, name: str, **span: int) -> bytes:
        return bytes(self._system.cat_file(self._path(name), **span))

    def open(self, name: str) -> Any:
        return self._system.open(self._path(name), "rb", block_size=_PIECE_BYTES)


def _with_login(public: str, address: Address) -> str:
    """An address with the user and password that belong to it."""
    if not (address.user or address.password):
        return public
    scheme, _, rest = public.partition("://")
    server, slash, path = rest.partition("/")
    # safe='': a password may contain a slash.
    login = f"{quote(address.user, safe='')}:{quote(address.password, safe='')}"
    return f"{scheme}://{login}@{server.rpartition('@')[2]}{slash}{path}"


async def _web_session(loop: Any = None, **options: Any) -> Any:
    """A session that uses the proxies of the environment and ~/.netrc, and stays on servers that were allowed."""
    import aiohttp
    from yarl import URL

    class Resolver(aiohttp.ThreadedResolver):
        async def resolve(self, host: str, port: int = 0, family: Any = socket.AF_INET) -> Any:
            # Checked where names are resolved, so that the connection goes to exactly the numbers that were checked.
            answers = await super().resolve(host, port, family)
            refuse_link_local(host, [answer["host"] for answer in answers])
            return answers

    async def on_redirect(_session: Any, _context: Any, request: Any) -> None:
        headers = request.response.headers
        target = URL(headers.get("Location") or headers.get("URI") or "")  # aiohttp follows both
        check_redirect(str(request.url), str(request.url.join(target)))

    trace = aiohttp.TraceConfig()
    trace.on_request_redirect.append(on_redirect)
    connector = aiohttp.TCPConnector(resolver=Resolver())
    # No limit for a whole download, because shards may be large; only silence counts as a failure.
    options.setdefault("timeout", aiohttp.ClientTimeout(total=None, sock_connect=STALL_S, sock_read=STALL_S))
    return aiohttp.ClientSession(loop=loop, connector=connector, trust_env=True, trace_configs=[trace], **options)


def refuse_link_local(host: str, numbers: Sequence[str]) -> None:
    """Raise ConfigError for a name that stands for a link-local number, such as that of a cloud's metadata service."""
    for number in numbers:
        # An IPv6 number may end in a zone (%eth0). The IPv4 form ::ffff:169.254.x.y is not link-local to ipaddress.
        address = ipaddress.ip_address(number.partition("%")[0])
        if (getattr(address, "ipv4_mapped", None) or address).is_link_local:
            raise ConfigError(
                f"The name {host} stands for {number}, where clouds keep the secrets of a machine. It is not read; if "
                "you need it, type the number instead of the name."
            )


class _OpenFile:
    """An open file, closed when the last reader drops it, even if it was removed from the cache before."""

    def __init__(self, path: Path) -> None:
        self.handle = os.open(path, os.O_RDONLY)

    def __del__(self) -> None:
        if hasattr(self, "handle"):
            os.close(self.handle)


def _sizes_and_times(home: Path, pattern: str) -> dict[Path, tuple[int, int]]:
    """The files of the cache, whatever their address; another process may be removing some."""
    files = {}
    for path in home.glob(pattern):
        try:
            status = path.stat()
        except FileNotFoundError:
            continue
        files[path] = (status.st_size, status.st_mtime_ns)
    return files


class _Damaged(Exception):
    """Content that is not what the index says."""


class _RemoteShards:
    """Reads shards through the cache."""

    def __init__(self, files: _Files, cache: Path, shards: list[Shard], limit_bytes: int) -> None:
        self._files, self._cache, self._limit = files, cache, limit_bytes
        self._shards = {s.name: s for s in shards}
        # A shard's lock lets one thread download it; `_lock` protects `_open` and the space. Order: first the shard's.
        self._locks = {s.name: threading.Lock() for s in shards}
        self._lock = threading.Lock()
        self._open: OrderedDict[str, _OpenFile] = OrderedDict()
        if limit_bytes:  # 0: the cache is off, and its files stay
            self._make_room(0)

    def read(self, shard: str, start: int, length: int) -> bytes:
        fits = self._shards[shard].bytes <= self._limit
        # The name keeps the file open while it is read, even if another thread evicts it.
        file = self._open_local(shard) if fits else None
        if file is None:
            return bytes(self._retry(lambda: self._read_range(shard, start, length), shard))
        return os.pread(file.handle, length, start)

    def _read_range(self, shard: str, start: int, length: int) -> bytes:
        content = self._files.read(shard, start=start, end=start + length)
        if len(content) != length:
            raise _Damaged(f"{len(content)} bytes came instead of {length}")
        return content

    def table(self, shard: str) -> Columns:
        name, entry = f"{shard}.table", self._shards[shard]
        path = self._cache / name
        with self._locks[shard]:
            if not path.is_file():
                with self._alone(name):
                    if not path.is_file():  # again: another process may have been faster
                        self._fetch(name, path, entry.table_sha256)
        try:
            columns, metadata = read_table(path)
            check_table(columns)
            problem = "" if metadata.get("bytes") == str(entry.bytes) else "does not belong to its shard"
        except (OSError, ValueError) as error:
            problem = f"cannot be read: {error}"
        if problem:
            # Removed, or the next attempt would find the same file.
            path.unlink(missing_ok=True)
            raise RunFailed(f"{self._files.name_of(name)} {problem}. Prepare the shards again.")
        return columns

    def table_problem(self, shard: Shard) -> str:
        """What is wrong with a shard's table in the cache; empty if its hash agrees or if it has none."""
        self.table(shard.name)
        same = not shard.table_sha256 or sha256_of_file(self._cache / f"{shard.name}.table") == shard.table_sha256
        return "" if same else "the content of its table, which has the labels, does not match its hash"

    def _open_local(self, shard: str) -> _OpenFile | None:
        """The shard in the cache, downloaded if need be; None while other downloads fill the cache."""
        # Not while it is downloaded: readers of other shards would wait for it.
        if file := self._opened(shard):
            return file
        with self._locks[shard]:
            # Again: another thread may have opened it while this one waited.
            if file := self._opened(shard):
                return file
            file = self._open_cached(shard) or self._download(shard)
            if file is not None:
                with self._lock:
                    self._open[shard] = file
        return file

    def _opened(self, shard: str) -> _OpenFile | None:
        with self._lock:
            if file := self._open.get(shard):
                self._open.move_to_end(shard)
            return file

    def _open_cached(self, shard: str) -> _OpenFile | None:
        """The shard in the cache, marked as just used; another process may remove it at any time."""
        path = self._cache / shard
        try:
            opened = _OpenFile(path)
            # Another size: the shard at the address was replaced since.
            if os.fstat(opened.handle).st_size != self._shards[shard].bytes:
                return None
            os.utime(path)
        except FileNotFoundError:
            return None
        return opened

    def _download(self, shard: str) -> _OpenFile | None:
        with self._alone(shard):
            if (file := self._open_cached(shard)) is not None:  # another process was faster
                return file
            entry = self._shards[shard]
            # One lock for all processes, or two of them would take the same free space.
            with self._lock, locked_file(self._cache.parent / ".lock"):
                if not self._make_room(entry.bytes):
                    return None
                with self._partial(shard).open("wb") as out:
                    out.truncate(entry.bytes)  # so that others count it
            return self._fetch(shard, self._cache / shard, entry.sha256, entry.bytes)

    @contextmanager
    def _alone(self, name: str) -> Iterator[None]:
        """Let no other process download this file meanwhile; what a killed one left of it is removed."""
        try:
            self._cache.mkdir(parents=True, exist_ok=True)
            with locked_file(self._cache / f".{name}.lock") as locked:
                # Without a lock, another process may be writing these files right now.
                for left in self._cache.glob(f".{name}.part-*") if locked else ():
                    left.unlink(missing_ok=True)
                yield
        except OSError as error:
            raise self._cannot_cache(error) from None

    def _partial(self, name: str) -> Path:
        return (self._cache / name).with_name(f".{name}.part-{os.getpid()}")

    def _make_room(self, needed: int) -> bool:
        """Remove the least recently used shards of every address: first those not open here, then open ones.

        Counts what is being downloaded, also by other processes; False if that leaves no room. The caller holds the
        lock. Downloads are listed first: one that ends meanwhile is counted twice, and not missed.
        """
        parts, cached = (_sizes_and_times(self._cache.parent, pattern) for pattern in ("*/.*.part-*", "*/*.tar"))
        for path, (_, changed_ns) in list(parts.items()):
            if wall_s() - changed_ns / 1e9 > _ABANDONED_S:
                path.unlink(missing_ok=True)
                del parts[path]
        in_use = [self._cache / name for name in self._open]
        unused = sorted(cached.keys() - set(in_use), key=lambda p: cached[p][1])
        total = sum(size for size, _ in (*cached.values(), *parts.values())) + needed
        # A removed file stays readable for those who have it open, so open ones come last only to save downloads.
        for path in (*unused, *(p for p in in_use if p in cached)):
            if total <= self._limit:
                break
            path.unlink(missing_ok=True)
            if path.parent == self._cache:
                self._open.pop(path.name, None)
            total -= cached[path][0]
        return total <= self._limit

    def _fetch(self, name: str, path: Path, sha256: str, size: int | None = None) -> _OpenFile:
        partial = self._partial(name)

        def copy() -> None:
            total, count = hashlib.sha256(), 0
            # r+b keeps the reserved size, which other processes count; wb would set it to 0.
            with self._files.open(name) as source, partial.open("r+b" if partial.exists() else "wb") as out:
                while piece := source.read(_PIECE_BYTES):
                    total.update(piece)
                    count += len(piece)
                    if size is not None and count > size:
                        break  # content without end must not fill the disk; the hash will differ
                    out.write(piece)
                out.truncate()
            if sha256 and total.hexdigest() != sha256:
                raise _Damaged("the content does not match its hash: it is damaged there, or was in transfer")

        try:
            self._retry(copy, name)
        except RunFailed:
            partial.unlink(missing_ok=True)
            raise
        # Opened before the rename: afterwards another process may remove it at any time.
        file = _OpenFile(partial)
        partial.replace(path)
        return file

    def _retry(self, action: Callable[[], T], name: str) -> T:
        """Try again after each of RETRY_WAITS_S, then raise RunFailed; at once where trying again changes nothing."""
        began_s = now_s()
        for attempt, wait_s in enumerate((*RETRY_WAITS_S, None), start=1):
            try:
                return action()
            except ConfigError as error:  # another server that was not allowed
                raise RunFailed(error.message) from None
            except Exception as error:  # every file system raises its own errors
                if isinstance(error, OSError) and error.errno in _FULL:
                    raise self._cannot_cache(error) from None
                # fsspec calls a server that is down a file that was not found.
                reason: BaseException = error
                while isinstance(reason, FileNotFoundError) and isinstance(reason.__cause__, Exception):
                    reason = reason.__cause__
                final = isinstance(reason, FileNotFoundError) or getattr(reason, "status", 0) in (401, 403, 404, 410)
                if wait_s is None or final:
                    tried = f" (tried {attempt} times in {now_s() - began_s:.0f} s)" if attempt > 1 else ""
                    raise RunFailed(
                        f"Cannot read {self._files.name_of(name)}: {_describe_failure(reason)}{tried}."
                    ) from None
                # 0.75 to 1.22 times the pause, by process: those that failed together do not return together.
                threading.Event().wait(wait_s * (0.75 + os.getpid() % 16 / 32))
        raise AssertionError

    def _cannot_cache(self, error: OSError) -> RunFailed:
        advice = f"Allow writing there, or switch the cache off with {_LIMIT_SETTING}=0 (or {LIMIT_VARIABLE}=0)."
        if error.errno in _FULL:
            advice = f"Set {_LIMIT_SETTING} (or the variable {LIMIT_VARIABLE}) to fewer GB, or free some space."
        return RunFailed(f"{error.strerror} for the cache of shards, {self._cache.parent}. {advice}")
