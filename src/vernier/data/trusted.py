"""Files of the cache that are loaded: only those that nobody else can have written, and that are as they were made.

What is loaded from the cache can be code (a compiler's libraries) or decide results (weights, networks for engines). So
folders are this user's alone, owners and modes are checked up to the root, links are refused, and the SHA-256 of every
file is recorded when it is made and compared before it is loaded. A damaged file is made again.
"""

import os
import stat
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from vernier.errors import ConfigError
from vernier.store import lock
from vernier.store.durable import (
    DamagedFile,
    read_object,
    remove_leftover,
    replaced_atomically,
    sha256_of_file,
    temporaries,
    write_atomically,
    write_json,
)

from .unfinished import locked_file


def private_folder(folder: Path) -> Path:
    """The folder, made for this user alone if it is absent. Raises ConfigError if others can change what is in it."""
    for missing in reversed([path for path in (folder, *folder.parents) if not path.exists()]):
        missing.mkdir(mode=0o700, exist_ok=True)
    # Both: a link on the way could be replaced, and so could what it leads to.
    parents = {*folder.absolute().parents, *folder.resolve().parents}
    for path in (folder, *(parent for parent in parents if not parent.is_symlink())):
        if reason := _why_untrusted(path):
            raise ConfigError(
                f"Nothing is loaded from {folder}, as others could have written it: {path} {reason}. Set VERNIER_HOME "
                "to a folder that belongs to you and that only you can write to (chmod 700)."
            )
    return folder


def is_trusted(path: Path) -> bool:
    """Whether a file is there and nobody else can have written it."""
    try:
        return path.is_file() and not _why_untrusted(path)
    except OSError:
        return False


def _why_untrusted(path: Path) -> str:
    status = path.lstat()
    if stat.S_ISLNK(status.st_mode):
        return "is a link"
    if status.st_uid not in (0, os.getuid()):
        return f"belongs to user {status.st_uid}"
    # In a folder such as /tmp, with the sticky bit, nobody can replace what belongs to somebody else.
    shared = status.st_mode & (stat.S_IWGRP | stat.S_IWOTH) and not status.st_mode & stat.S_ISVTX
    return "can be written by others" if shared else ""


def cached_file(path: Path, make: Callable[[Path], None]) -> Path:
    """A file of the cache; made first if it is not there, or not as it was when it was made. Others wait meanwhile."""
    folder = private_folder(path.parent)
    with locked_file(folder / ".lock"):
        for leftover in temporaries(folder):
            remove_leftover(leftover)
        if not is_sound(path):
            path.unlink(missing_ok=True)
            record_of(path).unlink(missing_ok=True)
            with replaced_atomically(path) as temporary:
                make(temporary)
            is_sound(path, new=True)
    return path


def is_sound(path: Path, *, new: bool = False) -> bool:
    """Whether nobody else can have written a file, and it has the hash noted beside it (`new`: from now)."""
    noted = record_of(path)
    if new:
        write_atomically(noted, sha256_of_file(path))
    return is_trusted(path) and is_trusted(noted) and noted.read_text(errors="replace") == sha256_of_file(path)


def record_of(path: Path) -> Path:
    """The file with the hash of another."""
    return path.with_name(f"{path.name}.sha256")


class SealedFolder:
    """A folder that another library fills. Files that were not sealed, or that changed since, are removed at first."""

    def __init__(self, folder: Path) -> None:
        self.folder, self._seals = private_folder(folder), folder.with_name(f"{folder.name}.json")
        # Held as long as this process lives. Who cannot have it alone leaves the folder to those who have checked it.
        self._in_use = os.open(folder.with_name(f".{folder.name}.lock"), os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        with suppress(OSError):
            if lock(self._in_use):
                self._remove_others()
        with suppress(OSError):
            lock(self._in_use, shared=True)

    def _remove_others(self) -> None:
        for leftover in self._seals.parent.glob(f".{self._seals.name}.tmp-*"):
            remove_leftover(leftover)
        try:
            sealed = read_object(self._seals) if is_trusted(self._seals) else {}
        except DamagedFile:
            sealed = {}
        for path in self._paths():
            if sealed.get(self._name(path)) != (sha256_of_file(path) if is_trusted(path) else ""):
                path.unlink()

    def seal(self) -> None:
        """Note the hashes of all files that are there."""
        with suppress(OSError):  # a full disk: they are made again
            write_json(self._seals, {self._name(path): sha256_of_file(path) for path in self._paths()})

    def _paths(self) -> list[Path]:
        return [path for path in self.folder.rglob("*") if path.is_symlink() or not path.is_dir()]

    def _name(self, path: Path) -> str:
        return str(path.relative_to(self.folder))
