"""ONNX files: written by PyTorch's exporter, run by onnxruntime on the CPU, described by their metadata.

A file is written under a temporary name, run on real images, compared with PyTorch, and only then renamed.
"""

import mmap
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import torch
from torch import nn

from vernier.compat.protobuf import read_fields
from vernier.devices.cpu import Cpu
from vernier.engine.execution import evaluating
from vernier.engine.inference.export import Exported, unwritable
from vernier.engine.inference.model_file import NetworkFormat, Outputs, Runner, to_metadata
from vernier.engine.inference.trained import Trained
from vernier.errors import ConfigError
from vernier.measure.environment import installed_version
from vernier.records.run import ModelFile
from vernier.references import given
from vernier.store import replaced_atomically

from .network import ExportedNetwork, as_tuple, compare_outputs, quiet_exporters, real_images

_METADATA_PROPS = 14  # field of ONNX's ModelProto: pairs of key (1) and value (2)


class _Onnx(NetworkFormat):
    """ONNX, for onnxruntime and other engines."""

    suffix = ".onnx"

    def check(self) -> None:
        require_onnx(("onnx", "onnxscript", "onnxruntime"), given("format", "onnx"))

    def recognizes(self, head: bytes, path: Path) -> bool:
        return head[:1] == b"\x08"  # the number of its version comes first

    def read_metadata(self, path: Path) -> dict[str, str]:
        """From a protobuf message, whose weights are skipped, not read; needs no package."""
        pairs: dict[str, str] = {}
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            for number, _, start, stop in read_fields(data, 0, len(data)):
                if number == _METADATA_PROPS:
                    parts = {n: data[a:b].decode() for n, _, a, b in read_fields(data, start, stop)}
                    pairs[parts.get(1, "")] = parts.get(2, "")
        return pairs

    def export(
        self, trained: Trained, target: Path, about: ModelFile, *, data: str | None, normalized_input: bool
    ) -> Exported:
        network = ExportedNetwork(trained, normalized_input)
        images = real_images(trained, data)
        about = replace(about, input=network.takes, pixels=not normalized_input)
        inputs = network.prepare_input(images)
        # On the CPU, whatever trained it, because the exporter traces there.
        with evaluating(network, Cpu()):
            expected = as_tuple(network(inputs))
        try:
            # Compared before the rename: no file that computes something else ever has the name.
            with replaced_atomically(target) as temporary, quiet_exporters():
                self.write(network, network.names, inputs, temporary, to_metadata(about))
                run, runtime = self.open(temporary)
                check = compare_outputs(expected, run(inputs), runtime, data or trained.config.recipe.data.source)
        except OSError as error:
            raise unwritable(target, error) from None
        return Exported(path=target, about=about, check=check)

    def write(
        self, network: nn.Module, names: tuple[str, ...], inputs: torch.Tensor, path: Path, metadata: Mapping[str, str]
    ) -> None:
        """Write a network with these names of outputs, for any number of images."""
        example = inputs[:2] if len(inputs) > 1 else inputs.repeat(2, 1, 1, 1)  # of one image the size would be fixed
        program = torch.onnx.export(
            network,
            (example,),
            dynamo=True,
            verbose=False,
            input_names=["images"],
            output_names=list(names),
            dynamic_shapes=({0: torch.export.Dim("batch")},),
        )
        assert program is not None
        program.model.metadata_props.update(metadata)
        program.save(path, external_data=False)

    def open(self, path: Path) -> tuple[Runner, str]:
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


def require_onnx(packages: tuple[str, ...], purpose: str) -> None:
    """Raise ConfigError that names the packages which are not installed, and the command that installs them."""
    if missing := [name for name in packages if installed_version(name) is None]:
        raise ConfigError(f"{purpose} needs {', '.join(missing)}: pip install 'vernier[onnx]'")


FORMAT = _Onnx()
