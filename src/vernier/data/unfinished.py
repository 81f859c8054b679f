"""A folder that is being written says so, until it is whole: what an interrupted command left is never taken for a data set."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from vernier.errors import ConfigError, RunFailed, of_the_machine

MARK = ".unfinished"


@contextmanager
def being_written(folder: Path, by: str) -> Iterator[None]:
    """Mark the folder while `by`, a command, writes into it. The mark stays when that fails, unless nothing was written yet.

    Raises ConfigError when there can be no such folder, RunFailed when the machine refuses, such as with a full disk.
    """
    mark = folder / MARK
    was_there, was_marked = folder.exists(), mark.exists()
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
            if not was_there:
                folder.rmdir()
        raise
    except OSError as error:
        if not (refused := of_the_machine(error)):
            raise
        raise RunFailed(
            f"{refused}. {folder} is not whole, and nothing will take it for that; see to it and give the same command again."
        ) from None
    mark.unlink()


def is_unfinished(folder: Path) -> bool:
    return (folder / MARK).is_file()


def refuse_unfinished(folder: Path) -> None:
    """Raises ConfigError for a folder that is marked."""
    if is_unfinished(folder):
        by = (folder / MARK).read_text(encoding="utf-8", errors="replace").strip() or "vernier data"
        raise ConfigError(
            f"{folder} is not whole: `{by}` did not finish, or is still at work. Give that command again, or remove what it wrote."
        )
