"""Model files: what an exported file says about itself, and the network in an ONNX or torch.export file.

The description is a `records.run.ModelFile`: in the metadata of safetensors and ONNX files, in `about.json` of a
torch.export file, and as an attribute of the state dict in a torch file (`models.weights`). It can be read without the
packages that run the file. Writing files is up to `export`, making a model of one up to `trained`.
"""

import json
import mmap
import struct
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, get_type_hints

import torch
from safetensors import SafetensorError
from torch import nn

from vernier.errors import ConfigError, RunFailed
from vernier.measure.environment import installed_version
from vernier.models import weights
from vernier.protobuf import read_fields
from vernier.records.codec import DamagedRecord, decode, encode
from vernier.records.run import ModelFile
from vernier.store import parse_json

from .pt2_check import checked_archive, plain_values_only

Kind = Literal["safetensors", "torch", "onnx", "torch-export"]
ABOUT = "about.json"
ONNX_PACKAGES = ("onnx", "onnxscript", "onnxruntime")
Outputs = tuple[torch.Tensor, ...]
Runner = Callable[[torch.Tensor], Outputs]
_TEXTS = {name for name, hint in get_type_hints(ModelFile).items() if hint is str}
_LARGEST_ABOUT = 1 << 24
_BROKEN_ZIP = (
    *(OSError, ValueError, LookupError, OverflowError, EOFError, RuntimeError, zipfile.BadZipFile, zlib.error),
    struct.error,
)
"""What zipfile raises for damaged archives, and for what it does not support."""
_METADATA_PROPS = 14  # field of ONNX's ModelProto: pairs of key (1) and value (2)


def kind_of(path: Path) -> Kind:
    """What kind of model file this is, by its content, since people rename files."""
    with path.open("rb") as file:
        head = file.read(9)
    if head[8:] == b"{":
        return "safetensors"
    if head[:2] == b"PK" and zipfile.is_zipfile(path):
        try:
            with zipfile.ZipFile(path) as archive:
                return "torch-export" if any("/models/" in name for name in archive.namelist()) else "torch"
        except _BROKEN_ZIP:
            return "torch"  # whose reader says that it is damaged
    return "onnx" if head[:1] == b"\x08" else "torch"  # an ONNX file begins with the number of its version


def read_metadata(path: Path) -> dict[str, str]:
    """The strings that a file carries about itself; empty where it has none. Raises ConfigError for a damaged file."""
    kind = kind_of(path)
    try:
        if kind == "onnx":
            return _onnx_metadata(path)
        if kind == "torch-export":
            return _torch_export_metadata(path)
        if kind == "safetensors":
            return weights.read_metadata(path)
    except (*_BROKEN_ZIP, SafetensorError) as error:
        raise ConfigError(f"{path} is damaged: {error}. Export it again.") from None
    return weights.read_file(path).metadata


def read_description(path: Path) -> ModelFile | None:
    """What a file that Vernier exported says about itself; None for files of others."""
    return describe(read_metadata(path), path)


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


def _torch_export_metadata(path: Path) -> dict[str, str]:
    """The strings in `about.json` of a torch.export file; empty where it has none. Raises what a broken zip raises."""
    with zipfile.ZipFile(path) as archive:
        about = next((entry for entry in archive.infolist() if entry.filename.endswith(f"/extra/{ABOUT}")), None)
        if about is None:
            return {}
        if about.file_size > _LARGEST_ABOUT:
            raise ValueError(f"its {ABOUT} has {about.file_size:,} bytes")
        tree = parse_json(archive.read(about).decode())
    if not isinstance(tree, dict) or not all(isinstance(value, str) for value in tree.values()):
        raise ValueError(f"its {ABOUT} is not an object of texts")
    return tree


def _onnx_metadata(path: Path) -> dict[str, str]:
    """The metadata of an ONNX file, which is a protobuf message; its weights are skipped, not read."""
    pairs: dict[str, str] = {}
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        for number, _, start, stop in read_fields(data, 0, len(data)):
            if number == _METADATA_PROPS:
                parts = {n: data[a:b].decode() for n, _, a, b in read_fields(data, start, stop)}
                pairs[parts.get(1, "")] = parts.get(2, "")
    return pairs


# ------------------------------------------------------------------------------------------------------------ networks


class FileNetwork(nn.Module):
    """The network of a file, run by the file's own runtime on the CPU; it has no parameters of its own to change."""

    def __init__(self, run: Runner, runtime: str) -> None:
        super().__init__()
        self._run, self.runtime = run, runtime

    def forward(self, images: torch.Tensor) -> Any:
        outputs = self._run(images)
        return outputs if len(outputs) > 1 else outputs[0]


def open_network(path: Path, kind: Kind) -> FileNetwork:
    """The network of a file, ready to be called, with as many threads as torch has. Raises ConfigError or RunFailed."""
    try:
        run, runtime = open_onnx(path) if kind == "onnx" else open_torch_export(path)
    except ConfigError:
        raise
    except Exception as error:  # the runtimes raise types of their own
        raise RunFailed(f"{path} cannot be run: {str(error).splitlines()[0]} Export it again.") from error
    return FileNetwork(run, runtime)


def require_onnx(packages: tuple[str, ...], purpose: str) -> None:
    """Raise ConfigError that names the packages which are not installed, and the command that installs them."""
    if missing := [name for name in packages if installed_version(name) is None]:
        raise ConfigError(f"{purpose} needs {', '.join(missing)}: pip install 'vernier[onnx]'")


def open_onnx(path: Path) -> tuple[Runner, str]:
    """onnxruntime to run the file on the CPU, and its name."""
    require_onnx(("onnxruntime",), f"Running {path.name}")
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])

    def run(images: torch.Tensor) -> Outputs:
        outputs = session.run(None, {"images": images.contiguous().numpy()})
        return tuple(torch.from_numpy(output) for output in outputs)

    return run, f"onnxruntime {onnxruntime.__version__} on CPU"


def open_torch_export(path: Path) -> tuple[Runner, str]:
    """The module of a torch.export file, and the name of what runs it."""
    with plain_values_only():
        module = torch.export.load(checked_archive(path)).module()

    def run(images: torch.Tensor) -> Outputs:
        with torch.inference_mode():
            return as_tuple(module(images.contiguous()))

    return run, f"torch.export of torch {torch.__version__}"


def as_tuple(outputs: Any) -> Outputs:
    """A network's outputs as a tuple, also where it has only one."""
    return tuple(outputs) if isinstance(outputs, tuple | list) else (outputs,)
