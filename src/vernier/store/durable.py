"""Writing files so that a crash leaves the old content or the new, and reading small JSON files.

Everybody who replaces a whole file does it through `replaced_atomically`; everybody who reads a small JSON file through
`read_json` or `read_record`, which turn any damage into one error.
"""

import contextlib
import hashlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar

from vernier.errors import ConfigError
from vernier.records.codec import DamagedRecord, decode

T = TypeVar("T")


class DamagedFile(ConfigError):
    """A file that is there and is not what it should be: which one, and what is wrong with it."""


def sync_to_disk(path: Path) -> None:
    """Make the content of a file, or the renames in a folder, durable."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextlib.contextmanager
def replaced_atomically(path: Path, *, sync: bool = True) -> Iterator[Path]:
    """A temporary path beside `path`: on success it is synced and replaces `path`, on an error it is removed.

    Without `sync` a crash of the machine may lose the file: for what can be made again.
    """
    temporary = path.with_name(f".{path.name}.tmp-{os.getpid()}")
    try:
        yield temporary
        if sync:
            sync_to_disk(temporary)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    if sync:
        sync_to_disk(path.parent)


def write_atomically(path: Path, content: str | bytes, *, sync: bool = True) -> None:
    """Replace a file so that a reader, or a crash, sees the old or the new content, never a part."""
    with replaced_atomically(path, sync=sync) as temporary:
        temporary.write_bytes(content.encode("utf-8") if isinstance(content, str) else content)


def write_json(path: Path, value: Any, *, sync: bool = True) -> None:
    """Replace a JSON file atomically; a number that is not finite is a ValueError."""
    write_atomically(path, json.dumps(value, indent=2, allow_nan=False) + "\n", sync=sync)


def read_json(path: Path) -> Any:
    """A small JSON file. Raises FileNotFoundError where it is absent, DamagedFile where it cannot be read."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise
    except (OSError, ValueError, RecursionError) as error:
        raise DamagedFile(f"Cannot read {path}: {error}.") from None


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
