"""Writing files so that a crash leaves the old content or the new, and reading small JSON files.

Everybody who replaces a whole file does it through `replaced_atomically`; everybody who reads a small JSON file through
`read_json` or `read_record`, which turn any damage into one error.
"""

import contextlib
import hashlib
import json
import os
import shutil
import socket
import stat
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar

from vernier.addresses import redact_addresses
from vernier.errors import ConfigError
from vernier.records.codec import DamagedRecord, decode

T = TypeVar("T")
# Python gives up at 1,000 calls within each other; functions that walk a tree take several per level.
_DEEPEST = 64
DELETING = ".deleting-"
"""Start of the name of a folder that is being removed."""


class NotSynced(OSError):
    """A file is in place, but a power cut may undo that: its folder could not be synced."""


class DamagedFile(ConfigError):
    """A file that is there and is not what it should be: which one, and what is wrong with it."""


def sync_to_disk(path: Path) -> None:
    """Make the content of a file, or the renames in a folder, durable."""
    with naming(path):
        handle = os.open(path, os.O_RDONLY)  # a folder can only be opened for reading, and that is enough to sync
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


@contextlib.contextmanager
def naming(path: Path) -> Iterator[None]:
    """Errors of the operating system name the file also where a write or a sync of it was refused."""
    try:
        yield
    except OSError as error:
        if error.filename is None and error.errno is not None:
            error.filename = str(path)
        raise


@contextlib.contextmanager
def replaced_atomically(path: Path, *, sync: bool = True) -> Iterator[Path]:
    """A temporary path beside `path`: on success it is synced and replaces `path`, on an error it is removed.

    Without `sync` a crash of the machine may lose the file: for what can be made again.
    """
    # In the same folder: a rename is atomic only within a file system.
    # With the host in it: containers that share a folder have processes with the same number.
    host = zlib.crc32(socket.gethostname().encode())
    temporary = path.with_name(f".{path.name}.tmp-{os.getpid()}{host:010d}")
    try:
        # In a folder that others can write to, such as /tmp, somebody may have put a link under this name.
        temporary.unlink(missing_ok=True)
        temporary.touch(exist_ok=False)
        yield temporary
        # Before the rename: otherwise a power cut may leave the new name with no content.
        if sync:
            sync_to_disk(temporary)
        temporary.replace(path)
    except BaseException as error:
        if isinstance(error, OSError) and error.filename in (None, str(temporary)):
            error.filename = str(path)  # the error of a write names no file, and nobody knows the temporary one
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise
    # The file is whole and in place, so nothing is undone: only the rename itself may still be lost.
    if sync:
        try:
            sync_to_disk(path.parent)
        except OSError as error:
            raise NotSynced(error.errno, error.strerror, error.filename) from error


def entries(folder: Path) -> list[Path]:
    """What a folder holds, by name. Python repeats calls that a signal interrupted, but not this one."""
    while True:
        try:
            return sorted(folder.iterdir())
        except InterruptedError:
            continue


def temporaries(folder: Path) -> list[Path]:
    """What a killed process was writing here."""
    return list(folder.glob(".*.tmp-*"))


def remove_leftover(path: Path) -> None:
    """Remove what a killed process left behind, a file or a folder. Only while nobody else writes there."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def remove_folder(path: Path) -> None:
    """Remove a folder: first out of sight in one step, as without some of its files it would look damaged.

    What a kill leaves is hidden, its name begins with `DELETING`, and it is removed later.
    """
    doomed = path.with_name(f"{DELETING}{path.name}")
    # What a killed removal left: a folder that is not empty cannot be renamed over.
    shutil.rmtree(doomed, ignore_errors=True)
    path.rename(doomed)
    shutil.rmtree(doomed, ignore_errors=True)


@contextlib.contextmanager
def usual_mode(path: Path) -> Iterator[None]:
    """While entered, another library writes a file; afterwards the umask decides who may read it, as for all others.

    safetensors makes its files readable for their owner alone, also in a folder that a group shares.
    """
    # Created here to learn the mode: reading the umask would mean setting it, for all threads.
    path.touch()
    mode = stat.S_IMODE(path.stat().st_mode)
    yield
    path.chmod(mode)


def write_atomically(path: Path, content: str | bytes, *, sync: bool = True) -> None:
    """Replace a file so that a reader, or a crash, sees the old or the new content, never a part."""
    with replaced_atomically(path, sync=sync) as temporary:
        temporary.write_bytes(content.encode("utf-8") if isinstance(content, str) else content)


def write_json(path: Path, value: Any, *, sync: bool = True) -> None:
    """Replace a JSON file atomically, without credentials; a number that is not finite is a ValueError."""
    write_atomically(path, redact_addresses(json.dumps(value, indent=2, allow_nan=False)) + "\n", sync=sync)


def read_json(path: Path) -> Any:
    """A small JSON file. Raises FileNotFoundError where it is absent, DamagedFile where it cannot be read.

    Earlier versions recorded the credentials of addresses; they are left out.
    """
    try:
        return parse_json(redact_addresses(path.read_text(encoding="utf-8")))
    # Before OSError, of which it is one: absent is not damaged.
    except FileNotFoundError:
        raise
    except (OSError, ValueError) as error:
        raise DamagedFile(f"Cannot read {path}: {error}.") from None


def parse_json(text: str) -> Any:
    """The value of a JSON text. Raises ValueError, also where it is nested so deeply that nothing could walk it."""
    try:
        tree = json.loads(text)
        deep = _is_deeper(tree, _DEEPEST)
    except RecursionError:
        deep = True
    if deep:
        raise ValueError(f"it is nested in more than {_DEEPEST} levels")
    return tree


def _is_deeper(tree: Any, levels: int) -> bool:
    """Whether a value is nested in more levels than functions that call themselves on its parts could follow."""
    # One level after the other, without the recursion that a hostile file is meant to exhaust.
    level = [tree] if isinstance(tree, dict | list) else []
    for _ in range(levels):
        if not level:
            return False
        groups = (group.values() if isinstance(group, dict) else group for group in level)
        level = [value for group in groups for value in group if isinstance(value, dict | list)]
    return bool(level)


def read_object(path: Path) -> dict[str, Any]:
    """A small JSON file that holds an object. Raises like `read_json`."""
    tree = read_json(path)
    if not isinstance(tree, dict):
        raise DamagedFile(f"Cannot read {path}: it holds {type(tree).__name__}, not an object.")
    return tree


def read_record(cls: type[T], path: Path) -> T:
    """A small JSON file as a record. Raises like `read_json`."""
    try:
        return decode(cls, read_json(path))
    except DamagedRecord as error:
        raise DamagedFile(f"Cannot read {path}: {error}.") from None


def sha256_of_file(path: Path) -> str:
    """Hexadecimal."""
    with path.open("rb") as f:
        return hashlib.file_digest(f, "sha256").hexdigest()
