"""The mark of a folder that a command has not finished: `data.unfinished` refuses such a folder as a data set."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from vernier.data.unfinished import MARK
from vernier.errors import ConfigError, RunFailed, environment_error
from vernier.store.durable import sync_to_disk


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
    # After a power cut the mark must not be gone while content is missing: all of it, with one call for many files.
    os.sync()
    mark.unlink()
    sync_to_disk(folder)
