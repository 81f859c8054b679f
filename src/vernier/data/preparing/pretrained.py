"""Pretrained weights by name: `torchvision:resnet50-v2`. Fetched once, from the address of their publisher, and cached.

The names of the files are torchvision's (`models/resnet.py`), with the first digits of their SHA-256, against which
every use is checked. A name says which file, never which address: settings of strangers cannot make Vernier read from
elsewhere. Reading the tensors is `models.weights`' business.
"""

import os
from pathlib import Path

from vernier.data.unfinished import locked_folder
from vernier.errors import ConfigError, did_you_mean
from vernier.folders import cache_home
from vernier.frozen import frozen

from .fetch import SCHEMES, Checksum, Progress, download

PREFIX = "torchvision:"
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


@frozen
class Pretrained:
    """Published weights: the name that a person gives, the file, and the network of the catalogue they belong to."""

    name: str
    file: str
    network: str

    @property
    def checksum(self) -> Checksum:
        return Checksum("sha256", self.file.rpartition("-")[2].partition(".")[0])

    @property
    def path(self) -> Path:
        """Where the file is kept, once it is there."""
        return weights_home() / self.file

    @property
    def url(self) -> str:
        base = os.environ.get(MIRROR) or ADDRESS
        if not base.startswith(SCHEMES):
            raise ConfigError(f"{MIRROR} = {base} is not an address. One begins with {', '.join(SCHEMES)}")
        return f"{base.rstrip('/')}/{self.file}"


def weights_home() -> Path:
    """Where fetched weights are kept."""
    return cache_home() / "weights"


def is_pretrained(weights: str) -> bool:
    """Whether weights are given by name instead of as a file."""
    return weights.startswith(PREFIX)


def pretrained(name: str) -> Pretrained:
    """The published weights of a name. Raises ConfigError with similar names."""
    key = name.removeprefix(PREFIX)
    if key not in TORCHVISION:
        both = [other for other in TORCHVISION if other.startswith(f"{key}-v")]
        hint = f"There are two trainings of it: {' and '.join(both)}." if both else did_you_mean(key, TORCHVISION)
        raise ConfigError(f"There are no weights {PREFIX}{key}. {hint} Names: {', '.join(TORCHVISION)}.")
    return Pretrained(name=f"{PREFIX}{key}", file=TORCHVISION[key], network=key.removesuffix("-v1").removesuffix("-v2"))


def is_cached(name: str) -> bool:
    """Whether the file of a name was fetched already; it is checked when it is used."""
    return pretrained(name).path.is_file()


def fetch_pretrained(name: str, progress: Progress | None = None) -> Path:
    """The file of a name, fetched if it is not in the cache. Raises RunFailed where that fails.

    A cut connection is resumed by the next attempt; of several processes one fetches and the others wait for it.
    """
    chosen = pretrained(name)
    otherwise = f"Or put {{}} into {weights_home()} yourself, or set {MIRROR} to an address that has it."
    with locked_folder(weights_home(), f"fetching {chosen.name}", wait=True):
        return download(chosen.url, chosen.path, chosen.checksum, progress=progress, otherwise=otherwise)
