"""Writes the page of runs to a file, for `vernier report` and for Python."""

from collections.abc import Sequence
from pathlib import Path

from vernier.errors import ConfigError
from vernier.frozen import frozen
from vernier.references import given
from vernier.store import write_atomically

from .build import Page, build
from .collect import collect, smoke_runs
from .subjects import Subject


@frozen
class WrittenPage:
    """A page that was written: its file and content, its subjects, and the smoke runs that were left out."""

    path: Path
    page: Page
    subjects: tuple[Subject, ...]
    left_out: tuple[Path, ...]


def choose_file(paths: Sequence[Path], out: Path | None) -> Path:
    """The file of a page: as named, in the folder that is named, or report.html in the run or the current folder."""
    if out is not None:
        return out / "report.html" if out.is_dir() else out
    return (paths[0] if len(paths) == 1 and paths[0].is_dir() else Path()) / "report.html"


def write_page(paths: Sequence[Path], out: Path | None) -> WrittenPage:
    """Write one page about all paths; an older one is replaced. Raises ConfigError."""
    target = choose_file(paths, out)
    subjects, left_out = collect(paths, target.resolve().parent), smoke_runs(paths)
    page = build(subjects, left_out)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(target, page.html())
    except OSError as error:
        raise ConfigError(f"Cannot write {given('out', target)}: {error.strerror}. Choose another file.") from None
    return WrittenPage(path=target, page=page, subjects=tuple(subjects), left_out=tuple(left_out))
