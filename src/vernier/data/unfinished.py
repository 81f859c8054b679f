"""Marks and locks a folder while a command writes a data set into it.

The mark stays when the command is interrupted, so that what it left is never used; the lock vanishes with its process,
so that two commands never write into one folder. `compat.preparing` writes the mark, `data.sources` refuses folders
that have it.
"""

import errno
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from vernier.errors import ConfigError
from vernier.store import lock

MARK, LOCK = ".unfinished", ".lock"
_WITHOUT_LOCKS = (errno.ENOSYS, errno.ENOTSUP, errno.ENOLCK)


@contextmanager
def locked_folder(folder: Path, by: str, *, wait: bool = False) -> Iterator[str]:
    """Let no other command write into the folder. Gives a note where the file system has no locks, otherwise "".

    The folder is made; it is removed again if nothing was written. Raises ConfigError where another process holds the
    lock, with its command (`wait`: waits if that is the same command), or if the folder cannot be made.
    """
    path, existed, holder = folder / LOCK, folder.exists(), ""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if (handle := _take_lock(path)) is None:
            with suppress(FileNotFoundError):  # it has just finished
                holder = path.read_text(errors="replace")
            handle = _take_lock(path, wait and by in (holder or by))
    except OSError as error:
        if error.errno not in _WITHOUT_LOCKS:
            raise ConfigError(f"Cannot write into the folder {folder}: {error.strerror}.") from None
        path.unlink(missing_ok=True)
        yield f"the file system of {folder} has no locks: take care that no other command writes there"
        return
    if handle is None:
        raise ConfigError(
            f"{folder} is being written by {holder.strip() or 'another command'}. Wait for it, or stop it first."
        )
    try:
        os.pwrite(handle, f"`{by}` (process {os.getpid()} on {socket.gethostname()})\n".encode(), 0)
        yield ""
    finally:
        _release(path, handle)
        if not existed:
            with suppress(OSError):
                folder.rmdir()


@contextmanager
def locked_file(path: Path, *, wait: bool = True) -> Iterator[bool]:
    """Make other processes that lock the same file wait. Gives False, at once, where the file system has no locks.

    The file is made, and removed at the end. Raises OSError where that is not possible; BlockingIOError, unless this
    one is to `wait`, while another process has the lock.
    """
    try:
        handle = _take_lock(path, wait)
    except OSError as error:
        if error.errno not in _WITHOUT_LOCKS:
            raise
        yield False
        return
    if handle is None:
        raise BlockingIOError(errno.EAGAIN, "another process has the lock", str(path))
    try:
        yield True
    finally:
        _release(path, handle)


def _release(path: Path, handle: int) -> None:
    """Remove the file of a lock, and give the lock back."""
    # On a full disk or network, closing may fail too: that is no error of what was done under the lock.
    with suppress(OSError):
        path.unlink(missing_ok=True)
    with suppress(OSError):
        os.close(handle)


def _take_lock(path: Path, wait: bool = False) -> int | None:
    """The open file with its lock; None where another process holds it."""
    while True:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o644)
        try:
            free = lock(handle, wait=wait)
        except OSError:
            os.close(handle)
            raise
        if not free:
            os.close(handle)
            return None
        # Another process may have finished, and removed the file, between the two calls: then its lock means nothing.
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(handle), path.stat()):
                os.ftruncate(handle, 0)
                return handle
        os.close(handle)


def is_unfinished(folder: Path) -> bool:
    """Whether the folder is marked."""
    return (folder / MARK).is_file()
