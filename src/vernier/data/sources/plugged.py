"""Layouts of data sets that plug in: entry points of `vernier.data_layouts`, such as TFRecord files."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import field
from pathlib import Path
from typing import Any

from vernier.frozen import frozen
from vernier.plugins import load_group

from .base import BoxSource, Source


@frozen
class DataLayout:
    """How a layout is read and written. Functions that open give None for a folder that is not in this layout."""

    open_classes: Callable[[Path, str], Source | None]
    """The split of a classification set in a folder."""
    open_boxes: Callable[[Path, str], BoxSource | None]
    """The split of a detection set in a folder."""
    write: Callable[..., Any]
    """Write a split: `write(source, out, split, files=, workers=, progress=)`, and give its `PackedSplit`."""
    files: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """Usual numbers of files by kind of set and split; others follow from the number of images."""


def open_plugged_classes(root: Path, split: str) -> Source | None:
    """The split of a folder in the first layout that recognizes it; None if none does."""
    return next((source for each in _layouts() if (source := each.open_classes(root, split)) is not None), None)


def open_plugged_boxes(root: Path, split: str) -> BoxSource | None:
    """The same for a detection set."""
    return next((source for each in _layouts() if (source := each.open_boxes(root, split)) is not None), None)


def _layouts() -> Iterable[DataLayout]:
    return load_group("vernier.data_layouts", DataLayout).values()
