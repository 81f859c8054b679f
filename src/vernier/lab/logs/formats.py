"""Formats of other tools' logs, which plug in: how each is recognized, read and written.

A package offers one as an entry point of the group `vernier.log_formats` that names a `LogFormat`. Those of Vernier are
in `vernier.compat.logs` and, of device studies, `vernier.lab.logs`.
"""

from collections.abc import Callable
from pathlib import Path

from vernier.frozen import frozen
from vernier.plugins import load_group

from .model import RunLog

GROUP = "vernier.log_formats"


@frozen
class LogFormat:
    """A format of logs. What it cannot do is None; `reads` is for people: what it reads, in a list of all formats."""

    reads: str = ""
    recognizes: Callable[[str], bool] | None = None
    """Whether a text is a log in this format; also asked about parts of files and logs that were cut off."""
    read: Callable[[Path, str], RunLog] | None = None
    """The log in a text that was recognized. Raises ConfigError for one that cannot be used."""
    about: str = ""
    """What a text is that was recognized and cannot be read as the log of a run, as the rest of a sentence."""
    write: Callable[[RunLog], str] | None = None
    """A whole file in this format."""
    write_folder: Callable[[RunLog, Path], list[Path]] | None = None
    """The same for a format of several files: writes them and returns their paths."""
    one_document: bool = False
    """A log is one JSON document, and not lines."""
    each_step: bool = False
    """It has a time for every step, so that logs without such times cannot be written."""
    order: int = 0
    """Formats are tried in this order: one that recognizes much of what others write comes last."""


def formats() -> dict[str, LogFormat]:
    """Every format by name, in the order in which they are tried."""
    # By name within an order, so that the result does not depend on which package was installed first.
    loaded = load_group(GROUP, LogFormat)
    return dict(sorted(loaded.items(), key=lambda item: (item[1].order, item[0])))


def reader_of(text: str, *, one_document: bool = False) -> Callable[[Path, str], RunLog] | None:
    """What reads this text as the log of a run; None if nothing does."""
    for each in formats().values():
        if each.read and each.recognizes and each.one_document == one_document and each.recognizes(text):
            return each.read
    return None
