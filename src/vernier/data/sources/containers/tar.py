"""Images inside a tar file, read in place at known positions, which `data.preparing.prepare` finds."""

import os
from pathlib import Path

from vernier.data.sources.base import EncodedSource, Indices, Names, fingerprint_classes, fingerprint_of


class TarImages(EncodedSource):
    """Images of a tar, or of tars inside it. `ranges` has the position and length of each image in bytes."""

    labels: Indices

    def __init__(
        self, path: Path, ranges: list[tuple[int, int]], names: list[str], labels: Indices, classes: tuple[str, ...]
    ) -> None:
        self._path, self._ranges, self._names = path, ranges, Names.of(names)
        self.labels, self.classes = labels, classes
        self._handle = os.open(path, os.O_RDONLY)

    def __len__(self) -> int:
        return len(self._ranges)

    def read(self, index: int) -> bytes:
        offset, size = self._ranges[index]
        return os.pread(self._handle, size, offset)

    def name(self, index: int) -> str:
        return self._names[index]

    def describe(self, index: int) -> str:
        return f"{self._path}:{self._names[index]}"

    def fingerprint(self) -> str:
        return fingerprint_of(self._names.joined, self.labels.tobytes(), fingerprint_classes(self.classes))

    def __del__(self) -> None:
        os.close(self._handle)
