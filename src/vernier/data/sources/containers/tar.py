"""Images inside a tar file, read in place at known positions, and the samples of a WebDataset tar.

`data.preparing.imagenet` finds the positions in ImageNet's tars; `read_samples` those in any other, and refuses a tar
that ends early, is compressed, or hides files behind links that lead nowhere.
"""

import itertools
import os
import posixpath
import tarfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from vernier.data.sources.base import EncodedSource, Indices, NamedSource, Names, OpenFiles
from vernier.data.sources.folder import IMAGE_SUFFIXES
from vernier.data.sources.values import UNREADABLE
from vernier.errors import ConfigError
from vernier.frozen import frozen

_COMPRESSED = {b"\x1f\x8b": "gzip", b"BZ": "bzip2", b"\xfd7": "xz", b"\x28\xb5": "zstd"}
_PIECE = 1 << 20
LABEL_SUFFIXES = (".cls", ".json")
SAMPLE_SUFFIXES = IMAGE_SUFFIXES.union(LABEL_SUFFIXES)
TAR_ERRORS = (tarfile.TarError, OSError, EOFError, MemoryError, zlib.error, *UNREADABLE)
"""What tarfile raises for a damaged file."""


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


# -------------------------------------------------------------------------------------------------- samples of any tar


@frozen
class Member:
    """A file in an open tar; for a link, the file that it is a link to."""

    name: str
    offset: int
    size: int
    file: BinaryIO

    def read(self, limit_bytes: int | None = None) -> bytes:
        """The content, or its first bytes."""
        self.file.seek(self.offset)
        return self.file.read(self.size if limit_bytes is None else min(self.size, limit_bytes))


def read_samples(path: Path) -> Iterator[tuple[str, list[Member]]]:
    """The key and the members of each sample: neighbouring files whose names agree up to the first dot.

    Hidden files, such as macOS's `._name`, belong to none. Raises ConfigError where the tar cannot be read to its end.
    """
    try:
        with path.open("rb") as f:
            if kind := _COMPRESSED.get(f.read(2)):
                raise ConfigError(
                    f"{path} is compressed ({kind}), so its images cannot be read at their positions. Unpack it to a "
                    "plain tar."
                )
            f.seek(0)
            with tarfile.open(fileobj=f, mode="r:") as tar:
                for key, members in itertools.groupby(_files(path, f, tar), key=lambda m: _sample_key(m.name)):
                    yield key, list(members)
                _check_end(path, f, tar.offset)
    except ConfigError:
        raise
    except TAR_ERRORS as error:
        raise ConfigError(f"{path} is not a readable tar file: {error or type(error).__name__}.") from None


def _sample_key(name: str) -> str:
    folder, _, base = name.rpartition("/")
    return f"{folder}/{base.split('.')[0]}"


def _files(path: Path, f: BinaryIO, tar: tarfile.TarFile) -> Iterator[Member]:
    """The files of a tar in order; links are followed to files before them. Raises ConfigError where that fails."""
    size, earlier = os.fstat(f.fileno()).st_size, dict[str, Member]()
    for member in tar:
        if posixpath.basename(member.name).startswith(".") or not (member.isfile() or member.islnk() or member.issym()):
            continue
        if member.isfile():
            if member.issparse():
                raise ConfigError(f"{path}: its member {member.name} is a sparse file. Write the tar without --sparse.")
            if member.size < 0 or member.offset_data + member.size > size:
                raise ConfigError(f"{path} is truncated: it ends within its member {member.name}. Copy it again.")
            file = Member(name=member.name, offset=member.offset_data, size=member.size, file=f)
        else:
            beside = posixpath.dirname(member.name) if member.issym() else ""
            target = earlier.get(posixpath.normpath(posixpath.join(beside, member.linkname)))
            if target is None and posixpath.splitext(member.name)[1].lower() not in SAMPLE_SUFFIXES:
                continue
            if target is None:
                raise ConfigError(
                    f"{path}: its member {member.name} is a link to {member.linkname}, which is no file before it in "
                    "the tar. Write the tar with --dereference (and --hard-dereference)."
                )
            file = Member(name=member.name, offset=target.offset, size=target.size, file=f)
        earlier[posixpath.normpath(member.name)] = file
        yield file


def _check_end(path: Path, f: BinaryIO, offset: int) -> None:
    """Raises ConfigError unless the tar has its end mark at `offset`, where no further member was read, and nothing
    but padding behind it."""
    f.seek(offset)
    block = f.read(tarfile.BLOCKSIZE)
    if len(block) < tarfile.BLOCKSIZE:
        raise ConfigError(
            f"{path} is truncated: it ends at byte {offset + len(block):,} without the end mark of a tar. Copy it "
            f"again. If it is whole and its writer left the mark out, add it: truncate -s +1024 {path.name}"
        )
    if block.strip(b"\0"):
        raise ConfigError(f"{path} is damaged at byte {offset:,}: there is no header of a tar. Copy it again.")
    while piece := f.read(_PIECE):
        if piece.strip(b"\0"):
            raise ConfigError(
                f"{path} has more data behind its end mark at byte {offset:,}, as joined tars do. Write it as one tar."
            )
