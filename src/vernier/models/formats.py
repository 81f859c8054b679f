"""Weights in files of other frameworks, which plug in: how such files are found and read.

A package offers one as an entry point of the group `vernier.weight_formats` that names a `WeightFormat`. Files of
safetensors and torch are read by `weights` itself.
"""

from collections.abc import Callable
from pathlib import Path

from vernier.frozen import frozen
from vernier.plugins import load_group

from .naming import State

GROUP = "vernier.weight_formats"


@frozen
class WeightFormat:
    """A format of weights files. `about` is for people: what a file of this format is called."""

    about: str
    find: Callable[[Path], Path | None]
    """What to read, if a path names something in this format: a file, the common start of several, or their folder."""
    read: Callable[[Path], State]
    """The tensors, with the names that Vernier knows. Raises ConfigError for a file that cannot be read."""


def find_format(path: Path) -> tuple[WeightFormat, Path] | None:
    """The format that reads a path, and what to read; None if no format that plugs in does."""
    for each in load_group(GROUP, WeightFormat).values():
        if (file := each.find(path)) is not None:
            return each, file
    return None
