"""Sound files that several targets begin with: those of the golden run directories, and files that code writes."""

import tempfile
from collections.abc import Callable
from pathlib import Path

from .base import Files

GOLDEN = Path(__file__).parents[2] / "golden" / "0.1"


def golden(path: str) -> bytes:
    """A file that version 0.1 wrote."""
    return (GOLDEN / path).read_bytes()


def golden_run(name: str, *patterns: str, largest: int = 20_000) -> Files:
    """The files of a golden folder that match, without large ones."""
    root = GOLDEN / name
    paths = sorted({p for pattern in patterns for p in root.glob(pattern) if p.is_file()})
    return {p.relative_to(root).as_posix(): p.read_bytes() for p in paths if p.stat().st_size <= largest}


def written(write: Callable[[Path], object]) -> Files:
    """The files that `write` makes in a folder."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        write(root)
        return {p.relative_to(root).as_posix(): p.read_bytes() for p in sorted(root.rglob("*")) if p.is_file()}
