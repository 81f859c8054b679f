"""Images inside a tar file, read in place at known positions, which `data.preparing.imagenet` finds."""

from pathlib import Path

from vernier.data.sources.base import EncodedSource, Indices, NamedSource, Names, OpenFiles


class TarImages(EncodedSource, NamedSource):
    """Images of a tar, or of tars inside it. `ranges` has the position and length of each image in bytes."""

    def __init__(
        self, path: Path, ranges: list[tuple[int, int]], names: list[str], labels: Indices, classes: tuple[str, ...]
    ) -> None:
        self._path, self._ranges, self._names = path, ranges, Names.of(names)
        self.labels, self.classes = labels, classes
        self._files = OpenFiles()

    def read(self, index: int) -> bytes:
        return self._files.read(str(self._path), *self._ranges[index])

    def name(self, index: int) -> str:
        return self._names[index]

    def describe(self, index: int) -> str:
        return f"{self._path}:{self._names[index]}"
