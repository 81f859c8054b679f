"""Reading files that torch.save wrote, without running anything that is in them.

torch's `weights_only` unpickler reads tensors and plain values. Objects of apex that NVIDIA's training scripts pickled
beside the weights (the loss scaler) are replaced by inert placeholders; any other class or function is refused by name.
"""

import argparse
import re
import zipfile
from pathlib import Path
from typing import Any

import torch

from vernier.errors import ConfigError, environment_error
from vernier.frozen import frozen


class _Placeholder:
    """Stands for an object whose class is not used: has the plain values it was saved with, and no behaviour."""

    def __new__(cls, *_: object) -> "_Placeholder":
        return super().__new__(cls)

    def __init__(self, *_: object) -> None:
        pass


@frozen
class _TorchFile:
    """What a torch file holds, and the names of the classes whose objects are placeholders."""

    content: Any
    skipped: tuple[str, ...] = ()

    @property
    def notes(self) -> tuple[str, ...]:
        """One line about what was not read."""
        return (f"{', '.join(self.skipped)}: an object, skipped and not executed",) if self.skipped else ()


def load_torch(path: Path) -> _TorchFile:
    """Load a torch file to the CPU. Raises ConfigError when it is none, or refers to code."""
    skipped: list[str] = []
    while True:
        try:
            return _TorchFile(content=_load(path, skipped), skipped=tuple(skipped))
        except Exception as error:  # a damaged pickle can raise anything
            if isinstance(error, OSError) and (environment_error(error) or isinstance(error, FileNotFoundError)):
                raise
            code = re.search(r"GLOBAL ([\w.]+)", str(error))
            name = code[1] if code else None
            known = name is not None and name.startswith("apex.") and name not in skipped
            if name is None or not known or len(skipped) == 20:  # a file with that many is none of apex
                raise ConfigError(_unreadable(path, name)) from error
            skipped.append(name)


def _load(path: Path, skipped: list[str]) -> Any:
    # Training scripts save their arguments with the weights; a Namespace only holds values.
    placeholders = [(type(name.rpartition(".")[2], (_Placeholder,), {}), name) for name in skipped]
    with path.open("rb") as file, torch.serialization.safe_globals([argparse.Namespace, *placeholders]):
        if zipfile.is_zipfile(file):
            with zipfile.ZipFile(file) as archive:
                # torch.save never compresses: members that are larger than their file unpack to gigabytes.
                if sum(member.file_size for member in archive.infolist()) > path.stat().st_size:
                    raise ValueError("it is compressed")
        file.seek(0)
        return torch.load(file, map_location="cpu", weights_only=True)


def _unreadable(path: Path, code: str | None) -> str:
    if code is None:
        return f"Cannot read weights from {path}: neither safetensors nor a torch file of plain tensors."
    return (
        f"Cannot read weights from {path}: it refers to {code}, and Vernier runs no code from a file. If you trust it, "
        "load it with the program that wrote it and save only its state_dict, best as safetensors."
    )
