"""Downloads public data sets: with progress, resume and checksum, and unpacking that cannot leave its folder.

Weights by name are `pretrained`'s, which downloads through `download`.
"""

import base64
import hashlib
import http.client
import shutil
import tarfile
import urllib.error
import urllib.request
import zipfile
import zlib
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from vernier.addresses import check_redirect, redact, with_credentials
from vernier.data.unfinished import is_unfinished, mark_unfinished
from vernier.errors import ConfigError, RunFailed, did_you_mean, environment_error
from vernier.folders import data_home
from vernier.references import given, use

Progress = Callable[[str, int, int], None]
"""Called with what is being done, the bytes done and the total."""
_PIECE = 1 << 20
_TIMEOUT_S = 60
SCHEMES = ("https://", "http://", "ftp://", "file://")


@dataclass(frozen=True)
class File:
    """One file to download and perhaps unpack. The MD5 is the one that its publisher or its common users state."""

    url: str
    md5: str
    unpack: bool = False

    @property
    def name(self) -> str:
        return self.url.rpartition("/")[2]


_FASHION = "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/"
_COCO = "http://images.cocodataset.org/"
_TORONTO = "https://www.cs.toronto.edu/~kriz/"
_FAST_AI = "https://s3.amazonaws.com/fast-ai-imageclas/"
SETS: dict[str, tuple[File, ...]] = {
    "cifar10": (File(_TORONTO + "cifar-10-binary.tar.gz", "c32a1d4ab5d03f1284b67883e8d87530", unpack=True),),
    "fashion-mnist": (
        File(_FASHION + "train-images-idx3-ubyte.gz", "8d4fb7e6c68d591d4c3dfef9ec88bf0d"),
        File(_FASHION + "train-labels-idx1-ubyte.gz", "25c81989df183df01b3e8a0aad5dffbe"),
        File(_FASHION + "t10k-images-idx3-ubyte.gz", "bef4ecab320f06d8554ea6380940ec79"),
        File(_FASHION + "t10k-labels-idx1-ubyte.gz", "bb300cfdad3c16e7a12a480ee83cd310"),
    ),
    "imagenette": (File(_FAST_AI + "imagenette2-320.tgz", "3df6f0d01a2c9592104656642f5e78a3", unpack=True),),
    "coco": (
        File(_COCO + "annotations/annotations_trainval2017.zip", "f4bbac642086de4f52a3fdda2de5fa2c", unpack=True),
        File(_COCO + "zips/val2017.zip", "442b8da7639aecaf257c1dceb8ba8c80", unpack=True),
        File(_COCO + "zips/train2017.zip", "cced6f7f71b7629ddf16f17bbcfab6b2", unpack=True),
    ),
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
    folder = out or data_home() / name
    folder.mkdir(parents=True, exist_ok=True)
    with ExitStack() as mark:
        unpacking = is_unfinished(folder)
        if unpacking:
            mark.enter_context(mark_unfinished(folder, f"vernier data get {name}"))
        for file in SETS[name]:
            done = folder / f".{file.name}.done"
            if done.is_file():
                continue
            url = f"{mirror.rstrip('/')}/{file.name}" if mirror else file.url
            path = download(url, folder / file.name, Checksum("md5", file.md5), progress=progress)
            if file.unpack:
                if not unpacking:
                    mark.enter_context(mark_unfinished(folder, f"vernier data get {name}"))
                    unpacking = True
                unpack(path, folder, progress)
                path.unlink()
            done.write_text(file.md5 + "\n")
    return folder


@dataclass(frozen=True)
class Checksum:
    """The hexadecimal hash that a file must have, or its first digits."""

    algorithm: Literal["md5", "sha256"]
    value: str

    def of(self, path: Path) -> str:
        """As many digits of a file's hash."""
        with path.open("rb") as f:
            digest = hashlib.file_digest(f, lambda: hashlib.new(self.algorithm, usedforsecurity=False))
        return digest.hexdigest()[: len(self.value)]


def download(
    url: str,
    path: Path,
    checksum: Checksum | None = None,
    *,
    progress: Progress | None = None,
    otherwise: str = _OTHERWISE,
) -> Path:
    """Download one file, resuming an earlier attempt. It gets its name only when it is whole and its checksum agrees.

    `otherwise` is the advice where the server does not have the file. Raises RunFailed.
    """
    if path.is_file() and (checksum is None or checksum.of(path) == checksum.value):
        return path
    part = path.with_name(path.name + ".part")
    try:
        _fetch(url, part, progress)
    except urllib.error.HTTPError as error:
        raise RunFailed(f"{url} answered {error.code} {error.reason}. {otherwise.format(path.name)}") from None
    except (urllib.error.URLError, OSError, http.client.HTTPException) as error:
        if isinstance(error, OSError) and environment_error(error):
            raise
        reason = redact(str(getattr(error, "reason", error)))
        resume = (
            f" The first {part.stat().st_size:,} bytes are kept: run the same command to resume."
            if part.is_file()
            else ""
        )
        wrong = ""
        if path.is_file() and checksum is not None:
            wrong = f" The existing {path.name} does not have the checksum {checksum.value}."
        raise RunFailed(
            f"Cannot download {url}: {reason}.{resume}{wrong} Without a network, download {path.name} elsewhere, copy "
            f"it into {path.parent}, and run the same command again."
        ) from None
    if checksum is not None and (actual := checksum.of(part)) != checksum.value:
        part.unlink()
        raise RunFailed(
            f"{url}: the checksum is {actual}, {checksum.value} was expected. The file was removed. Try again. "
            f"{otherwise.format(path.name)}"
        )
    part.replace(path)
    return path


def _fetch(url: str, part: Path, progress: Progress | None) -> None:
    done = part.stat().st_size if part.is_file() else 0
    try:
        response = urllib.request.build_opener(_Redirects).open(_request(url, done), timeout=_TIMEOUT_S)
    except urllib.error.HTTPError as error:
        if error.code == 416:  # nothing is left to download: the checksum decides
            return
        raise
    with response:
        if response.status != 206:
            done = 0
        total = done + int(response.headers.get("Content-Length") or 0)
        with part.open("ab" if done else "wb") as f:
            while piece := response.read(_PIECE):
                f.write(piece)
                done += len(piece)
                if progress:
                    progress(f"downloading {url.rpartition('/')[2]}", done, total)
    if done < total:
        raise OSError(f"the connection ended after {done:,} of {total:,} bytes")


def _request(url: str, done: int) -> urllib.request.Request:
    """The request for what is missing of a file, with the credentials that were given for its address."""
    address = with_credentials(url)
    headers = {"Range": f"bytes={done}-"} if done else {}
    if address.user or address.password:
        login = base64.b64encode(f"{address.user}:{address.password}".encode()).decode()
        headers["Authorization"] = f"Basic {login}"
    whole = f"{url}?{address.query}" if address.query else url
    return urllib.request.Request(whole, headers=headers)  # noqa: S310  one of SCHEMES, checked by the callers


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Follows a server to itself, and to others that were allowed."""

    def redirect_request(self, req: urllib.request.Request, *answer: Any) -> urllib.request.Request | None:
        check_redirect(req.full_url, answer[-1])
        request = super().redirect_request(req, *answer)
        if request is not None and request.host != req.host:
            request.remove_header("Authorization")
        return request


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
        for member in tar:
            tar.extract(member, folder, filter="data")
            count += member.isfile()
            if progress:
                progress(f"unpacking {archive.name}", f.tell(), size)
    return count


def _unpack_zip(archive: Path, folder: Path, progress: Progress | None) -> int:
    """Files only, no links. Files that are there with their full size are left alone, so an interrupted run resumes."""
    count, home, done = 0, folder.resolve(), 0
    with zipfile.ZipFile(archive) as bundle:
        total = sum(member.file_size for member in bundle.infolist())
        for member in bundle.infolist():
            done += member.file_size
            if progress:
                progress(f"unpacking {archive.name}", done, total)
            target = (folder / member.filename).resolve()
            is_link = (member.external_attr >> 16) & 0o170000 == 0o120000
            if not target.is_relative_to(home) or is_link:
                raise RunFailed(f"{archive} was not unpacked: {member.filename} would land outside {folder}.")
            if member.is_dir():
                continue
            count += 1
            if target.is_file() and target.stat().st_size == member.file_size:
                continue
            target.parent.mkdir(parents=True, exist_ok=True)
            with bundle.open(member) as source, target.open("wb") as out:
                shutil.copyfileobj(source, out)
    return count
