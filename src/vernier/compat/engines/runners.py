"""The engines that run ONNX files: what they need, what they cannot do, and how they open a file.

Imports neither torch nor an engine, so that commands refuse at once; `choosing` checks, measures and uses them.
"""

import re
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from vernier.config import Machine
from vernier.errors import ConfigError
from vernier.references import given, use

if TYPE_CHECKING:
    import torch

    from vernier.data.sources import Source
    from vernier.engine.inference.model_file import Outputs, Runner
    from vernier.engine.inference.trained import Trained

_EXPORT = {"onnx": (1, 19), "onnxscript": (0, 5)}


class OnnxEngine:
    """An engine that opens ONNX files, a `engine.inference.engines.Engine`. Those of other packages derive from it to
    be checked against PyTorch, and to take part in `auto`."""

    name: ClassVar[str]
    packages: ClassVar[dict[str, tuple[int, int]]]
    """What it needs, with the lowest version; the extra of its name in pyproject.toml has the same."""

    def open(self, path: Path) -> "tuple[Runner, str]":
        """The file, run on the CPU with as many threads as torch has, and the engine's name with its version. Raises
        what the engine raises."""
        raise NotImplementedError

    def why_not(self) -> str:
        from vernier.measure.environment import installed_version  # psutil, which help does without

        command = f"pip install -U 'vernier[{self.name}]'"
        versions = {package: installed_version(package) for package in self.packages}
        if missing := [package for package, version in versions.items() if version is None]:
            return f"{', '.join(missing)}: {command}"
        for package, lowest in self.packages.items():
            version = versions[package] or ""
            if tuple(map(int, re.findall(r"\d+", version)[:2])) < lowest:
                return f"{package} {'.'.join(map(str, lowest))} or newer, and {version} is installed: {command}"
        return ""

    def check(self, machine: Machine) -> None:
        engine, int8 = given("machine.engine", machine.engine), given("machine.int8", True)
        torch = use("machine.engine", "torch")
        if machine.device not in ("auto", "cpu"):
            raise ConfigError(
                f"{engine} runs on the CPU, not with {given('machine.device', machine.device)}. Use {torch}."
            )
        if machine.mode != "eager":
            raise ConfigError(
                f"{engine} does not work with {given('machine.mode', machine.mode)}. Use "
                f"{use('machine.mode', 'eager')} or {torch}."
            )
        if machine.precision != "fp32":
            raise ConfigError(
                f"{engine} computes in fp32, or in INT8 with {use('machine.int8', True)}, not with "
                f"{given('machine.precision', machine.precision)}. Use {use('machine.precision', 'fp32')} or {torch}."
            )
        if machine.procs > 1:
            raise ConfigError(
                f"{engine} runs in one process with all cores, not with {given('machine.procs', machine.procs)}. Use "
                f"{use('machine.procs', 1)}."
            )
        if machine.int8 and not isinstance(self, OnnxRuntime | Auto):
            raise ConfigError(
                f"{int8} runs in onnxruntime: {self.name} computes something else with its file. Use "
                f"{use('machine.engine', 'auto')}."
            )
        if problem := self.why_not():
            raise ConfigError(f"{engine} needs {problem}")
        if machine.int8 and (problem := OnnxRuntime().why_not()):  # whose quantizer makes the file for every engine
            raise ConfigError(f"{int8} needs {problem}")

    def use(self, trained: "Trained", source: "Source", *, batch: int, labelled: bool = True) -> "Trained":
        from .choosing import use_engine

        return use_engine(trained, source, batch=batch, labelled=labelled)


class OnnxRuntime(OnnxEngine):
    """Microsoft's onnxruntime."""

    name = "onnxruntime"
    packages: ClassVar = {"onnxruntime": (1, 22), **_EXPORT}

    def open(self, path: Path) -> "tuple[Runner, str]":
        from vernier.compat.export.onnx import FORMAT

        return FORMAT.open(path)


class OpenVino(OnnxEngine):
    """Intel's OpenVINO."""

    name = "openvino"
    packages: ClassVar = {"openvino": (2025, 2), **_EXPORT}

    def open(self, path: Path) -> "tuple[Runner, str]":
        import openvino
        import torch

        # Without the last of these OpenVINO computes in bf16 on processors that have it, and differs in the third
        # digit.
        options: dict[str, object] = {
            "PERFORMANCE_HINT": "LATENCY",  # one batch at a time on all threads
            "INFERENCE_NUM_THREADS": torch.get_num_threads(),
            "INFERENCE_PRECISION_HINT": "f32",
        }
        core = openvino.Core()
        request = core.compile_model(core.read_model(path), "CPU", options).create_infer_request()

        def run(images: "torch.Tensor") -> "Outputs":
            outputs = request.infer([images.contiguous().numpy()], share_inputs=True)
            return tuple(torch.from_numpy(output.copy()) for output in outputs.values())

        version = openvino.__version__.partition("-")[0]
        return run, f"openvino {version} on CPU"


class Auto(OnnxEngine):
    """The fastest of PyTorch and the installed engines, measured on the images."""

    name = "auto"
    packages: ClassVar = {}
