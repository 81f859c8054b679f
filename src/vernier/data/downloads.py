"""Downloads with resume and checksum, and pretrained weights by name, such as `torchvision:resnet50-v2`.

Weights are fetched once, from the address of their publisher, and cached. The names of the files are torchvision's
(`models/resnet.py`), with the first digits of their SHA-256; every use is checked against the whole hash where it is
known. A name says which file, never which address: untrusted settings cannot make Vernier read from elsewhere. Reading
the tensors is up to `models.weights`.
"""

import base64
import hashlib
import http.client
import os
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

from vernier.addresses import check_redirect, redact, with_credentials
from vernier.errors import ConfigError, RunFailed, did_you_mean, environment_error
from vernier.folders import cache_home
from vernier.frozen import frozen
from vernier.plugins import load_plugin

from .trusted import is_sound, private_folder, record_of
from .unfinished import locked_folder

Progress = Callable[[str, int, int], None]
"""Called with what is being done, the bytes done and the total."""
SCHEMES = ("https://", "http://", "ftp://", "file://")
_PIECE = 1 << 20
# Without a single byte; a download may take as long as it needs.
_TIMEOUT_S = 60
_THIS_MACHINE = ("127.0.0.1", "::1", "localhost")
PREFIX = "torchvision:"
_FILES = "vernier.published_weights"
"""Entry points that know the files of further names."""
ADDRESS = "https://download.pytorch.org/models"
MIRROR = "VERNIER_WEIGHTS_MIRROR"
"""Environment variable with the address of a server that has the same files, for machines without the publisher's."""
TORCHVISION = {
    "resnet18": "resnet18-f37072fd.pth",
    "resnet34": "resnet34-b627a593.pth",
    "resnet50-v1": "resnet50-0676ba61.pth",
    "resnet50-v2": "resnet50-11ad3fa6.pth",
    "resnet101-v1": "resnet101-63fe2227.pth",
    "resnet101-v2": "resnet101-cd907fc2.pth",
    "resnet152-v1": "resnet152-394f9c45.pth",
    "resnet152-v2": "resnet152-f82ba261.pth",
    "resnext50-32x4d-v1": "resnext50_32x4d-7cdf4587.pth",
    "resnext50-32x4d-v2": "resnext50_32x4d-1a0047aa.pth",
    "resnext101-32x8d-v1": "resnext101_32x8d-8ba56ff5.pth",
    "resnext101-32x8d-v2": "resnext101_32x8d-110c445d.pth",
    "resnext101-64x4d": "resnext101_64x4d-173b62eb.pth",
}
"""Name -> file. -v1 and -v2 are IMAGENET1K_V1 and _V2: two trainings of one network, whose strides are v1.5 in both."""
HASHES = {
    "resnet18-f37072fd.pth": "f37072fd47e89c5e827621c5baffa7500819f7896bbacec160b1a16c560e07ec",
    "resnet34-b627a593.pth": "b627a593bcbe140c234610266fe4f8ae95ea42fc881d091c9b6052e6b1d0590f",
    "resnet50-0676ba61.pth": "0676ba61b6795bbe1773cffd859882e5e297624d384b6993f7c9e683e722fb8a",
    "resnet50-11ad3fa6.pth": "11ad3fa62ca79e40addfd354a8ec4b7c75143b3038b8d2a807fbc68deab379ca",
    "resnet101-63fe2227.pth": "63fe2227b86e8f1f2063f43a75c84d195911b6a0eace650907dd3dc62dd49a0a",
    "resnet101-cd907fc2.pth": "cd907fc2a0de2292b2ba2b27d2216bc672d84632d1cf20058d01c0c03b5e020e",
    "resnet152-394f9c45.pth": "394f9c45966e3651a89bbb78a48410a6755854ce4a5ab64927cf1c7247f85e58",
    # SHA-512, in the script by which MLPerf's reference detector fetches its backbone.
    "resnext50_32x4d-7cdf4587.pth": "15c9f0bc1c8d64750712f86ffaded3b0bc6a87e77a395dcda3013d8af65b7ebf"
    "3ca1c24dd3aae60c0d83e510b4d27731f0526b6f9392c0a85ffc18e5fecd8a13",
}
"""The whole SHA-256 or SHA-512 as far as independent projects that downloaded the files agree on them; the publisher
states eight digits. The others must come from where nobody on the way can exchange them."""


@dataclass(frozen=True)
class Checksum:
    """The hexadecimal hash that a file must have, or its first digits."""

    algorithm: Literal["md5", "sha256", "sha512"]
    value: str

    def of(self, path: Path) -> str:
        """As many digits of a file's hash."""
        with path.open("rb") as f:
            # Systems in FIPS mode refuse md5 otherwise.
            digest = hashlib.file_digest(f, lambda: hashlib.new(self.algorithm, usedforsecurity=False))
        return digest.hexdigest()[: len(self.value)]


