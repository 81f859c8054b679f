"""Marks and locks a folder while a command writes a data set into it.

The mark stays when the command is interrupted, so that what it left is never used; the lock vanishes with its process,
so that two commands never write into one folder. `data.preparing` writes the mark, `data.sources` refuses folders that
have it.
"""

import errno
import fcntl
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from vernier.errors import ConfigError, RunFailed, environment_error

MARK, LOCK = ".unfinished", ".lock"
_WITHOUT_LOCKS = (errno.ENOSYS, errno.ENOTSUP, errno.ENOLCK)


@contextmanager
def locked_folder(folder: Path, by: str, *, wait: bool = False) -> Iterator[str]:
    """Let no other command write into the folder. Gives a note where the file system has no locks, otherwise "".

    The folder is made; it is removed again if nothing was written. Raises ConfigError where another process holds the
    lock, with its command (`wait`: waits for it instead), or if the folder cannot be made.
    """
    path, existed = folder / LOCK, folder.exists()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle = _take_lock(path, wait=wait)
    except OSError as error:
        if error.errno not in _WITHOUT_LOCKS:
            raise ConfigError(f"Cannot write into the folder {folder}: {error.strerror}.") from None
        path.unlink(missing_ok=True)
        yield f"the file system of {folder} has no locks: take care that no other command writes there"
        return
    if handle is None:
        holder = ""
        with suppress(FileNotFoundError):  # it has just finished
            holder = path.read_text(encoding="utf-8", errors="replace").strip()
        raise ConfigError(f"{folder} is being written by {holder or 'another command'}. Wait for it, or stop it first.")
    try:
        os.pwrite(handle, f"`{by}` (process {os.getpid()} on {socket.gethostname()})\n".encode(), 0)
        yield ""
    finally:
        path.unlink(missing_ok=True)
        os.close(handle)
        if not existed:
            with suppress(OSError):
                folder.rmdir()


@contextmanager
def locked_file(path: Path) -> Iterator[bool]:
    """Make other processes that lock the same file wait. Gives False, at once, where the file system has no locks.

    The file is made, and removed at the end. Raises OSError where that is not possible.
    """
    try:
        handle = _take_lock(path, wait=True)
    except OSError as error:
        if error.errno not in _WITHOUT_LOCKS:
            raise
        yield False
        return
    assert handle is not None
    try:
        yield True
    finally:
        path.unlink(missing_ok=True)
        os.close(handle)


def _take_lock(path: Path, *, wait: bool) -> int | None:
    """The open file with its lock; None where another process holds it."""
    while True:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o644)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            os.close(handle)
            return None
        except OSError:
            os.close(handle)
            raise
        # Another process may have finished, and removed the file, between the two calls: then its lock means nothing.
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(handle), path.stat()):
                os.ftruncate(handle, 0)
                return handle
        os.close(handle)


@contextmanager
def mark_unfinished(folder: Path, by: str) -> Iterator[None]:
    """Mark the folder while the command `by` writes into it. If that fails, the mark stays unless nothing was written.

    Raises ConfigError if the folder cannot be made, and RunFailed for errors of the machine such as a full disk.
    """
    mark = folder / MARK
    existed, was_marked = folder.exists(), mark.exists()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if mark.is_symlink():
            mark.unlink()
        mark.write_text(by + "\n", encoding="utf-8")
        before = set(folder.iterdir())
    except OSError as error:
        raise ConfigError(f"Cannot write into the folder {folder}: {error.strerror}.") from None
    try:
        yield
    except ConfigError:
        if not was_marked and set(folder.iterdir()) == before:
            mark.unlink()
            if not existed:
                folder.rmdir()
        raise
    except OSError as error:
        if not (reason := environment_error(error)):
            raise
        raise RunFailed(
            f"{reason}. {folder} is incomplete and will not be used as a data set. "
            "Fix the cause and run the same command again."
        ) from None
    mark.unlink()


def is_unfinished(folder: Path) -> bool:
    """Whether the folder is marked."""
    return (folder / MARK).is_file()


def refuse_unfinished(folder: Path) -> None:
    """Raise ConfigError if the folder is marked."""
    if is_unfinished(folder):
        by = (folder / MARK).read_text(encoding="utf-8", errors="replace").strip() or "vernier data"
        raise ConfigError(
            f"{folder} is incomplete: `{by}` did not finish, or is still running. "
            "Run that command again, or remove the folder."
        )
