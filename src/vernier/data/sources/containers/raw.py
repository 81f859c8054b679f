"""Decoded images in one flat file, mapped into memory: only the crop is left to do.

`train.raw` has the pixels of one image after the other; `train.raw.table` the position, size and label of each.
Written by `data.preparing.raw`.
"""

import json
from pathlib import Path

import numpy as np

from vernier.data.decoding.decode import Image
from vernier.data.sources.base import NamedSource, Names
from vernier.errors import ConfigError

from .tables import read_table, table_path

FORMAT = "vernier-raw"
VERSION = "1"


class RawSource(NamedSource):
    """The images of a `.raw` file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            columns, metadata = read_table(table_path(path))
        except (OSError, ValueError, KeyError) as error:
            raise ConfigError(f"{path} has no readable table beside it: {error}. Prepare it again.") from None
        if metadata.get("format") != FORMAT or metadata.get("version") != VERSION:
            raise ConfigError(f"{path}: this Vernier reads {FORMAT} version {VERSION}. Prepare it again.")
        if path.stat().st_size != int(metadata["bytes"]):
            raise ConfigError(
                f"{path} has {path.stat().st_size:,} bytes instead of {int(metadata['bytes']):,}. Prepare it again."
            )
        self.classes = tuple(json.loads(metadata["classes"]))
        self.labels = np.array(columns["label"], dtype=np.int64)
        self._names = Names(columns["names"].tobytes(), columns["name_ends"])
        self._offsets_and_sizes = list(
            zip(columns["offset"].tolist(), columns["height"].tolist(), columns["width"].tolist(), strict=True)
        )
        # Mode "c" (copy on write): torch wants memory that it may write to.
        self._pixels = np.memmap(path, np.uint8, "c").view(np.ndarray)

    def image(self, index: int) -> Image:
        offset, height, width = self._offsets_and_sizes[index]
        return self._pixels[offset : offset + 3 * height * width].reshape(height, width, 3)

    def describe(self, index: int) -> str:
        return f"{self._path}[{index}] ({self._names[index]})"