def download(
    url: str,
    path: Path,
    checksum: Checksum,
    *,
    otherwise: str,
    progress: Progress | None = None,
) -> Path:
    """Download one file, resuming an earlier attempt. It gets its name only when it is whole and its checksum agrees.

    `otherwise` is the advice where the server does not have the file. Raises RunFailed.
    """
    if path.is_file() and checksum.of(path) == checksum.value:
        return path
    # It stays after an error, so that the next attempt resumes it.
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
        if path.is_file():
            wrong = f" The existing {path.name} does not have the checksum {checksum.value}."
        raise RunFailed(
            f"Cannot download {url}: {reason}.{resume}{wrong} Without a network, download {path.name} elsewhere, copy "
            f"it into {path.parent}, and run the same command again."
        ) from None
    if (actual := checksum.of(part)) != checksum.value:
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
        # A server that ignores the range sends the file from its start.
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
        # A password is for the server that it was given for.
        if request is not None and request.host != req.host:
            request.remove_header("Authorization")
        return request


# ------------------------------------------------------------------------------------------------- pretrained weights


@frozen
class _Pretrained:
    """Published weights: the name that a person gives, the file, and the network of the catalogue they belong to."""

    name: str
    file: str
    network: str

    @property
    def checksum(self) -> Checksum:
        digits = HASHES.get(self.file) or self.file.rpartition("-")[2].partition(".")[0]
        return Checksum("sha512" if len(digits) == 128 else "sha256", digits)

    @property
    def path(self) -> Path:
        """Where the file is kept, once it is there."""
        return _weights_home() / self.file

    @property
    def url(self) -> str:
        base = os.environ.get(MIRROR) or ADDRESS
        if not base.startswith(SCHEMES):
            raise ConfigError(f"{MIRROR} = {base} is not an address. One begins with {', '.join(SCHEMES)}")
        # Eight digits are 32 bits: within reach of whoever can answer in the server's place.
        exchangeable = base.startswith(("http://", "ftp://")) and urlsplit(base).hostname not in _THIS_MACHINE
        if exchangeable and self.file not in HASHES:
            raise ConfigError(
                f"{MIRROR} = {base} is not safe for {self.file}: only eight digits of its hash are published. Use an "
                "address with https:// or file://."
            )
        return f"{base.rstrip('/')}/{self.file}"


def _weights_home() -> Path:
    """Where fetched weights are kept."""
    return cache_home() / "weights"


def is_pretrained(weights: str) -> bool:
    """Whether weights are given by name instead of as a file."""
    return weights.startswith(PREFIX)


def pretrained(name: str) -> _Pretrained:
    """The published weights of a name. Raises ConfigError with similar names."""
    key = name.removeprefix(PREFIX)
    if "." in key:  # weights of torchvision:MODEL, by torchvision's own name
        file = load_plugin(_FILES, "model.weights", "torchvision", "FILE")(key)
        return _Pretrained(name=name, file=file, network=f"{PREFIX}{key}")
    if key not in TORCHVISION:
        # torchvision trained most models twice, with different accuracies: neither is the obvious one.
        both = [other for other in TORCHVISION if other.startswith(f"{key}-v")]
        hint = f"There are two trainings of it: {' and '.join(both)}." if both else did_you_mean(key, TORCHVISION)
        raise ConfigError(f"There are no weights {PREFIX}{key}. {hint} Names: {', '.join(TORCHVISION)}.")
    return _Pretrained(
        name=f"{PREFIX}{key}", file=TORCHVISION[key], network=key.removesuffix("-v1").removesuffix("-v2")
    )


def is_cached(name: str) -> bool:
    """Whether the file of a name was fetched already; it is checked when it is used."""
    return pretrained(name).path.is_file()


def fetch_pretrained(name: str, progress: Progress | None = None) -> Path:
    """The file of a name, fetched if it is not in the cache. Raises RunFailed where that fails.

    A cut connection is resumed by the next attempt; of several processes one fetches and the others wait for it.
    """
    chosen = pretrained(name)
    otherwise = f"Or put {{}} into {_weights_home()} yourself, or set {MIRROR} to an address that has it."
    with locked_folder(private_folder(_weights_home()), f"fetching {chosen.name}", wait=True):
        path = download(chosen.url, chosen.path, chosen.checksum, progress=progress, otherwise=otherwise)
        # The name has 32 bits of the hash: from the first use on all of them count.
        if not is_sound(path, new=not record_of(path).exists()):
            raise RunFailed(
                f"{path} is not the file that was fetched first: its SHA-256 is another one, or others can write it. "
                "Remove it, and run the same command again."
            )
        return path
