"""Decoded images in one flat file, mapped into memory: nothing is left to do but the crop.

`train.raw` holds the pixels of one image after the other; `train.raw.table` where each begins, its size and its label.
Writing is `data.pack`'s business.
"""

import json
from pathlib import Path

import numpy as np

from vernier.data.decoding.decode import Croppable, Image
from vernier.data.sources.base import Indices, Names, Source, fingerprint_classes, fingerprint_of
from vernier.data.sources.containers.tables import read_table, table_path
from vernier.errors import ConfigError

FORMAT = "vernier-raw"
VERSION = "1"


class RawSource(Source):
    """The images of a `.raw` file."""

    labels: Indices

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            columns, about = read_table(table_path(path))
        except (OSError, ValueError, KeyError) as error:
            raise ConfigError(f"{path} has no readable table beside it: {error}. Prepare it again.") from None
        if about.get("format") != FORMAT or about.get("version") != VERSION:
            raise ConfigError(f"{path}: this Vernier reads {FORMAT} version {VERSION}. Prepare it again.")
        if path.stat().st_size != int(about["bytes"]):
            raise ConfigError(
                f"{path} has {path.stat().st_size:,} bytes instead of {int(about['bytes']):,}. Prepare it again."
            )
        self.classes = tuple(json.loads(about["classes"]))
        self.labels = np.array(columns["label"], dtype=np.int64)
        self._names = Names(columns["names"].tobytes(), columns["name_ends"])
        self._places = list(
            zip(columns["offset"].tolist(), columns["height"].tolist(), columns["width"].tolist(), strict=True)
        )
        self._pixels = np.memmap(path, np.uint8, "c").view(np.ndarray)  # "c": torch wants memory it may write to

    def __len__(self) -> int:
        return len(self.labels)

    def image(self, index: int) -> Image:
        at, height, width = self._places[index]
        return self._pixels[at : at + 3 * height * width].reshape(height, width, 3)

    def lazy_image(self, index: int) -> Croppable:
        return self.image(index)

    def describe(self, index: int) -> str:
        return f"{self._path}[{index}] ({self._names[index]})"

    def fingerprint(self) -> str:
        return fingerprint_of(self._names.joined, self.labels.tobytes(), fingerprint_classes(self.classes))
