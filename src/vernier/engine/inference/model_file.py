"""Model files: what an exported file says about itself, and the contract of files with a whole network.

The description is a `records.run.ModelFile`: in the metadata of a file, and as an attribute of the state dict in a
torch file (`models.weights`). It can be read without the packages that run the file. Writing files is up to `export`,
making a model of one up to `trained`.
"""

import json
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, get_type_hints

import torch
from torch import nn

from vernier.config.settings import EXPORT_FORMATS
from vernier.errors import ConfigError, RunFailed
from vernier.models import weights
from vernier.plugins import load_group
from vernier.records.codec import DamagedRecord, decode, encode
from vernier.records.run import ModelFile
from vernier.store import parse_json

if TYPE_CHECKING:
    from .export import Exported
    from .trained import Trained

Outputs = tuple[torch.Tensor, ...]
Runner = Callable[[torch.Tensor], Outputs]
_TEXTS = {name for name, hint in get_type_hints(ModelFile).items() if hint is str}


class NetworkFormat(ABC):
    """A kind of file with a whole network; the entry points `vernier.export_formats` name one each."""

    suffix: ClassVar[str]

    def check(self) -> None:  # noqa: B027 (most need nothing)
        """Raises ConfigError if a package is missing that writes such files."""

    @abstractmethod
    def recognizes(self, head: bytes, path: Path) -> bool:
        """Whether this is such a file, by its content, of which `head` are the first bytes. May raise for another."""

    @abstractmethod
    def read_metadata(self, path: Path) -> dict[str, str]:
        """The strings that a file carries about itself; empty if it has none. May raise anything for a damaged one."""

    @abstractmethod
    def open(self, path: Path) -> tuple[Runner, str]:
        """The network of a file, run with as many threads as torch has, and what runs it. May raise anything."""

    @abstractmethod
    def export(
        self, trained: "Trained", target: Path, about: ModelFile, *, data: str | None, normalized_input: bool
    ) -> "Exported":
        """Write a model, checked on images of `data` or of its own. Raises ConfigError and RunFailed, and leaves no
        file that computes something else."""


def network_formats() -> dict[str, NetworkFormat]:
    """The formats that are here, by name."""
    return load_group(EXPORT_FORMATS, NetworkFormat)  # type: ignore[type-abstract]


def kind_of(path: Path) -> str:
    """What kind of model file this is, by its content, since people rename files: safetensors, torch, or a format."""
    with path.open("rb") as file:
        # A safetensors file begins with eight bytes of length and a JSON object.
        head = file.read(9)
    if head[8:] == b"{":
        return "safetensors"
    for name, each in network_formats().items():
        with suppress(Exception):  # it may raise for a file of another kind
            if each.recognizes(head, path):
                return name
    return "torch"


def _read_metadata(path: Path) -> dict[str, str]:
    """The strings that a file carries about itself; empty where it has none. Raises ConfigError for a damaged file."""
    kind = kind_of(path)
    if kind == "torch":
        return weights.read_file(path).metadata
    try:
        return weights.read_metadata(path) if kind == "safetensors" else network_formats()[kind].read_metadata(path)
    except Exception as error:  # readers raise types of their own for damaged files
        raise ConfigError(f"{path} is damaged: {error}. Export it again.") from None


def read_description(path: Path) -> ModelFile | None:
    """What a file that Vernier exported says about itself; None for files of others."""
    return describe(_read_metadata(path), path)


def describe(metadata: dict[str, str], path: Path) -> ModelFile | None:
    """The description in a file's metadata; None if it has none. Raises ConfigError if it is damaged."""
    if not {"model", "classes", "eval_px"} <= metadata.keys():
        return None
    try:
        tree = {key: value if key in _TEXTS else _value(value) for key, value in metadata.items()}
        return decode(ModelFile, tree)
    except DamagedRecord as error:
        raise ConfigError(f"{path} describes itself in a way that cannot be read: {error}.") from None


def to_metadata(about: ModelFile) -> dict[str, str]:
    """The description as strings: texts as they are, other values as JSON."""
    tree = {"format": "pt", **encode(about)}  # `format` is what other readers of safetensors look for
    return {key: value if isinstance(value, str) else json.dumps(value) for key, value in tree.items()}


def _value(text: str) -> Any:
    try:
        return parse_json(text)
    except ValueError:
        return text


# ------------------------------------------------------------------------------------------------------------ networks


class FileNetwork(nn.Module):
    """The network of a file, run by the file's own runtime on the CPU; it has no parameters of its own to change."""

    def __init__(self, run: Runner, runtime: str) -> None:
        super().__init__()
        self._run, self.runtime = run, runtime

    def forward(self, images: torch.Tensor) -> Any:
        # A detector has two outputs, a classifier one, as the networks of this program.
        outputs = self._run(images)
        return outputs if len(outputs) > 1 else outputs[0]


def open_network(path: Path, kind: str) -> FileNetwork:
    """The network of a file, ready to be called, with as many threads as torch has. Raises ConfigError or RunFailed."""
    try:
        run, runtime = network_formats()[kind].open(path)
    except ConfigError:
        raise
    except Exception as error:  # the runtimes raise types of their own
        raise RunFailed(f"{path} cannot be run: {str(error).splitlines()[0]} Export it again.") from error
    return FileNetwork(run, runtime)
