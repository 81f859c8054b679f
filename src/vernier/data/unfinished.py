"""Marks a folder while a command writes a data set into it, so that what an interrupted command left is never used.

`data.preparing` writes the mark, `data.sources` refuses folders that have it.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from vernier.errors import ConfigError, RunFailed, environment_error

MARK = ".unfinished"


@contextmanager
def mark_unfinished(folder: Path, by: str) -> Iterator[None]:
    """Mark the folder while the command `by` writes into it. If that fails, the mark stays unless nothing was written.

    Raises ConfigError if the folder cannot be made, and RunFailed for errors of the machine such as a full disk.
    """
    mark = folder / MARK
    existed, was_marked = folder.exists(), mark.exists()
    try:
        folder.mkdir(parents=True, exist_ok=True)
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
