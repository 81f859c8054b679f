"""Decoded images in one flat file, mapped into memory: only the crop is left to do.

`train.raw` has the pixels of one image after the other; `train.raw.table` the position, size and label of each.
Written by `compat.preparing.packing`.
"""

from pathlib import Path

import numpy as np

from vernier.data.decoding.decode import BadImage, Image
from vernier.data.sources.base import Files, NamedSource, Names
from vernier.data.sources.values import UNREADABLE, check_class_names, parse_json
from vernier.errors import ConfigError
from vernier.store.durable import sha256_of_file

from .tables import CONTENT, hash_content, read_table, table_path

FORMAT = "vernier-raw"
VERSION = "1"
_POSITIONS = ("offset", "height", "width")


class RawSource(NamedSource):
    """The images of a `.raw` file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            columns, metadata = read_table(table_path(path))
            if metadata.get("format") != FORMAT or metadata.get("version") != VERSION:
                raise ConfigError(f"{path}: this Vernier reads {FORMAT} version {VERSION}. Prepare it again.")
            size, self._sha256 = int(metadata["bytes"]), metadata.get("sha256")
            self._table_is_whole = metadata[CONTENT] == hash_content(columns, metadata) if CONTENT in metadata else None
            self.classes = check_class_names(parse_json(metadata["classes"]))
            self.labels = np.array(columns["label"], dtype=np.int64)
            self._names = Names(columns["names"].tobytes(), columns["name_ends"])
            self._offsets_and_sizes = list(zip(*(columns[key].tolist() for key in _POSITIONS), strict=True))
            if not len(self.labels) == len(self._names) == len(self._offsets_and_sizes):
                raise ValueError("its columns are of unequal lengths")
        except ConfigError:
            raise
        except (OSError, *UNREADABLE) as error:
            raise ConfigError(f"{path} has no readable table beside it: {error}. Prepare it again.") from None
        if path.stat().st_size != size:
            raise ConfigError(f"{path} has {path.stat().st_size:,} bytes instead of {size:,}. Prepare it again.")
        if len(self.labels) and not 0 <= self.labels.min() <= self.labels.max() < len(self.classes):
            raise ConfigError(
                f"{path}: its labels go from {self.labels.min()} to {self.labels.max()}, but there are "
                f"{len(self.classes):,} classes. The table beside it is damaged: prepare it again."
            )
        # Mode "c" (copy on write): torch wants memory that it may write to.
        self._pixels = np.memmap(path, np.uint8, "c").view(np.ndarray)

    def image(self, index: int) -> Image:
        offset, height, width = self._offsets_and_sizes[index]
        if not 0 < 3 * height * width <= len(self._pixels) - offset:
            raise BadImage("the table is damaged: it lies beyond the end of the file")
        return self._pixels[offset : offset + 3 * height * width].reshape(height, width, 3)

    def problems(self) -> list[str]:
        """List the damage that hashes show in the pixels and in the table."""
        damaged = [] if self._table_is_whole is not False else ["the content of its table, with the labels,"]
        if self._sha256 is not None and sha256_of_file(self._path) != self._sha256:
            damaged.append("the content of its pixels")
        return [f"{self._path.name}: {what} does not match its hash" for what in damaged]

    def describe_coverage(self) -> str:
        """Describe what is not covered by a hash; empty if everything is covered."""
        if self._sha256 is not None and self._table_is_whole is not None:
            return ""
        return f"{self._path}: pixels and labels are covered by no hash, because an earlier version prepared them"

    def files(self) -> Files:
        return 1, lambda _: str(self._path)

    def describe(self, index: int) -> str:
        return f"{self._path}[{index}] ({self._names[index]})"
