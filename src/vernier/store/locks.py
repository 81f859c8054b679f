"""Locks of files: the only module that takes them. The system releases a lock when its process ends, however it ends.

A lock belongs to an open file, so it also holds between threads that open the file twice, and over NFS as far as the
server has locks. What a locked file is called, what it contains and whether it stays is up to whoever locks it.
"""

import fcntl
from pathlib import Path
from typing import IO


def lock(file: IO[str] | int, *, shared: bool = False, wait: bool = False) -> bool:
    """Take the lock of an open file; False, at once unless `wait`, where another process holds it.

    Processes with a `shared` lock keep out only those that want it alone. Raises OSError where the file system has no
    locks.
    """
    try:
        fcntl.flock(file, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        return False
    return True


def is_locked(path: Path) -> bool:
    """Whether a process holds the lock of this file; also where that cannot be found out."""
    try:
        with path.open("r") as file:
            return not lock(file, shared=True)
    except FileNotFoundError:
        return False
    except OSError:
        return True
