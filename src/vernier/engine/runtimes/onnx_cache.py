"""Networks as ONNX files for engines: exported once, and found again by what they are made of.

Exporting takes longer than measuring an engine does. The name of a file is a hash of the weights and of everything else
that the file depends on, so it never has to be invalidated. The oldest files make room for new ones.
"""

import hashlib
from collections.abc import Callable
from pathlib import Path

import torch

from vernier.engine.inference.export import ExportedNetwork, quiet_exporters, save_onnx
from vernier.engine.inference.trained import Trained
from vernier.errors import RunFailed
from vernier.folders import cache_home
from vernier.references import use
from vernier.store import replaced_atomically
from vernier.version import describe_version

KEPT_FILES = 8


def onnx_file(trained: Trained, network: ExportedNetwork, images: torch.Tensor) -> Path:
    """The network as an ONNX file that takes pixels. Raises RunFailed where it cannot be exported."""
    model, data = trained.config.recipe.model, trained.config.recipe.data
    versions, shape = (torch.__version__, describe_version()), (*images.shape[1:], len(trained.classes))
    key = hashlib.sha256(repr((versions, shape, model, data.mean, data.std)).encode())
    for name, tensor in trained.model.state_dict().items():
        key.update(name.encode() + tensor.detach().cpu().contiguous().numpy().tobytes())

    def write(path: Path) -> None:
        try:
            with quiet_exporters():
                save_onnx(network, network.names, images, path, {})
        except Exception as error:  # the exporter raises types of its own
            cause: BaseException = error
            while cause.__cause__ is not None:  # the exporter's own words are about what it will try next
                cause = cause.__cause__
            first = (str(cause).strip() or type(cause).__name__).splitlines()[0]
            torch_engine = use("machine.engine", "torch")
            raise RunFailed(f"This model cannot be exported to ONNX: {first}. Use {torch_engine}.") from error

    return cached_file(key.hexdigest(), write)


def cached_file(key: str, write: Callable[[Path], None]) -> Path:
    """The file of this key, written first where it is not there."""
    folder = cache_home() / "engines"
    path = folder / f"{key[:32]}.onnx"
    if path.exists():
        path.touch()
        return path
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with replaced_atomically(path, sync=False) as temporary:
            write(temporary)
        newest_first = sorted(folder.glob("*.onnx"), key=lambda file: file.stat().st_mtime, reverse=True)
        for old in newest_first[KEPT_FILES:]:
            old.unlink(missing_ok=True)
    except OSError as error:
        raise RunFailed(f"{path} could not be written: {error}. Free some space, or set VERNIER_HOME.") from None
    return path
