"""Public data sets by name: downloaded by `vernier.data.downloads`, and unpacked so that nothing leaves the folder."""

import os
import shutil
import tarfile
import tomllib
import zipfile
import zlib
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from vernier.data.downloads import SCHEMES, Checksum, Progress, download
from vernier.data.sources.containers.shard_index import read_members
from vernier.data.unfinished import is_unfinished, locked_folder
from vernier.errors import ConfigError, RunFailed, did_you_mean
from vernier.folders import data_home
from vernier.references import given, use
from vernier.store import write_atomically

from .unfinished import mark_unfinished


@dataclass(frozen=True)
class File:
    """One file to download and perhaps unpack. The MD5 is the one that its publisher or its common users state."""

    url: str
    md5: str
    unpack: bool = False

    @property
    def name(self) -> str:
        return self.url.rpartition("/")[2]


SETS = {
    name: tuple(File(**entry) for entry in files)
    for name, files in tomllib.loads(Path(__file__).with_name("sets.toml").read_text(encoding="utf-8")).items()
}
_OTHERWISE = f"Give an address that has {{}} as {use('mirror')}."
"""Advice if a server does not have a file; {} is its name."""


def get(name: str, out: Path | None = None, *, mirror: str = "", progress: Progress | None = None) -> Path:
    """Download a public set into `out` (by default Vernier's cache) and unpack it, without repeating finished files.

    `mirror` is a base address with files of the same names.
    """
    if name not in SETS:
        raise ConfigError(f"There is no data set {name!r} to download. {did_you_mean(name, SETS)}")
    if mirror and not mirror.startswith(SCHEMES):
        raise ConfigError(
            f"{given('mirror', mirror)} is not an address. An address begins with one of {', '.join(SCHEMES)}"
        )
    folder, by = out or data_home() / name, f"vernier data get {name}"
    with ExitStack() as mark:
        mark.enter_context(locked_folder(folder, by, wait=True))
        unpacking = is_unfinished(folder)
        if unpacking:
            mark.enter_context(mark_unfinished(folder, by))
        for file in SETS[name]:
            done = folder / f".{file.name}.done"
            # By a note, since an archive is removed when it is unpacked. Its hash: a later set has another one.
            if done.is_file() and done.read_text(errors="replace").strip() == file.md5:
                continue
            url = f"{mirror.rstrip('/')}/{file.name}" if mirror else file.url
            path = download(url, folder / file.name, Checksum("md5", file.md5), otherwise=_OTHERWISE, progress=progress)
            if file.unpack:
                # Files that are only downloaded have no half-written state that a reader could open.
                if not unpacking:
                    mark.enter_context(mark_unfinished(folder, by))
                    unpacking = True
                unpack(path, folder, progress)
                path.unlink()
            # Everything that the note vouches for, at once: a call per file would take minutes for a million of them.
            os.sync()
            write_atomically(done, file.md5 + "\n")
    return folder


def unpack(archive: Path, folder: Path, progress: Progress | None = None) -> int:
    """Unpack a tar or zip; a member that would land outside the folder is refused. Returns the number of files."""
    folder.mkdir(parents=True, exist_ok=True)
    try:
        if zipfile.is_zipfile(archive):
            return _unpack_zip(archive, folder, progress)
        if not tarfile.is_tarfile(archive):
            raise RunFailed(f"{archive} was not unpacked: it is neither a zip nor a tar file.")
        return _unpack_tar(archive, folder, progress)
    except (tarfile.TarError, zipfile.BadZipFile, EOFError, zlib.error) as error:
        raise RunFailed(f"{archive} was not unpacked: {error}.") from None


def _unpack_tar(archive: Path, folder: Path, progress: Progress | None) -> int:
    count, size = 0, archive.stat().st_size
    with archive.open("rb") as f, tarfile.open(fileobj=f) as tar:
        for member in read_members(tar):
            # The filter refuses absolute paths, links out of the folder and devices.
            tar.extract(member, folder, filter="data")
            count += member.isfile()
            if progress:
                progress(f"unpacking {archive.name}", f.tell(), size)
    return count


def _unpack_zip(archive: Path, folder: Path, progress: Progress | None) -> int:
    """Files only, no links. Files that are there with their content are left alone, so an interrupted run resumes."""
    count, home, done = 0, folder.resolve(), 0
    with zipfile.ZipFile(archive) as bundle:
        total = sum(member.file_size for member in bundle.infolist())
        for member in bundle.infolist():
            done += member.file_size
            if progress:
                progress(f"unpacking {archive.name}", done, total)
            # zipfile's own `extract` would give such a member another place without a word.
            target = (folder / member.filename).resolve()
            # The mode of Unix is in the upper 16 bits; 0o120000 is that of a symbolic link.
            is_link = (member.external_attr >> 16) & 0o170000 == 0o120000
            if not target.is_relative_to(home) or is_link:
                raise RunFailed(f"{archive} was not unpacked: {member.filename} would land outside {folder}.")
            if member.is_dir():
                continue
            count += 1
            # The size alone is not enough: after a power cut there may be zeros.
            if target.is_file() and zlib.crc32(target.read_bytes()) == member.CRC:
                continue
            target.parent.mkdir(parents=True, exist_ok=True)
            with bundle.open(member) as source, target.open("wb") as out:
                shutil.copyfileobj(source, out)
    return count
